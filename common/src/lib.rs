//! Vocabulary and runtime seams of Canopy: what every crate says in the same words, and the few doors through which
//! the product reaches time, dice, sockets and the environment.

pub mod admin;
pub mod bounded;
pub mod clock;
pub mod collections;
pub mod config;
pub mod coverage;
pub mod deadline;
pub mod deps;
pub mod disk;
pub mod drain;
pub mod error;
pub mod handles;
pub mod ids;
pub mod limit;
pub mod memory;
pub mod net;
pub mod plain;
pub mod request;
pub mod ring;
pub mod rng;
pub mod rpc;
pub mod telemetry;
pub mod threads;
pub mod topk;
