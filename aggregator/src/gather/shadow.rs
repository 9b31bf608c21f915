//! Shadows: copies of attempts that are sent to ejected replicas and that nobody waits for.
//!
//! A replica that is not asked can't show that it is well again. Trying it with a query would make that query pay when
//! it is not, so a copy is sent beside the query: what it answers is dropped, how and when it answers is kept. The
//! breaker and the probation say when (see [`crate::breaker`]); a shadow is extra work and comes out of the same
//! budget. It may outlive its query, never its deadline.

use std::time::Duration;

use canopy_common::{
    deadline::Deadline,
    ids::{AttemptId, NodeId},
    request::RequestContext,
};
use canopy_proto::{ReplyStream, v1};
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::{
    dispatch::{Asking, IDS_PER_ATTEMPT, ending_of},
    run::Run,
};
use crate::load::{Ending, InFlight};

/// A shadow on its way. Dropped in whatever way, the place it holds is free again.
struct Shadow {
    flight: InFlight,
    budget: Duration,
}

impl Shadow {
    fn told(&self, ending: Ending) {
        self.flight.ended(ending, self.budget);
    }

    /// Takes what is answered and drops it.
    async fn run(self, mut replies: ReplyStream, until: Instant) {
        let mut answered = false;
        loop {
            match timeout_at(until, replies.next()).await {
                Err(_) => return self.told(Ending::Late),
                Ok(None) if answered => return self.told(Ending::Answered),
                Ok(None) => return self.told(Ending::Failed),
                Ok(Some(Ok(reply))) => {
                    answered |=
                        reply.shards.iter().any(|shard| shard.outcome == v1::Outcome::Answered as i32);
                    if let Some(call) = &reply.call {
                        self.flight.report(call);
                    }
                }
                Ok(Some(Err(failure))) => {
                    return self.told(ending_of(failure.class, answered, failure.pushback_ms));
                }
            }
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.flight.load().shadow_ended();
    }
}

impl Run {
    /// Sends `node` a copy of what is asked. It is paid from the budget for extra work, which never refuses it to an `ejected`
    /// one, and gives to others what hedges leave over.
    pub(super) fn shadow(&mut self, asking: &Asking, node: &NodeId, ejected: bool) {
        let load = self.engine.loads.of(node);
        let now = Instant::now();
        let sendable = self.schedule.attempt(now).zip(self.engine.endpoints.get(node));
        let hedging = &self.engine.hedging;
        let Some((deadline, peer)) = sendable else {
            return load.shadow_ended();
        };
        if ejected {
            hedging.charge(&self.hedges.config, asking.shards.len());
        } else if !hedging.spare(&self.hedges.config, asking.shards.len()) {
            return load.shadow_ended();
        } else {
            load.copied(now);
        }
        let id = AttemptId(self.shadow_id(asking.branch));
        let until = deadline.instant();
        let context = RequestContext {
            priority: canopy_common::request::Priority::Batch,
            ..RequestContext::new(self.context.query, id, Deadline::at(until))
        };
        let request = v1::SearchRequest {
            attempt_id: id.0,
            priority: v1::Priority::Batch as i32,
            shards: asking.shards.iter().map(|at| self.request.shards[*at as usize].clone()).collect(),
            remaining_us: (until - now).as_micros() as u64,
            // How long it takes is compared with others.
            wanted_offsets: Vec::new(),
            ..self.template.clone()
        };
        self.tail.probes += 1;
        self.engine.picker.metrics.probes.inc();
        let usual = self.usual(asking.branch, asking.shards.len());
        let shadow = Shadow { flight: InFlight::begin(load).usually(usual), budget: until - now };
        let stop = context.cancel.clone().drop_guard();
        let replies = peer.search(context, request);
        tokio::spawn(async move {
            shadow.run(replies, until).await;
            drop(stop);
        });
    }

    /// An attempt id that no attempt of this query has: counted from the far end.
    fn shadow_id(&self, branch: usize) -> u64 {
        let last = IDS_PER_ATTEMPT - 1 - branch as u64 % (IDS_PER_ATTEMPT / 2);
        self.context.attempt.0.wrapping_mul(IDS_PER_ATTEMPT).wrapping_add(last)
    }
}
