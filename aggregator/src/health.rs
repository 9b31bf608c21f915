//! Whether this aggregator would answer: it asks its leaves an empty search and is ready when one of them answers. It
//! needs no particular leaf, because it serves what is there and says what is missing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    admin::Health,
    deadline::Deadline,
    ids::{AttemptId, NodeId},
    request::RequestContext,
    rng::Dice,
};
use canopy_proto::v1;
use canopy_topology::{
    config::Role,
    routing::{CorpusRouting, Routing},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};

use crate::{gather::Gatherer, search::AggregatorNode};

/// Longest a probe may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Leaves asked at once.
const AT_ONCE: usize = 8;

/// An aggregator's health.
pub struct AggregatorHealth {
    node: Arc<AggregatorNode>,
    engine: Arc<Gatherer>,
    routing: Routing,
    dice: Dice,
    started: AtomicBool,
}

impl AggregatorHealth {
    /// Health of `node`.
    pub fn new(node: Arc<AggregatorNode>, engine: Arc<Gatherer>, routing: Routing, dice: &Dice) -> Self {
        Self { node, engine, routing, dice: dice.stream("probe"), started: AtomicBool::new(false) }
    }

    /// It listens.
    pub fn begin(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    async fn probe(&self, leaf: &NodeId) -> Result<(), String> {
        let Some(peer) = self.engine.endpoints.get(leaf) else { return Err(format!("{leaf}: not known")) };
        let query = self.dice.query_id();
        let context = RequestContext::new(query, AttemptId(0), Deadline::after(PATIENCE));
        let _stop_when_dropped = context.cancel.clone().drop_guard();
        let nothing = v1::query::Node::None(v1::MatchNone {});
        let request = v1::SearchRequest {
            query_id: query.0.to_vec().into(),
            statistics: Some(v1::Statistics::default()),
            query: Some(v1::Query { node: Some(nothing) }),
            level: 1,
            ..Default::default()
        };
        let mut replies = peer.search(context, request);
        while let Some(reply) = replies.next().await {
            reply.map_err(|failure| format!("{leaf}: {failure}"))?;
        }
        Ok(())
    }

    async fn any_leaf(&self) -> Result<(), String> {
        let routing = self.routing.now();
        let mut leaves = routing.with_role(Role::Leaf).map(|(leaf, _)| leaf);
        let mut probes: FuturesUnordered<_> =
            leaves.by_ref().take(AT_ONCE).map(|leaf| self.probe(leaf)).collect();
        let mut last = Err("the topology has no leaf".to_owned());
        while let Some(result) = probes.next().await {
            if result.is_ok() {
                return result;
            }
            last = result;
            if let Some(leaf) = leaves.next() {
                probes.push(self.probe(leaf));
            }
        }
        last
    }
}

impl Health for AggregatorHealth {
    fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            if !self.started() {
                return Err("not started yet".to_owned());
            }
            let probed = tokio::time::timeout(PATIENCE, self.any_leaf()).await;
            probed.unwrap_or_else(|_| Err("no leaf answered an empty search in time".to_owned()))
        }
        .boxed()
    }

    fn status(&self) -> serde_json::Value {
        let routing = self.routing.now();
        let shards = |corpus: &CorpusRouting| {
            let newest = corpus.versions.values().next_back().map_or(&corpus.shards, |version| &version.held);
            newest.len().into()
        };
        let corpora: serde_json::Map<String, serde_json::Value> =
            routing.corpora.iter().map(|(name, corpus)| (name.clone(), shards(corpus))).collect();
        serde_json::json!({
            "role": "aggregator",
            "node": self.engine.node().to_string(),
            "epoch": routing.epoch.0,
            "leaves": routing.with_role(Role::Leaf).count(),
            "shards": corpora,
            "in_flight": self.node.in_flight(),
            "nodes": self.engine.loads().status(),
            "hedging": self.engine.hedging().status(),
            "policies": self.engine.policies().status(),
        })
    }
}
