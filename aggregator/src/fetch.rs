//! Phase two: contents of the page's hits, from the nodes that answered phase one.
//!
//! Each hit goes first to the child that settled its shard, or to the leaf that gave its address: only there do address
//! and lease mean anything. When that node fails, is late, or lost the document, the hit is asked by key of another
//! holder of the same shard, twice at most. A try that is not the last gets half of the time that is left, so that a
//! node which hangs leaves time for another. What stays empty says why; a fetch never fails as a whole but for a caller
//! that left.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_common::{
    deadline::Deadline,
    error::{ErrorClass, Failure},
    ids::{AttemptId, NodeId, ShardId, Version},
    request::RequestContext,
};
use canopy_proto::v1;
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    gather::{Gatherer, dispatch::ending_of, ledger::shortened},
    load::{Ending, InFlight},
    pick::{Choosing, Purpose},
    plan::{Holders, Through},
};

/// Nodes asked for one hit, at most.
const TRIES: usize = 3;
/// Kept back from the deadline to hand the page on.
const RESERVE: Duration = Duration::from_millis(2);

/// Items asked of one node together, and what came of it.
type Done = (NodeId, Vec<usize>, Result<v1::FetchReply, Failure>);

/// One fetch at one node.
struct Fetching<'a> {
    engine: &'a Gatherer,
    context: &'a RequestContext,
    routing: &'a RoutingSnapshot,
    holders: Option<Holders<'a>>,
    request: v1::FetchRequest,
    items: Vec<Item>,
    finish_at: Instant,
    calls: FuturesUnordered<BoxFuture<'a, Done>>,
}

/// One hit.
struct Item {
    wanted: v1::FetchItem,
    shard: Option<ShardId>,
    child: Option<NodeId>,
    tried: Vec<NodeId>,
    document: v1::FetchedDocument,
}

impl Gatherer {
    /// Fetches the page's hits. `children` has, per item, the child that settled its shard, where known (an empty slice:
    /// nowhere). The reply has one entry per item; those that stayed empty say why.
    pub async fn fetch(
        &self,
        context: &RequestContext,
        routing: &Arc<RoutingSnapshot>,
        mut request: v1::FetchRequest,
        children: &[Option<NodeId>],
    ) -> Result<v1::FetchReply, Failure> {
        let item = |(at, wanted): (usize, v1::FetchItem)| Item {
            shard: wanted.shard.parse().ok(),
            child: children.get(at).cloned().flatten(),
            tried: Vec::new(),
            document: v1::FetchedDocument::default(),
            wanted,
        };
        let items: Vec<Item> = std::mem::take(&mut request.items).into_iter().enumerate().map(item).collect();
        let left = context.deadline.remaining();
        let (version, beside) = (Version(request.version), Version(request.beside));
        let holders = self.together.holders(routing, &request.corpus, version, beside);
        let mut fetching = Fetching {
            engine: self,
            context,
            routing,
            holders,
            request,
            items,
            finish_at: context.deadline.instant() - RESERVE.min(left / 10),
            calls: FuturesUnordered::new(),
        };
        fetching.run().await?;
        let documents: Vec<_> = fetching.items.into_iter().map(|item| item.document).collect();
        self.metrics.fetch_wanted.inc_by(documents.len() as u64);
        self.metrics.fetch_filled.inc_by(documents.iter().filter(|document| document.filled).count() as u64);
        let call =
            v1::CallReport { node: self.node.to_string(), epoch: routing.epoch.0, ..Default::default() };
        Ok(v1::FetchReply { documents, call: Some(call) })
    }
}

impl Fetching<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let all = (0..self.items.len()).collect();
        self.ask(all);
        let timer = sleep_until(self.finish_at);
        tokio::pin!(timer);
        while !self.calls.is_empty() {
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {
                    return Err(Failure::new(ErrorClass::Cancelled, "the caller left"));
                }
                Some((node, items, result)) = self.calls.next() => {
                    let again = self.take(&node, items, result);
                    self.ask(again);
                }
                () = &mut timer => break,
            }
        }
        for item in self.items.iter_mut().filter(|item| !item.document.filled) {
            if item.document.reason.is_empty() {
                let asked = item.tried.last().map_or_else(String::new, |node| format!("{node}: "));
                item.document.reason = format!("{asked}no answer before the deadline");
            }
        }
        Ok(())
    }

    /// Asks for items, grouped by the node that is next for each.
    fn ask(&mut self, items: Vec<usize>) {
        let mut groups: BTreeMap<(NodeId, bool), Vec<usize>> = BTreeMap::new();
        for at in items {
            match self.next_node(&self.items[at]) {
                Some(node) => {
                    self.items[at].tried.push(node.clone());
                    let last = !self.any_left(&self.items[at]);
                    groups.entry((node, last)).or_default().push(at);
                }
                None if self.items[at].tried.is_empty() => {
                    let shard = &self.items[at].wanted.shard;
                    self.items[at].document.reason = format!("no leaf holds {shard}");
                }
                None => {}
            }
        }
        for ((node, last), items) in groups {
            self.send(node, last, items);
        }
    }

    /// The node to ask for an item now: its child, its leaf, then another holder of the shard.
    fn next_node(&self, item: &Item) -> Option<NodeId> {
        if item.tried.len() >= TRIES {
            return None;
        }
        let known = |node: &&NodeId| !item.tried.contains(node) && self.engine.endpoints.get(node).is_some();
        if let Some(child) = item.child.as_ref().filter(known) {
            return Some(child.clone());
        }
        if !item.wanted.node.is_empty() {
            let leaf = NodeId::from(item.wanted.node.as_str());
            if known(&&leaf) {
                return Some(leaf);
            }
        }
        let shard = item.shard.as_ref()?;
        let holders = self.holders(shard);
        let left: Vec<NodeId> = holders.iter().filter(known).cloned().collect();
        let choosing = Choosing {
            routing: self.routing,
            candidates: &left,
            through: Through::Leaf,
            tried: &[],
            key: None,
            // Fetches are no probes: the next search may send one.
            purpose: Purpose::Needed,
        };
        let choice = self.engine.picker.choose(&self.engine.loads, &choosing)?;
        left.get(usize::from(choice.at)).cloned()
    }

    fn holders(&self, shard: &ShardId) -> &[NodeId] {
        self.holders.as_ref().and_then(|holders| holders.get(shard)).map_or(&[], |leaves| leaves)
    }

    /// Whether some node is left to ask for an item.
    fn any_left(&self, item: &Item) -> bool {
        let known = |node: &NodeId| !item.tried.contains(node) && self.engine.endpoints.get(node).is_some();
        let holders = item.shard.iter().flat_map(|shard| self.holders(shard));
        item.tried.len() < TRIES
            && (item.child.as_ref().is_some_and(known)
                || (!item.wanted.node.is_empty() && known(&NodeId::from(item.wanted.node.as_str())))
                || holders.into_iter().any(known))
    }

    fn send(&mut self, node: NodeId, last: bool, items: Vec<usize>) {
        let Some(peer) = self.engine.endpoints.get(&node) else { return };
        let now = Instant::now();
        let left = self.finish_at.saturating_duration_since(now);
        let until = now + if last { left } else { left / 2 };
        let wanted = items.iter().map(|at| self.wanted(&node, *at)).collect();
        let request = v1::FetchRequest {
            items: wanted,
            remaining_us: (until - now).as_micros() as u64,
            ..self.request.clone()
        };
        let flight = InFlight::begin(self.engine.loads.of(&node));
        let context = self.context.child(AttemptId(self.context.attempt.0), Deadline::at(until));
        let stop = context.cancel.clone().drop_guard();
        let call = async move {
            let reply = timeout_at(until, peer.fetch(context, request)).await;
            let late =
                || Err(Failure::new(ErrorClass::DeadlineExceeded, "no answer in its share of the time"));
            let reply = reply.unwrap_or_else(|_| late());
            let ending = match &reply {
                Ok(_) => Ending::Reached,
                Err(failure) => ending_of(failure.class, false, failure.pushback_ms),
            };
            flight.ended(ending, until - now);
            drop(stop);
            (node, items, reply)
        };
        self.calls.push(call.boxed());
    }

    /// The item as `node` is asked for it: by key where the address is another leaf's.
    fn wanted(&self, node: &NodeId, at: usize) -> v1::FetchItem {
        let wanted = self.items[at].wanted.clone();
        let leaf = self.routing.nodes.get(node).is_none_or(|known| known.role == Role::Leaf);
        if leaf && wanted.node != *node.0 {
            return v1::FetchItem { address: 0, lease: 0, node: String::new(), ..wanted };
        }
        wanted
    }

    /// Takes what a node sent; the items to ask of another.
    fn take(
        &mut self,
        node: &NodeId,
        items: Vec<usize>,
        result: Result<v1::FetchReply, Failure>,
    ) -> Vec<usize> {
        let result = result.and_then(|reply| {
            if reply.documents.len() == items.len() {
                return Ok(reply.documents);
            }
            let why = format!("{} documents for {} items", reply.documents.len(), items.len());
            Err(Failure::new(ErrorClass::Internal, why))
        });
        match result {
            Ok(documents) => {
                let mut again = Vec::new();
                for (at, document) in items.into_iter().zip(documents) {
                    if document.filled {
                        self.items[at].document = document;
                    } else {
                        self.missed(at, &format!("{node}: {}", document.reason));
                        again.push(at);
                    }
                }
                again
            }
            Err(failure) => {
                let why = format!("{node}: {failure}");
                for at in &items {
                    self.missed(*at, &why);
                }
                let hopeless = matches!(
                    failure.class,
                    ErrorClass::InvalidArgument | ErrorClass::Unauthenticated | ErrorClass::PermissionDenied
                );
                if hopeless { Vec::new() } else { items }
            }
        }
    }

    fn missed(&mut self, at: usize, why: &str) {
        let reason = &mut self.items[at].document.reason;
        let all = if reason.is_empty() { why.to_owned() } else { format!("{reason}; then {why}") };
        *reason = shortened(all);
    }
}
