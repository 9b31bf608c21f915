//! The overlay against a reference map of key -> newest document, and its loop against a log in memory.

mod bed;
mod follow;
mod lifecycle;
mod log;
mod model;
mod rules;
mod saved;
