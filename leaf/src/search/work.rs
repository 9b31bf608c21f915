//! What a search thread does with a call: takes the next shard that nobody has taken, searches it, judges how that
//! ended, and settles it. A panic is that shard's failure only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use canopy_common::{
    clock::{self, WallClock},
    error::{ErrorClass, Failure},
};
use canopy_proto::v1::{Outcome, ShardReply, Span};
use tokio::time::Instant;

use crate::{
    call::{Call, Settled, Target},
    executor::{Class, Turn},
    node::Parts,
    reply,
    search_shard::ShardResult,
};

/// What is said of a search that no thread began before its deadline.
pub const EXPIRED: &str = "the deadline passed in the queue of this leaf";

/// What a search thread does with one task of a call.
pub fn work(parts: &Arc<Parts>, call: &Arc<Call>, turn: Turn) {
    let node = &parts.shards.node.0;
    match turn {
        Turn::Run(_) => {}
        Turn::Expired(_) => {
            let make = |index| reply::unanswered(index, node, Outcome::TimedOut, EXPIRED);
            if parts.settle_open(call, &[], make) > 0 && !call.begun() {
                parts.metrics.expired_in_queue.inc();
            }
            return;
        }
        Turn::Shed(waited) => {
            // Another thread may have begun with it: then only its help is not needed.
            if call.give_back() {
                let reason = format!("it waited {waited:?} in the queue of this leaf, which stands");
                let make = |index| reply::unanswered(index, node, Outcome::Shed, reason.as_str());
                if parts.settle_open(call, &[], make) > 0 {
                    parts.metrics.shed.inc();
                    parts.metrics.refused.with_label_values(&["waited"]).inc();
                }
            }
            return;
        }
        Turn::Closed => {
            let reason = "this leaf is leaving";
            parts
                .settle_open(call, &[], |index| reply::unanswered(index, node, Outcome::Unavailable, reason));
            return;
        }
    }
    let Some((queued, action)) = call.begin() else { return };
    if let Some(tied) = &call.tied {
        parts.tied(call, tied, action);
    }
    parts.metrics.queue_wait.observe(queued.as_secs_f64());
    let _same_trace = call.span.enter();
    while let Some(target) = call.next_target() {
        search_one(parts, call, target);
    }
}

fn search_one(parts: &Arc<Parts>, call: &Arc<Call>, target: &Target) {
    let shard = &target.serving.shard;
    let _span = tracing::debug_span!("shard", %shard).entered();
    let (begun, begun_us) = (Instant::now(), call.elapsed_us());
    let view = target.serving.view();
    let searched =
        catch_unwind(AssertUnwindSafe(|| (parts.search)(&view, &call.request, target.index, &target.stop)));
    let took = begun.elapsed();
    let result = searched.unwrap_or_else(|_| {
        parts.metrics.panics.inc();
        tracing::error!(%shard, query = call.number, "the search of a shard panicked");
        let failure = Failure::new(ErrorClass::Internal, format!("the search of shard {shard} panicked"));
        ShardResult::failed(target.index, failure)
    });
    if let Some(since) = call.since_stopped().filter(|_| target.stop.now()) {
        parts.metrics.work_after_cancel.observe(since.min(took).as_micros() as f64);
    } else if result.failure.is_none() {
        parts.executor.times().record(Class::of(&call.request), took);
    }
    parts.metrics.service.observe(took.as_secs_f64());
    let mut settled = judged(parts, call, target, result);
    settled.reply.lag_ms = view.lag.ms(clock::System.now_us());
    settled.reply.queue_us = begun_us;
    settled.reply.search_us = took.as_micros() as u64;
    if call.request.trace {
        settled.span = Some(timeline(parts, call, &settled.reply, shard.to_string()));
    }
    parts.settle(call, settled, took);
}

/// Looks at how a search ended: damage takes the shard out of service, bad input ends the call.
fn judged(parts: &Arc<Parts>, call: &Arc<Call>, target: &Target, result: ShardResult) -> Settled {
    let node = &parts.shards.node.0;
    if let Some(failure) = parts.shards.judge(&target.serving, result.failure.as_ref()) {
        if failure.class == ErrorClass::InvalidArgument {
            call.fail(failure.clone());
        }
        let reply =
            ShardReply { version: call.request.version, ..reply::failed(target.index, node, &failure) };
        return Settled { reply, ..Settled::default() };
    }
    let mut reply = result.reply;
    reply.node = node.to_string();
    reply.lease = parts.shards.leases.hold(&target.serving, call.deadline);
    Settled { hits: result.hits, reply, span: None }
}

fn timeline(parts: &Parts, call: &Call, reply: &ShardReply, shard: String) -> Span {
    let step = |name: &str, start_us, duration_us| Span {
        node: parts.shards.node.to_string(),
        name: name.to_owned(),
        start_us,
        duration_us,
        shard: shard.clone(),
        ..Default::default()
    };
    let (queued, searched) = (reply.queue_us, reply.search_us);
    let mut whole = step("shard", 0, call.elapsed_us());
    reply::outcome_word(reply).clone_into(&mut whole.fate);
    whole.children = vec![step("queue", 0, queued), step("search", queued, searched)];
    whole
}
