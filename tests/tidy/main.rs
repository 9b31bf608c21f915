//! The architecture as tests: what the house asks of its code is checked here, because a rule without a test is a wish.

mod docs;
mod entropy;
mod layering;
mod size;
mod tree;
mod words;
