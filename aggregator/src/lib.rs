//! Plan, pick, gather, merge: the one scatter-gather engine, and the aggregator service around it. The root uses the
//! same engine.

pub mod endpoints;
pub mod gather;
pub mod merge;
