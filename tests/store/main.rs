//! Stores that are not directories: what a store promises, held against two S3 servers; and trees that serve from one, with the
//! store there, away and damaged.

mod command;
mod contract;
mod tree;
