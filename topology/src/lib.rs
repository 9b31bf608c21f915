//! Who serves what: the static topology of a configuration file and the routing snapshot made from it.

pub mod config;
pub mod routing;
