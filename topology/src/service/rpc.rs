//! The service over gRPC: each call is checked, done on the control's state, stored, published, answered, in this order.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use canopy_common::{
    error::Failure,
    ids::{NodeId, Version, valid_name},
    plain::plain_chars,
    rpc::status::to_status,
};
use canopy_proto::topology::{
    CommandReply, CommandRequest, JudgedQuery, JudgedReply, JudgedRequest, NodeReport, PlaceShards,
    ReleaseVersion, ReportReply, ResumeRollout, RoutingUpdate, ShowReply, ShowRequest, StartRollout,
    WatchRequest, command_request::Command, show_request::What, topology_server::Topology,
};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use tonic::{Request, Response, Status};

use super::{
    control::{Control, LEASE},
    hearing,
    lead::Leader,
    placing::PlaceAsked,
    report::Word,
    serve::Service,
};
use crate::{
    config::{MAX_SHARDS_PER_GROUP, Role},
    error::{Error, Result},
    redirect,
    rollout::{Event, Policy, dry_run},
};

/// Longest name of who wants something, characters.
const MOST_BY: usize = 120;
/// Largest policy that is read, bytes; its judged queries may be a mebibyte, more with what JSON escapes.
const MOST_POLICY: usize = 4 << 20;
/// Leaves that one command empties at most.
const MOST_REMOVED: usize = 1000;
/// Groups of a version that are told of at most.
const MOST_GROUPS: usize = 64;
/// Lines of the audit log given at most.
const MOST_AUDIT: usize = 10_000;

fn refuse(error: Error) -> Status {
    let mut leader = None;
    let leaderless = matches!(error, Error::Leaderless(_) | Error::Deposed);
    if let Error::Follows { node, address } = &error {
        leader = Some(Leader { node: node.clone(), address: address.clone() });
    }
    let mut status = to_status(&Failure::from(error));
    if let Some(leader) = leader {
        redirect::name(&mut status, &leader);
    } else if leaderless {
        redirect::name_nobody(&mut status);
    }
    status
}

/// Snapshots to come.
type Updates = Pin<Box<dyn Stream<Item = std::result::Result<RoutingUpdate, Status>> + Send>>;

#[tonic::async_trait]
impl Topology for Service {
    type WatchStream = Updates;

    async fn watch(&self, request: Request<WatchRequest>) -> std::result::Result<Response<Updates>, Status> {
        self.guard().node(&request.get_ref().cluster, request.metadata()).map_err(refuse)?;
        let WatchRequest { node, epoch, .. } = request.into_inner();
        tracing::debug!(node, epoch, "watches");
        self.lead().own().map_err(refuse)?;
        let (following, lead) = (self.routing().follow(), self.lead().clone());
        let made = self.updates().clone();
        let drain = self.drain().clone();
        let updates = stream::unfold((following, epoch, None), move |(mut following, has, last)| {
            let (drain, lead, made) = (drain.clone(), lead.clone(), made.clone());
            async move {
                loop {
                    let snapshot = tokio::select! {
                        biased;
                        () = drain.wait_started() => return None,
                        // The next leader's snapshots come from the next leader.
                        () = lead.lost() => return None,
                        snapshot = following.next() => snapshot,
                    };
                    // A watcher that has more than this service is told all the same: it decides.
                    if last.is_none() && snapshot.epoch.0 == has {
                        continue;
                    }
                    let update = made.update(last.as_deref(), &snapshot);
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
        self.guard().node(&request.get_ref().cluster, request.metadata()).map_err(refuse)?;
        self.lead().own().map_err(refuse)?;
        let word = Word::check(request.get_ref()).map_err(refuse)?;
        let epoch = hearing::hear(self, word).await.map_err(|failure| to_status(&failure))?;
        let NodeReport { node, role, .. } = request.get_ref();
        let judge = if role == Role::Root.as_str() {
            self.judge_tasks(node).await.map_err(refuse)?
        } else {
            Vec::new()
        };
        Ok(Response::new(ReportReply { lease_ms: LEASE.as_millis() as u64, epoch, judge }))
    }

    async fn judged(
        &self,
        request: Request<JudgedRequest>,
    ) -> std::result::Result<Response<JudgedReply>, Status> {
        self.guard().bears(request.metadata()).map_err(refuse)?;
        let JudgedRequest { corpus, gate } = request.into_inner();
        let read = self.change(move |control, _| control.judged_queries(&corpus, gate));
        let queries = read.await.map_err(refuse)?.0.into_iter();
        let queries = queries.map(|query| JudgedQuery { q: query.q, gains: query.gains });
        Ok(Response::new(JudgedReply { queries: queries.collect() }))
    }

    async fn command(
        &self,
        request: Request<CommandRequest>,
    ) -> std::result::Result<Response<CommandReply>, Status> {
        self.guard().command(&request.get_ref().cluster, request.metadata()).map_err(refuse)?;
        let CommandRequest { by, command, .. } = request.into_inner();
        let asked = check(&by, command).map_err(refuse)?;
        let (done, epoch) = self.change(move |control, _| asked.run(control)).await.map_err(refuse)?;
        let (done, document) = done;
        Ok(Response::new(CommandReply { epoch, done, document }))
    }

    async fn show(&self, request: Request<ShowRequest>) -> std::result::Result<Response<ShowReply>, Status> {
        self.guard().asker(&request.get_ref().cluster).map_err(refuse)?;
        let last = (request.get_ref().last as usize).min(MOST_AUDIT);
        self.lead().own().map_err(refuse)?;
        let document = match request.get_ref().what() {
            What::Status => self.status().to_string(),
            What::Replicas => self.replicas().to_string(),
            What::Routing => String::from_utf8(self.routing().now().to_json()).unwrap_or_default(),
            What::Audit => format!("[{}]", self.audit(last).await.map_err(refuse)?.join(",")),
        };
        Ok(Response::new(ShowReply { document }))
    }
}

/// A rollout that is wanted.
struct Starting {
    corpus: String,
    to: Version,
    supersede: bool,
    /// How many shards the version has, by group; empty: not known.
    shards: BTreeMap<String, u32>,
}

/// A command after its checks.
enum Asked {
    Event { corpus: String, event: Box<Event> },
    Start { start: Starting, policy: Box<Policy>, by: String },
    DryRun { start: Starting, policy: Box<Policy> },
    Drain { node: NodeId, undo: bool, by: String },
    Place { asked: PlaceAsked, dry_run: bool },
    Forget { node: NodeId, by: String },
    Unplace { corpus: String, by: String },
    Release { corpus: String, version: Version, removed: bool, by: String },
}

fn check(by: &str, command: Option<Command>) -> Result<Asked> {
    if by.is_empty() || by.chars().count() > MOST_BY {
        return Err(Error::invalid("by", format!("say who wants it, in 1 to {MOST_BY} characters")));
    }
    let plain = |text: &str| plain_chars(text).take(500).collect::<String>();
    let by = plain(by);
    let event = |corpus, event| Ok(Asked::Event { corpus, event: Box::new(event) });
    match command {
        None => Err(Error::invalid("command", "none is given")),
        Some(Command::Start(start)) => {
            let policy = policy(&start.policy, start.at_once)?;
            let policy = Box::new(policy);
            let StartRollout { corpus, version, supersede, dry_run, shards, .. } = start;
            check_shards(&shards)?;
            let start = Starting { corpus, to: Version(version), supersede, shards };
            Ok(if dry_run { Asked::DryRun { start, policy } } else { Asked::Start { start, policy, by } })
        }
        Some(Command::Pause(pause)) => event(pause.corpus, Event::Pause { by }),
        Some(Command::Resume(ResumeRollout { corpus, accept, at_once })) => {
            event(corpus, Event::Resume { by, accept, at_once })
        }
        Some(Command::Abort(abort)) if abort.waiting => event(abort.corpus, Event::Withdraw { by }),
        Some(Command::Abort(abort)) => event(abort.corpus, Event::Abort { by }),
        Some(Command::Rollback(back)) => {
            let to = (back.to > 0).then_some(Version(back.to));
            let from = (back.from > 0).then_some(Version(back.from));
            let reason = plain(&back.reason);
            let policy = policy("", back.at_once)?;
            event(back.corpus, Event::Rollback { to, from, by, reason, policy })
        }
        Some(Command::Place(place)) => place_asked(place, by),
        Some(Command::Unplace(unplace)) => Ok(Asked::Unplace { corpus: unplace.corpus, by }),
        Some(Command::Forget(forget)) => Ok(Asked::Forget { node: NodeId::from(forget.node.as_str()), by }),
        Some(Command::Release(ReleaseVersion { corpus, version, removed })) => {
            Ok(Asked::Release { corpus, version: Version(version), removed, by })
        }
        Some(Command::Drain(drain)) => {
            Ok(Asked::Drain { node: NodeId::from(drain.node.as_str()), undo: drain.undo, by })
        }
    }
}

fn place_asked(place: PlaceShards, by: String) -> Result<Asked> {
    let PlaceShards { corpus, group, replicas, shards, remove, plan, dry_run } = place;
    if remove.len() > MOST_REMOVED {
        let message =
            format!("{} leaves; the limit is {MOST_REMOVED}: empty some after the others", remove.len());
        return Err(Error::invalid("remove", message));
    }
    let remove = remove.iter().map(|node| NodeId::from(node.as_str())).collect();
    let asked = PlaceAsked { corpus, group, replicas, shards, remove, plan, by };
    Ok(Asked::Place { asked, dry_run })
}

/// Bounds what is said of a version's shards before any of it is looked at one by one.
fn check_shards(shards: &BTreeMap<String, u32>) -> Result<()> {
    let most = u64::from(MAX_SHARDS_PER_GROUP);
    if let Some((group, count)) =
        shards.iter().find(|(group, count)| !valid_name(group) || u64::from(**count) > most)
    {
        let group: String = group.chars().take(80).collect();
        return Err(Error::invalid(
            "shards",
            format!("{count} of group {group:?}; a group has a name and at most {most}"),
        ));
    }
    if shards.len() > MOST_GROUPS {
        return Err(Error::invalid("shards", format!("{} groups; the limit is {MOST_GROUPS}", shards.len())));
    }
    Ok(())
}

fn policy(text: &str, at_once: bool) -> Result<Policy> {
    if at_once {
        return Ok(Policy::default().first());
    }
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
            Self::Place { asked, dry_run } => {
                let (done, document) = control.place(&asked, dry_run)?;
                Ok((done, document.to_string()))
            }
            Self::Unplace { corpus, by } => Ok((control.unplace(&corpus, &by)?, String::new())),
            Self::Forget { node, by } => Ok((control.forget(&node, &by)?, String::new())),
            Self::Release { corpus, version, removed: true, .. } => {
                Ok((control.command(&corpus, Event::Released { version })?, String::new()))
            }
            Self::Release { corpus, version, removed: false, by } => {
                let (done, needed) = match control.command(&corpus, Event::Release { version, by }) {
                    Ok(done) => (done, None),
                    Err(Error::Refused(reason)) => (Vec::new(), Some(reason)),
                    Err(error) => return Err(error),
                };
                Ok((done, json!({ "released": needed.is_none(), "needed": needed }).to_string()))
            }
            Self::Drain { node, undo, by } => Ok((control.drain(&node, undo, &by)?, String::new())),
            Self::Start { start, policy, by } => {
                let Starting { corpus, to, supersede, shards } = start;
                let misplaced = dry_run::misplaced(&corpus, control.known(&corpus)?, to, &shards);
                if let Some(reason) =
                    misplaced.or_else(|| control.compared_with_nothing(&corpus, to, &policy))
                {
                    return Err(Error::Refused(reason));
                }
                let event = Event::Start { to, by, policy: *policy, supersede };
                Ok((control.command(&corpus, event)?, String::new()))
            }
            Self::DryRun { start, policy } => {
                let Starting { corpus, to, supersede, shards } = start;
                let state = control.known(&corpus)?;
                let load = dry_run::Load { shards, ..control.load_of(&corpus) };
                let mut plan = dry_run::dry_run(state, to, &policy, supersede, &load);
                plan.refused = plan.refused.or_else(|| control.compared_with_nothing(&corpus, to, &policy));
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

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn more_leaves_than_one_command_may_empty_are_refused_and_none_is_passed_over() {
        let place = |count| {
            let remove = vec!["leaf-1".to_owned(); count];
            check("ann", Some(Command::Place(PlaceShards { remove, ..PlaceShards::default() })))
        };
        assert!(place(MOST_REMOVED).is_ok());
        let error = place(MOST_REMOVED + 1).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("1001 leaves; the limit is 1000"), "{error}");
    }
}
