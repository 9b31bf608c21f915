//! Who serves what: the static topology of a configuration file and the routing snapshot made from it; the policies of
//! the topology service, as values: how a version is rolled out; the service itself, and the link of a node to it.

pub mod config;
pub mod error;
pub mod fleet;
pub mod gates;
pub mod health;
pub mod link;
pub mod membership;
pub mod placement;
pub mod redirect;
pub mod rollout;
pub mod routing;
pub mod service;
pub mod span;
