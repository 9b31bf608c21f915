//! The service over gRPC: each call is checked, done on the control's state, stored, published, answered, in this order.

use std::{pin::Pin, sync::Arc};

use canopy_common::{
    error::Failure,
    ids::{NodeId, Version},
    rpc::status::to_status,
};
use canopy_proto::topology::{
    CommandReply, CommandRequest, NodeReport, ReportReply, RoutingUpdate, ShowReply, ShowRequest,
    WatchRequest, command_request::Command, show_request::What, topology_server::Topology,
};
use futures::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status};

use super::{
    control::{Control, LEASE},
    report::Word,
    serve::Service,
};
use crate::{
    error::{Error, Result},
    rollout::{Event, Policy, dry_run},
    routing::{RoutingSnapshot, delta::RoutingDelta},
};

/// Longest name of who wants something, characters.
const MOST_BY: usize = 120;
/// Largest policy that is read, bytes.
const MOST_POLICY: usize = 64 << 10;
/// Lines of the audit log given at most.
const MOST_AUDIT: usize = 10_000;

fn refuse(error: Error) -> Status {
    to_status(&Failure::from(error))
}

/// What a watcher is sent: what changed since it was last sent something, else everything.
fn update(last: Option<&RoutingSnapshot>, next: &RoutingSnapshot) -> RoutingUpdate {
    let epoch = next.epoch.0;
    match last {
        Some(last) => {
            let document = RoutingDelta::between(last, next).to_json();
            RoutingUpdate { epoch, base: last.epoch.0, document }
        }
        None => RoutingUpdate { epoch, base: 0, document: next.to_json() },
    }
}

/// Snapshots to come.
type Updates = Pin<Box<dyn Stream<Item = std::result::Result<RoutingUpdate, Status>> + Send>>;

#[tonic::async_trait]
impl Topology for Service {
    type WatchStream = Updates;

    async fn watch(&self, request: Request<WatchRequest>) -> std::result::Result<Response<Updates>, Status> {
        let WatchRequest { node, epoch } = request.into_inner();
        tracing::debug!(node, epoch, "watches");
        let following = self.routing().follow();
        let drain = self.drain().clone();
        let updates = stream::unfold((following, epoch, None), move |(mut following, has, last)| {
            let drain = drain.clone();
            async move {
                loop {
                    let snapshot = tokio::select! {
                        biased;
                        () = drain.wait_started() => return None,
                        snapshot = following.next() => snapshot,
                    };
                    // A watcher that has more than this service is told all the same: it decides.
                    if last.is_none() && snapshot.epoch.0 == has {
                        continue;
                    }
                    let update = update(last.as_deref(), &snapshot);
                    return Some((Ok(update), (following, has, Some(snapshot))));
                }
            }
        });
        Ok(Response::new(updates.boxed()))
    }

    async fn report(
        &self,
        request: Request<NodeReport>,
    ) -> std::result::Result<Response<ReportReply>, Status> {
        let word = Word::check(request.get_ref()).map_err(refuse)?;
        let epoch = self
            .change(move |control, now| {
                control.hear(word, now);
                Ok(())
            })
            .await
            .map_err(refuse)?
            .1;
        Ok(Response::new(ReportReply { lease_ms: LEASE.as_millis() as u64, epoch }))
    }

    async fn command(
        &self,
        request: Request<CommandRequest>,
    ) -> std::result::Result<Response<CommandReply>, Status> {
        let CommandRequest { by, command } = request.into_inner();
        let asked = check(&by, command).map_err(refuse)?;
        let (done, epoch) = self.change(move |control, _| asked.run(control)).await.map_err(refuse)?;
        let (done, document) = done;
        Ok(Response::new(CommandReply { epoch, done, document }))
    }

    async fn show(&self, request: Request<ShowRequest>) -> std::result::Result<Response<ShowReply>, Status> {
        let last = (request.get_ref().last as usize).min(MOST_AUDIT);
        let document = match request.get_ref().what() {
            What::Status => self.status().to_string(),
            What::Routing => String::from_utf8(self.routing().now().to_json()).unwrap_or_default(),
            What::Audit => format!("[{}]", self.audit(last).await.map_err(refuse)?.join(",")),
        };
        Ok(Response::new(ShowReply { document }))
    }
}

/// A command after its checks.
enum Asked {
    Event { corpus: String, event: Box<Event> },
    DryRun { corpus: String, to: Version, policy: Box<Policy>, supersede: bool },
    Drain { node: NodeId, undo: bool, by: String },
}

fn check(by: &str, command: Option<Command>) -> Result<Asked> {
    if by.is_empty() || by.chars().count() > MOST_BY {
        return Err(Error::invalid("by", format!("say who wants it, in 1 to {MOST_BY} characters")));
    }
    let plain =
        |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect::<String>();
    let by = plain(by);
    let event = |corpus, event| Ok(Asked::Event { corpus, event: Box::new(event) });
    match command {
        None => Err(Error::invalid("command", "none is given")),
        Some(Command::Start(start)) => {
            let policy = policy(&start.policy)?;
            let (to, supersede) = (Version(start.version), start.supersede);
            if start.dry_run {
                return Ok(Asked::DryRun { corpus: start.corpus, to, policy: Box::new(policy), supersede });
            }
            event(start.corpus, Event::Start { to, by, policy, supersede })
        }
        Some(Command::Pause(pause)) => event(pause.corpus, Event::Pause { by }),
        Some(Command::Resume(resume)) => event(resume.corpus, Event::Resume { by, accept: resume.accept }),
        Some(Command::Abort(abort)) => event(abort.corpus, Event::Abort { by }),
        Some(Command::Rollback(back)) => {
            let to = (back.to > 0).then_some(Version(back.to));
            let reason = plain(&back.reason);
            event(back.corpus, Event::Rollback { to, by, reason, policy: Policy::default() })
        }
        Some(Command::Drain(drain)) => {
            Ok(Asked::Drain { node: NodeId::from(drain.node.as_str()), undo: drain.undo, by })
        }
    }
}

fn policy(text: &str) -> Result<Policy> {
    if text.len() > MOST_POLICY {
        let message = format!("{} bytes; the limit is {MOST_POLICY}", text.len());
        return Err(Error::invalid("policy", message));
    }
    if text.is_empty() {
        return Ok(Policy::default());
    }
    serde_json::from_str(text).map_err(|error| Error::invalid("policy", error.to_string()))
}

impl Asked {
    /// What was done, and the document of a dry run.
    fn run(self, control: &mut Control) -> Result<(Vec<String>, String)> {
        match self {
            Self::Event { corpus, event } => Ok((control.command(&corpus, *event)?, String::new())),
            Self::Drain { node, undo, by } => Ok((control.drain(&node, undo, &by)?, String::new())),
            Self::DryRun { corpus, to, policy, supersede } => {
                let state = control.known(&corpus)?;
                let plan = dry_run::dry_run(state, to, &policy, supersede, &dry_run::Load::default());
                Ok((Vec::new(), serde_json::to_string(&plan).unwrap_or_default()))
            }
        }
    }
}

/// The service as tonic wants it.
pub fn service(
    service: Arc<Service>,
    max_message: usize,
) -> canopy_proto::topology::topology_server::TopologyServer<Service> {
    canopy_proto::topology::topology_server::TopologyServer::from_arc(service)
        .max_decoding_message_size(max_message)
        .max_encoding_message_size(max_message.max(64 << 20))
}
