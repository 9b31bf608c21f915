//! End to end: whole trees in one process over real sockets and real indexes, judged by their documents and by the
//! contract of the API.

mod questions;
mod shapes;
mod world;
