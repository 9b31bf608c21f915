//! A canary: one shard of a query is asked of one leaf, once, without hedge or retry, before the query goes to all.
//!
//! The failure this prevents: a query that kills whoever searches it is sent to every leaf, and again to every replica.
//! Only a leaf that was lost while it searched is a bad sign; one that refuses, is late or could not be reached says
//! nothing of the query.

use std::sync::Arc;

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{AttemptId, Version},
    request::RequestContext,
};
use canopy_proto::{SearchNode, v1};
use canopy_topology::routing::RoutingSnapshot;
use futures::StreamExt;

use crate::gather::Gatherer;

/// The attempt of a canary; the engine numbers its own from small numbers on.
const ATTEMPT: AttemptId = AttemptId(u64::MAX);

/// How the first leaf took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// It answered.
    Lives,
    /// It was lost while it searched; its words.
    Died(String),
    /// It could not be asked, refused, or was late.
    Unknown,
}

impl Gatherer {
    /// Asks one replica of one shard of `request`. `draw` spreads canaries over replicas and shards.
    pub async fn canary(
        &self,
        context: &RequestContext,
        routing: &RoutingSnapshot,
        request: &v1::SearchRequest,
        draw: u64,
    ) -> Sign {
        let Some((shard, node)) = self.one(routing, request, draw) else { return Sign::Unknown };
        let request = v1::SearchRequest {
            attempt_id: ATTEMPT.0,
            shards: vec![shard],
            level: request.level + 1,
            trace: false,
            // It asks what searching does, not whether the newest is there.
            wanted_offsets: Vec::new(),
            ..request.clone()
        };
        // Half of the time is left for the query itself.
        let deadline = context.deadline.child(context.deadline.remaining() / 2);
        let mut replies = node.search(context.child(ATTEMPT, deadline), request);
        let first = tokio::time::timeout_at(deadline.instant(), replies.next()).await;
        match first {
            Ok(Some(Ok(reply))) => {
                let answered = v1::Outcome::Answered as i32;
                if reply.shards.iter().any(|shard| shard.outcome == answered) {
                    Sign::Lives
                } else {
                    Sign::Unknown
                }
            }
            Ok(Some(Err(failure))) if lost(&failure) => Sign::Died(failure.message),
            Ok(Some(Err(_)) | None) | Err(_) => Sign::Unknown,
        }
    }

    fn one(
        &self,
        routing: &RoutingSnapshot,
        request: &v1::SearchRequest,
        draw: u64,
    ) -> Option<(v1::ShardRequest, Arc<dyn SearchNode>)> {
        let shard = request.shards.get((draw % request.shards.len().max(1) as u64) as usize)?;
        let replicas = routing.holders(&request.corpus, Version(request.version), &shard.shard.parse().ok()?);
        let node = replicas.get(((draw >> 32) % replicas.len().max(1) as u64) as usize)?;
        Some((shard.clone(), self.endpoints.get(node)?))
    }
}

/// A stream that broke: the transport's own words for a peer that is gone, not a refusal of the peer.
fn lost(failure: &Failure) -> bool {
    matches!(failure.class, ErrorClass::Internal | ErrorClass::Cancelled)
}
