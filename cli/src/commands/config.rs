//! `canopy config check|print|schema`.

use std::path::PathBuf;

use anyhow::Result;
use canopy_common::config::{Origin, Problem};
use clap::Subcommand;

use crate::{
    config::{Loaded, schema},
    say::say,
};

/// Which configuration to look at.
#[derive(clap::Args)]
pub struct Source {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Overrides one value
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What to do with it.
#[derive(Subcommand)]
pub enum Command {
    /// Check a configuration and the files of this machine that it names (tokens, keys), and list every problem
    #[command(after_help = "Example:  canopy config check -c canopy.toml")]
    Check(Source),
    /// Print every value and where it came from
    #[command(after_help = "Example:  canopy config print -c canopy.toml --set leaf.threads=8")]
    Print(Source),
    /// List every key with its default, meaning and bounds
    #[command(after_help = "Example:  canopy config schema")]
    Schema {
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs it.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Check(source) => check(&source),
        Command::Print(source) => print(&source),
        Command::Schema { json } => {
            describe(json);
            Ok(())
        }
    }
}

fn check(source: &Source) -> Result<()> {
    let mut loaded = Loaded::read(source.config.as_deref(), &source.set);
    if loaded.problems.is_empty() {
        let file = source.config.as_ref();
        let origin = file.map_or(Origin::Default, |path| Origin::File(path.display().to_string()));
        let gaps = loaded.gaps().into_iter().chain(loaded.files());
        loaded.problems = gaps.map(|(key, reason)| Problem { key, reason, origin: origin.clone() }).collect();
    }
    if source.json {
        let problems: Vec<_> = loaded
            .problems
            .iter()
            .map(|p| serde_json::json!({ "key": p.key, "reason": p.reason, "origin": p.origin.to_string() }))
            .collect();
        say!("{}", serde_json::json!({ "ok": problems.is_empty(), "problems": problems }));
    }
    let json = source.json;
    let config = loaded.checked()?;
    canopy_topology::routing::RoutingSnapshot::from_static(&config.topology)
        .map_err(|problems| anyhow::anyhow!("the topology is not valid:\n  {}", problems.join("\n  ")))?;
    if !json {
        say!("ok");
    }
    Ok(())
}

fn print(source: &Source) -> Result<()> {
    let loaded = Loaded::read(source.config.as_deref(), &source.set);
    let lines = loaded.print();
    if source.json {
        let values: Vec<_> = lines
            .iter()
            .map(|(key, value, origin)| {
                serde_json::json!({ "key": key, "value": value, "origin": origin.to_string() })
            })
            .collect();
        say!("{}", serde_json::Value::from(values));
    } else {
        let width =
            lines.iter().map(|(key, value, _)| key.len() + value.len() + 3).max().unwrap_or(0).min(72);
        for (key, value, origin) in &lines {
            say!("{:width$}  # {origin}", format!("{key} = {value}"));
        }
    }
    loaded.checked().map(drop)
}

fn describe(json: bool) {
    let lines = schema();
    if json {
        let keys: Vec<_> = lines
            .iter()
            .map(|(key, default, doc)| serde_json::json!({ "key": key, "default": default, "doc": doc }))
            .collect();
        say!("{}", serde_json::Value::from(keys));
        return;
    }
    for (key, default, doc) in lines {
        say!("{key}\n    {doc}\n    default: {default}");
    }
}
