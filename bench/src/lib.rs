//! Benchmarks: every figure is a ratio of two arms in one run, with medians; CPU time beside wall time. The binaries in
//! `src/bin` say in their first lines what they measure.

pub mod asked;
pub mod judge;
pub mod processes;
pub mod served;
pub mod spent;
