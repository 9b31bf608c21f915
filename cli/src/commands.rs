//! The command line: one file per command, each with its arguments, its help and its `run`.

pub mod config;
pub mod corpus;
pub mod explain_latency;
pub mod feed;
pub mod index;
pub mod lab;
pub mod load;
pub mod quickstart;
pub mod roles;
pub mod rollout;
pub mod search;
pub mod status;
pub mod topology;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The whole line.
#[derive(Parser)]
#[command(name = "canopy", version, about = "A web-search serving tree: build an index, serve it, query it.")]
#[command(after_help = "First steps:  canopy quickstart        then open the address it prints.\n\
              Help on one:  canopy index build --help")]
pub struct Line {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Subcommand)]
pub enum Command {
    /// Build the bundled sample corpus, start a whole tree in one process and query it
    Quickstart(quickstart::Args),
    /// Query a root
    Search(search::Args),
    /// Create and list corpora
    #[command(subcommand)]
    Corpus(corpus::Command),
    /// Build, list, inspect, verify and compare versions
    #[command(subcommand)]
    Index(index::Command),
    /// Run all roles of a configuration file in one process
    Up(roles::UpArgs),
    /// Run one root
    #[command(after_help = "Example:  canopy root -c canopy.toml --node root-1")]
    Root(roles::RoleArgs),
    /// Run one aggregator
    #[command(after_help = "Example:  canopy aggregator -c canopy.toml --node aggregator-1")]
    Aggregator(roles::RoleArgs),
    /// Run one leaf
    #[command(after_help = "Example:  canopy leaf -c canopy.toml --node leaf-1")]
    Leaf(roles::RoleArgs),
    /// Run one ingest: takes realtime updates, keeps the log that leaves follow
    #[command(after_help = "Example:  canopy ingest -c canopy.toml --node ingest-1")]
    Ingest(roles::RoleArgs),
    /// Change pages now: put, patch, delete, whole files, and what became of them
    #[command(subcommand)]
    Feed(feed::Command),
    /// Run the topology service, or ask one that runs
    Topology(topology::Args),
    /// Give a version to the queries, step by step
    #[command(subcommand)]
    Rollout(rollout::Command),
    /// Back to the version that served before, at once
    Rollback(rollout::RollbackArgs),
    /// One screen: every node, its shards and versions, its health
    Status(status::Args),
    /// The critical path of a slow query
    ExplainLatency(explain_latency::Args),
    /// Load a root and measure it, open loop by default
    Load(load::Args),
    /// Simulators: what the tail can be, and what it is
    #[command(subcommand)]
    Lab(lab::Command),
    /// Check, print and describe the configuration
    #[command(subcommand)]
    Config(config::Command),
}

/// Runs a command.
pub async fn run(line: Line) -> Result<()> {
    match line.command {
        Command::Quickstart(args) => quickstart::run(args).await,
        Command::Search(args) => search::run(args).await,
        Command::Corpus(command) => corpus::run(command).await,
        Command::Index(command) => Box::pin(index::run(command)).await,
        Command::Up(args) => roles::up(args).await,
        Command::Root(args) => roles::one(args, canopy_topology::config::Role::Root).await,
        Command::Aggregator(args) => roles::one(args, canopy_topology::config::Role::Aggregator).await,
        Command::Leaf(args) => roles::one(args, canopy_topology::config::Role::Leaf).await,
        Command::Ingest(args) => roles::one(args, canopy_topology::config::Role::Ingest).await,
        Command::Feed(command) => feed::run(command).await,
        Command::Topology(args) => topology::run(args).await,
        Command::Rollout(command) => rollout::run(command).await,
        Command::Rollback(args) => rollout::rollback(args).await,
        Command::Status(args) => status::run(args).await,
        Command::ExplainLatency(args) => explain_latency::run(args).await,
        Command::Load(args) => load::run(args).await,
        Command::Lab(command) => lab::run(command).await,
        Command::Config(command) => config::run(command),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_is_sound() {
        super::Line::command().debug_assert();
    }

    #[test]
    fn every_example_is_of_its_own_command() {
        let mut open = vec![(String::new(), super::Line::command())];
        let mut examples = 0;
        while let Some((path, command)) = open.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if help.contains("Example") {
                assert!(help.contains(&format!("canopy{path}")), "canopy{path}: {help}");
                examples += 1;
            }
            let below = command.get_subcommands().cloned();
            open.extend(below.map(|sub| (format!("{path} {}", sub.get_name()), sub)));
        }
        assert!(examples > 10, "{examples}");
    }
}
