//! Placeholder for the tests of the model leaf.
