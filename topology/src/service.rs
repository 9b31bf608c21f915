//! The topology service: keeps what should be (placements, rollouts, drained nodes) and what nodes say of themselves, and
//! publishes routing snapshots.
//!
//! ```text
//! report, command, tick -> control (pure) -> stored -> published -> answered
//! ```
//!
//! The failure this prevents: an order that was acknowledged and is forgotten after a restart, or a snapshot that nodes went
//! by and nobody can reproduce. Rules: what changed is stored before anybody hears of it; a snapshot is a function of what
//! is stored; a service that starts again, or that follows another one, goes on where that was; queries never wait for any
//! of this.

pub mod control;
pub mod desired;
#[cfg(feature = "etcd")]
mod election;
mod found;
mod guard;
mod health;
mod hearing;
pub(crate) mod judging;
pub mod lead;
mod metrics;
mod moving;
mod placing;
mod presence;
mod replicas;
mod report;
mod rpc;
mod serve;
mod status;
pub mod store;
mod unplace;
mod updates;

pub use guard::{node_token, token};
pub use serve::{TopologyServe, serve};
