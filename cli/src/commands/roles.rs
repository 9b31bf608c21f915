//! `canopy up` runs all roles of a file in one process; `canopy root|aggregator|leaf` runs one.
//!
//! SIGTERM, the supervisor's, is announced first: readiness says no and everything is answered for the lame-duck time, so
//! that balancers move on before connections are refused. Ctrl-C is not: whoever pressed it waits. Both then end what
//! runs; a second signal ends the process at once. SIGHUP reads the configuration again (see `reload`).

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use canopy_common::telemetry;
use canopy_topology::config::{NodeConfig, Role};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    config::Loaded,
    reload::{Reload, Source},
    store,
    tree::{Surroundings, Tree},
};

/// Signals within this time are one.
const ONE_SIGNAL: Duration = Duration::from_millis(250);

/// `canopy up`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy up -c canopy.toml")]
pub struct UpArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Overrides one value
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

/// One role.
#[derive(clap::Args)]
pub struct RoleArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Which node of [topology] this process is; may be left out when only one has the role
    #[arg(long)]
    node: Option<String>,
    /// Overrides one value
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

/// Runs all nodes of the file.
pub async fn up(args: UpArgs) -> Result<()> {
    let source = Source { file: args.config, set: args.set };
    let loaded = source.read().sound()?;
    if loaded.config.topology.nodes.is_empty() {
        return Err(anyhow!("[topology] names no nodes; hint: see docs/operations.md for an example"));
    }
    serve(&source, loaded, "canopy", |_| true).await
}

/// Runs one node.
pub async fn one(args: RoleArgs, role: Role) -> Result<()> {
    let source = Source { file: args.config, set: args.set };
    let loaded = source.read().sound()?;
    let nodes = &loaded.config.topology.nodes;
    let ids: Vec<&str> = nodes.iter().filter(|node| node.role == role).map(|node| node.id.as_str()).collect();
    let wanted = match (&args.node, ids.as_slice()) {
        (Some(node), ids) if ids.contains(&node.as_str()) => node.clone(),
        (None, [only]) => (*only).to_owned(),
        (Some(node), _) => {
            return Err(anyhow!(
                "no {} {node:?} in [topology]; hint: it names {}",
                name(role),
                ids.join(", ")
            ));
        }
        (None, ids) => {
            return Err(anyhow!(
                "which {} is this? {} are configured; hint: --node {}",
                name(role),
                ids.len(),
                ids.first().unwrap_or(&"ID")
            ));
        }
    };
    serve(&source, loaded, &wanted, |node| node.id == wanted).await
}

fn name(role: Role) -> String {
    format!("{role:?}").to_lowercase()
}

async fn serve(
    source: &Source,
    loaded: Loaded,
    service: &str,
    here: impl Fn(&NodeConfig) -> bool,
) -> Result<()> {
    let config = loaded.config.clone();
    let mut reload = Reload::listen(source, loaded)?;
    let _traces = telemetry::init(&config.telemetry, service).map_err(|e| anyhow!(e))?;
    // The topology service reads no version: its machine may have no store, or none yet.
    let needs_store = config.topology.nodes.iter().any(|node| here(node) && node.role.reads_versions());
    let store = if needs_store { Some(store::open(&config.store)?) } else { None };
    let mut signals = Signals::listen()?;
    let mut tree = Tree::start(&config, store.as_ref(), &Surroundings::real()?, &here).await?;
    for node in tree.topology.nodes.iter().filter(|node| here(node)) {
        tracing::info!(node = %node.id, grpc = %node.address, http = %node.admin, "started");
        if node.role == Role::Root && !node.admin.is_empty() {
            tracing::info!("the search page is http://{}/", node.admin);
        }
    }
    let first = loop {
        tokio::select! {
            biased;
            ended = tree.ended() => return ended,
            signal = signals.next() => break signal,
            policies = reload.next() => tree.reload(policies),
        }
    };
    let lame_duck = first.lame_duck(config.rpc.lame_duck.0);
    tracing::info!(signal = first.name(), ?lame_duck, "leaving: not ready from now on");
    tokio::select! {
        biased;
        stopped = tree.stop(lame_duck) => stopped,
        second = again() => Err(anyhow!("stopped by a second {}", second?.name())),
    }
}

/// Waits for a second signal. `timeout`, terminals and supervisors often send one signal twice, to the process and to
/// its group: what comes at once is still the first.
async fn again() -> Result<Asked> {
    tokio::time::sleep(ONE_SIGNAL).await;
    Ok(Signals::listen()?.next().await)
}

/// How the process was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// By a supervisor: SIGTERM.
    Terminate,
    /// By a person at a terminal: SIGINT.
    Interrupt,
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// A person who presses Ctrl-C waits, and no balancer looks: nothing is announced then.
    fn lame_duck(self, configured: Duration) -> Duration {
        match self {
            Self::Terminate => configured,
            Self::Interrupt => Duration::ZERO,
        }
    }
}

/// SIGTERM and SIGINT, from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over.
    pub fn listen() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
        }
    }
}
