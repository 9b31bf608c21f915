//! Labs: the production gather engine, unchanged, on model leaves in this process, under a clock that moves only when
//! nothing is left to do. Minutes of model time take seconds, no socket is opened, and the same seed gives the same
//! figures.
//!
//! A workload says what is asked of the tree, a policy what the engine does about the tail; an arm is one of each. What
//! has an exact value is printed beside the measured one.

pub mod arm;
pub mod chart;
pub mod draw;
pub mod error;
pub mod exact;
pub mod fleet;
pub mod jobs;
pub mod latency;
pub mod leaf;
mod normal;
pub mod overload;
pub mod policy;
pub mod power;
pub mod preset;
pub mod rollout;
pub mod safety;
pub mod scale;
pub mod statistics;
pub mod tail;
pub mod workload;
mod world;

pub use error::{Error, Result};
