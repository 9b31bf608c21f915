//! `canopy topology`: runs the service; with a subcommand, shows what it knows and changes what should be.

use anyhow::Result;
use canopy_proto::topology::{DrainNode, command_request::Command as Asked, show_request::What};
use canopy_topology::config::Role;
use comfy_table::{Table, presets};
use serde_json::Value;

use super::roles::{self, RoleArgs};
use crate::{control::Service, say::say};

/// `canopy topology`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Example:  canopy topology -c canopy.toml        runs the service\n          canopy topology show -c canopy.toml   what it knows"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    role: Option<RoleArgs>,
}

/// What can be asked of a running service.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Nodes, corpora and rollouts
    Show(ShowArgs),
    /// The routing snapshot that nodes go by, as JSON
    Routing(ServiceArgs),
    /// Who did what: the last lines of the audit log
    Audit(AuditArgs),
    /// No more queries to a leaf, where another one has its shards
    Drain(NodeArgs),
    /// Queries to it again
    Undrain(NodeArgs),
}

/// The service.
#[derive(clap::Args)]
pub struct ServiceArgs {
    #[command(flatten)]
    service: Service,
}

/// `canopy topology show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    service: Service,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `canopy topology audit`.
#[derive(clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    service: Service,
    /// How many lines
    #[arg(long, default_value_t = 50)]
    last: u32,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// One node.
#[derive(clap::Args)]
pub struct NodeArgs {
    #[command(flatten)]
    service: Service,
    /// Its name
    node: String,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    match (args.command, args.role) {
        (Some(command), _) => ask(command).await,
        (None, Some(role)) => roles::one(role, Role::Topology).await,
        (None, None) => Err(anyhow::anyhow!("-c FILE runs the service; hint: `canopy topology --help`")),
    }
}

async fn ask(command: Command) -> Result<()> {
    match command {
        Command::Show(args) => {
            let status = args.service.client()?.show(What::Status, 0).await?;
            if args.json {
                say!("{status:#}");
            } else {
                print(&status);
            }
        }
        Command::Routing(args) => say!("{:#}", args.service.client()?.show(What::Routing, 0).await?),
        Command::Audit(args) => {
            let lines = args.service.client()?.show(What::Audit, args.last).await?;
            if args.json {
                say!("{lines:#}");
            } else {
                for line in lines.as_array().into_iter().flatten() {
                    let at = line["at_us"].as_i64().unwrap_or(0);
                    say!("{}  {}", crate::show::time(at), line["what"].as_str().unwrap_or("?"));
                }
            }
        }
        Command::Drain(args) => drain(args, false).await?,
        Command::Undrain(args) => drain(args, true).await?,
    }
    Ok(())
}

async fn drain(args: NodeArgs, undo: bool) -> Result<()> {
    let reply = args.service.client()?.command(Asked::Drain(DrainNode { node: args.node, undo })).await?;
    for line in reply.done {
        say!("{line}");
    }
    Ok(())
}

fn print(status: &Value) {
    say!("epoch {}", status["epoch"]);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["node", "role", "state", "address", "zone"]);
    for node in status["nodes"].as_array().into_iter().flatten() {
        table.add_row(
            ["node", "role", "state", "address", "zone"]
                .map(|key| node[key].as_str().unwrap_or("").to_owned()),
        );
    }
    for line in table.lines() {
        say!("{}", line.trim_end());
    }
    for (name, corpus) in status["corpora"].as_object().into_iter().flatten() {
        for line in super::rollout::lines(name, corpus) {
            say!("{line}");
        }
    }
}
