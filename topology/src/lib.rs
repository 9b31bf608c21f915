//! Who serves what: the static topology of a configuration file and the routing snapshot made from it; the policies of
//! the topology service, as values: how a version is rolled out.

pub mod config;
pub mod rollout;
pub mod routing;
