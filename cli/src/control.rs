//! Calls of the topology service from the command line: the service of a configuration file or of an address, who asks, and
//! errors with what to do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use canopy_common::{
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::{
    topology::{CommandReply, CommandRequest, ShowRequest, command_request::Command, show_request::What},
    topology_peer::TopologyPeer,
};
use serde_json::Value;

use crate::config::Loaded;

/// Longest that a call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the service is.
#[derive(clap::Args, Clone)]
pub struct Service {
    /// Configuration file that names the topology service
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the topology service, instead of a file
    #[arg(long = "service", value_name = "HOST:PORT")]
    address: Option<String>,
    /// Who asks, for the audit log; default: the user and machine
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// A service that can be called.
pub struct Client {
    peer: TopologyPeer<ClientChannel>,
    address: String,
    by: String,
}

impl Service {
    /// The configuration file.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Dials it. Errors: it is not named.
    pub fn client(&self) -> Result<Client> {
        let named = match (&self.address, &self.config) {
            (Some(address), _) => Some(address.clone()),
            (None, Some(file)) => {
                Loaded::read(Some(file), &[]).checked()?.topology.services().into_iter().next()
            }
            (None, None) => {
                return Err(anyhow!(
                    "no topology service is named; hint: -c canopy.toml, or --service host:port"
                ));
            }
        };
        let address = named.ok_or_else(|| {
            anyhow!("the file names no topology service; hint: a node of [topology] with role = \"topology\", see docs/operations.md")
        })?;
        let channel = rpc::channel(&RpcConfig::default(), &NetIo::tcp(), &address)
            .with_context(|| format!("{address} is not an address"))?;
        let peer = TopologyPeer::new(channel);
        let by = self.by.clone().unwrap_or_else(canopy_common::config::user_and_machine);
        Ok(Client { peer, address, by })
    }
}

impl Client {
    /// Has something done.
    pub async fn command(&self, command: Command) -> Result<CommandReply> {
        let request = CommandRequest { by: self.by.clone(), command: Some(command) };
        self.answered(tokio::time::timeout(PATIENCE, self.peer.command(request)).await)
    }

    /// What the service knows.
    pub async fn show(&self, what: What, last: u32) -> Result<Value> {
        let showing = self.peer.show(ShowRequest { what: what as i32, last });
        let document = self.answered(tokio::time::timeout(PATIENCE, showing).await)?.document;
        serde_json::from_str(&document).context("the service answered in a form that this build can't read")
    }

    fn answered<T>(
        &self,
        called: std::result::Result<std::result::Result<T, tonic::Status>, tokio::time::error::Elapsed>,
    ) -> Result<T> {
        match called {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(status)) if status.code() == tonic::Code::Unavailable => Err(anyhow!(
                "the topology service at {} does not answer: {}; queries go on without it",
                self.address,
                status.message()
            )),
            Ok(Err(status)) => Err(anyhow!("{}", status.message())),
            Err(_) => {
                Err(anyhow!("the topology service at {} did not answer within {PATIENCE:?}", self.address))
            }
        }
    }
}
