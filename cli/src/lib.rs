//! The `canopy` binary as a library: configuration of all roles, starting a tree, and the commands.

pub mod commands;
pub mod config;
pub mod control;
pub mod failure;
pub mod http;
pub mod news;
pub mod queries;
pub mod reload;
pub mod say;
pub mod show;
pub mod store;
pub mod tree;
