//! Calls of the topology service from the command line: the services of a configuration file or of an address, who asks, and
//! errors with what to do.
//!
//! A file says which tree is meant, also where an address says whom to ask: its cluster and its token go along, so that a
//! command for one tree is not carried out on another. Of several services the one that leads is asked: one that does not lead
//! names it, one that can't be reached is passed over, and while those that answer know of no leader (one is being found, which
//! takes seconds) they are asked again. Rule: a command that may have been taken is not sent a second time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use canopy_common::{
    config::Secret,
    net::NetIo,
    rpc::{
        self, ClientChannel, RpcConfig,
        status::{DETAILS, from_status},
    },
};
use canopy_proto::{
    topology::{CommandReply, CommandRequest, ShowRequest, command_request::Command, show_request::What},
    topology_peer::{Call, TopologyPeer},
};
use canopy_topology::{
    config::{Role, TopologyConfig, dialable},
    redirect,
};
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::config::Loaded;

/// Longest that a call may take, and that a leader is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before the services are asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// Where the service is.
#[derive(clap::Args, Clone)]
pub struct Service {
    /// Configuration file that names the topology service
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the topology service, instead of a file; of several, separated by commas, the one that leads is found
    #[arg(long = "service", value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    addresses: Vec<String>,
    /// Who asks, for the audit log; default: the user and machine
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// File with the service's token, where it wants one; default: that of the configuration file
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
}

/// An address as it is typed. Errors: how it is written.
pub fn address(text: &str) -> Result<String, String> {
    if dialable(text) {
        return Ok(text.to_owned());
    }
    Err("host:port is expected, with a port of 1 to 65535, such as 127.0.0.1:7400".to_owned())
}

/// Services that can be called.
pub struct Client {
    services: Vec<Peer>,
    by: String,
    cluster: String,
    token: Option<Secret>,
}

/// One of them.
#[derive(Clone)]
struct Peer {
    node: String,
    address: String,
    calls: TopologyPeer<ClientChannel>,
}

impl Peer {
    fn dial(node: &str, address: &str) -> Result<Self> {
        let channel = rpc::channel(&RpcConfig::default(), &NetIo::tcp(), address)
            .with_context(|| format!("{address} is not an address"))?;
        Ok(Self { node: node.to_owned(), address: address.to_owned(), calls: TopologyPeer::new(channel) })
    }
}

impl Service {
    /// The services of a configuration file.
    pub fn of(config: Option<&Path>) -> Self {
        Self { config: config.map(Path::to_path_buf), addresses: Vec::new(), by: None, token_file: None }
    }

    /// The configuration file.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Dials it. Errors: it is not named.
    pub fn client(&self) -> Result<Client> {
        // Also where an address says whom to ask: the file's tree is the one that is meant, with its cluster and its token.
        let mut known = match &self.config {
            Some(file) => Loaded::read(Some(file), &[]).checked()?.topology,
            None => TopologyConfig::default(),
        };
        let mut services = Vec::new();
        for address in &self.addresses {
            services.push(Peer::dial(address, address)?);
        }
        if services.is_empty() {
            for node in known.nodes.iter().filter(|node| node.role == Role::Topology) {
                services.push(Peer::dial(&node.id, &node.address)?);
            }
        }
        if services.is_empty() {
            return Err(match &self.config {
                Some(_) => anyhow!(
                    "the file names no topology service; hint: a node of [topology] with role = \"topology\", see docs/operations.md"
                ),
                None => anyhow!("no topology service is named; hint: -c canopy.toml, or --service host:port"),
            });
        }
        let by = self.by.clone().unwrap_or_else(canopy_common::config::user_and_machine);
        known.token_file = self.token_file.clone().unwrap_or(known.token_file);
        let token = canopy_topology::service::token(&known)?;
        Ok(Client { services, by, cluster: known.cluster, token })
    }
}

/// How a call went that was not answered.
enum Failed {
    /// It may have been taken, or was refused: the end of it.
    Told(anyhow::Error),
    /// This service did nothing; whether it lives, and what it said.
    Elsewhere { lives: bool, reason: String },
}

impl Client {
    /// Has something done.
    pub async fn command(&self, command: Command) -> Result<CommandReply> {
        let request =
            CommandRequest { by: self.by.clone(), command: Some(command), cluster: self.cluster.clone() };
        let bearer = |token: &Secret| format!("Bearer {}", token.reveal()).parse().ok();
        let authorization = self.token.as_ref().and_then(bearer);
        self.ask(|peer| peer.command(request.clone(), authorization.clone())).await
    }

    /// What the service knows.
    pub async fn show(&self, what: What, last: u32) -> Result<Value> {
        let request = ShowRequest { what: what as i32, last, cluster: self.cluster.clone() };
        let document = self.ask(|peer| peer.show(request.clone())).await?.document;
        serde_json::from_str(&document).context("the service answered in a form that this build can't read")
    }

    /// Asks the one that leads.
    async fn ask<T>(&self, call: impl Fn(&TopologyPeer<ClientChannel>) -> Call<T>) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (mut lives, mut reasons) = (false, Vec::new());
            for service in &self.services {
                match self.ask_one(service, &call).await {
                    Ok(reply) => return Ok(reply),
                    Err(Failed::Told(error)) => return Err(error),
                    Err(Failed::Elsewhere { lives: one_lives, reason }) => {
                        lives |= one_lives;
                        reasons.push(format!("{}: {reason}", service.address));
                    }
                }
            }
            if !lives || Instant::now() >= end {
                let does = if reasons.len() == 1 {
                    "the topology service does not answer"
                } else {
                    "no topology service answers"
                };
                return Err(anyhow!("{does}; queries go on without it; {}", reasons.join("; ")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks one, and the leader that it names.
    async fn ask_one<T>(
        &self,
        service: &Peer,
        call: &impl Fn(&TopologyPeer<ClientChannel>) -> Call<T>,
    ) -> Result<T, Failed> {
        let status = match answered(service, call).await? {
            Ok(reply) => return Ok(reply),
            Err(status) => status,
        };
        let Some(leader) = redirect::leader(&status) else {
            let lives = redirect::leaderless(&status);
            return Err(Failed::Elsewhere { lives, reason: from_status(&status).message });
        };
        let known = self.services.iter().find(|known| known.node == leader.node).cloned();
        let leading =
            known.map_or_else(|| Peer::dial(&leader.node, &leader.address), Ok).map_err(Failed::Told)?;
        answered(&leading, call).await?.map_err(|status| Failed::Elsewhere {
            lives: true,
            reason: format!("{}, which leads: {}", leading.address, status.message()),
        })
    }
}

/// What one said. The end of it: it was refused, or may have been taken.
async fn answered<T>(
    service: &Peer,
    call: &impl Fn(&TopologyPeer<ClientChannel>) -> Call<T>,
) -> Result<Result<T, Status>, Failed> {
    match tokio::time::timeout(PATIENCE, call(&service.calls)).await {
        // Any other gRPC server says so without a word.
        Ok(Err(status)) if status.code() == Code::Unimplemented && status.message().is_empty() => {
            let address = &service.address;
            Err(Failed::Told(anyhow!(
                "{address} is no topology service; hint: name its gRPC address, not that of another node"
            )))
        }
        Ok(Err(status)) if told(&status) => Err(Failed::Told(anyhow!("{}", status.message()))),
        Ok(answer) => Ok(answer),
        Err(_) => {
            let address = &service.address;
            Err(Failed::Told(anyhow!("the topology service at {address} did not answer within {PATIENCE:?}")))
        }
    }
}

/// Whether another service would say no more than this one.
fn told(status: &Status) -> bool {
    if redirect::leader(status).is_some() || redirect::leaderless(status) {
        return false;
    }
    // Only a service gives details; without them it is the connection that could not be made.
    status.code() != Code::Unavailable || status.metadata().contains_key(DETAILS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_says_which_tree_is_meant_also_where_an_address_says_whom_to_ask() {
        let directory = tempfile::tempdir().unwrap();
        let [file, token] = ["c.toml", "token"].map(|name| directory.path().join(name));
        std::fs::write(&token, "0123456789abcdef").unwrap();
        let nodes = "nodes = [{ id = 't', role = 'topology', address = '127.0.0.1:1' }]";
        let text = format!("[topology]\ncluster = 'example'\ntoken_file = '{}'\n{nodes}", token.display());
        std::fs::write(&file, text).unwrap();
        let of = |addresses: &[&str]| Service {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            ..Service::of(Some(&file))
        };
        for (addresses, asked) in [(&[][..], "127.0.0.1:1"), (&["127.0.0.1:2"][..], "127.0.0.1:2")] {
            let client = of(addresses).client().unwrap();
            assert_eq!((client.cluster.as_str(), client.services.len()), ("example", 1));
            assert_eq!(client.services[0].address, asked);
            assert_eq!(client.token.as_ref().map(Secret::reveal), Some("0123456789abcdef"));
        }
        for mistyped in ["localhost", "localhost:", "localhost:99999", "http://localhost:7400", ""] {
            let told = address(mistyped).unwrap_err();
            assert!(told.contains("host:port is expected"), "{mistyped}: {told}");
        }
        assert_eq!(address("[::1]:7400").as_deref(), Ok("[::1]:7400"));
        let alone = Service { config: None, ..of(&["127.0.0.1:2"]) };
        assert_eq!(alone.client().unwrap().cluster, "");
        let nobody = Service::of(None).client().err().unwrap().to_string();
        assert!(nobody.contains("no topology service is named"), "{nobody}");
    }
}
