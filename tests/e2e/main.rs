//! End to end: whole trees in one process over real sockets and real indexes, judged by their documents and by the
//! contract of the API.

mod cases;
mod contract;
mod counting;
mod dates;
mod dirty;
mod documents;
mod faults;
mod feed;
mod grpc;
mod overload;
mod pages;
mod paging;
mod patterns;
mod questions;
mod sample;
mod shapes;
mod subsets;
mod texts;
mod tied;
mod traces;
mod world;
