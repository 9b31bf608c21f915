//! When to ask a second replica, and what that may cost: policies as plain values. The loop that sends is in
//! [`crate::gather`]; here are numbers in, decisions out.
//!
//! `mode` is what an operator writes; `latency` records how long attempts take, losers included; `delay` computes after
//! how long a hedge helps most within the budget; `class` keeps both per kind of query and knows when not to hedge at
//! all; `budget` is the fuse; `policy` holds them for one engine.

pub mod budget;
pub mod class;
pub mod config;
pub mod decision;
pub mod delay;
pub mod latency;
pub mod metrics;
pub mod mode;
pub mod policy;

pub use config::HedgeConfig;
pub use mode::HedgeMode;
pub use policy::Hedging;
