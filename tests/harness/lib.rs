//! The harness: what tests of several crates share.

pub mod model_corpus;
pub mod model_leaf;
pub mod model_tree;
