//! A leaf under load and cancels, with searches that a test stands in for: accounts, deadlines, shedding, panics.

mod overload;
mod tied;

use std::{sync::Arc, time::Duration};

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{AttemptId, Epoch, QueryId, Version},
    request::Priority,
};
use canopy_proto::{
    SearchNode,
    v1::{CancelRequest, Instead, Outcome, SearchReply, SearchRequest, ShardReply},
};
use canopy_topology::routing::{ALL_QUERIES, CorpusRouting, Pin, RoutingSnapshot};
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::{
    fixture::{self, Count, Gate, Still, answered, context, leaf, outcomes, request, until},
    search_shard::ShardResult,
};

const LONG: Duration = Duration::from_secs(30);

fn words(replies: &[ShardReply]) -> Vec<&'static str> {
    replies.iter().map(crate::reply::outcome_word).collect()
}

fn cancel_all(query: u8) -> CancelRequest {
    CancelRequest { query_id: vec![query; 16], attempt_id: 1, ..Default::default() }
}

#[tokio::test]
async fn every_shard_settles_once_with_lease_node_and_times() {
    let (parts, node) = leaf(fixture::config(2, 16), 5, Box::new(|_, _, shard, _| answered(shard)));
    let replies = outcomes(node.search(context(1, LONG), request(5)), 5).await;
    assert_eq!(words(&replies), ["answered"; 5]);
    assert!(replies.iter().all(|reply| reply.lease != 0 && reply.node == "leaf-1"));
    assert_eq!(parts.metrics.in_flight.get(), 0);
    assert_eq!(parts.calls.running(), 0);
}

#[tokio::test]
async fn a_search_of_no_shards_is_answered_at_once_with_the_report() {
    let (_, node) = leaf(fixture::config(1, 16), 1, Box::new(|_, _, shard, _| answered(shard)));
    let start = Instant::now();
    let replies = fixture::collect(node.search(context(1, LONG), request(0))).await;
    assert_eq!((replies.len(), replies[0].shards.len()), (1, 0));
    assert_eq!(replies[0].call.as_ref().unwrap().node, "leaf-1");
    assert!(start.elapsed() < LONG / 2);
}

#[tokio::test]
async fn what_is_not_held_says_why_and_costs_the_others_nothing() {
    let (parts, node) = leaf(fixture::config(2, 16), 1, Box::new(|_, _, shard, _| answered(shard)));
    let mut asked = request(4);
    asked.shards[2].shard = "nonsense".repeat(40);
    let replies = outcomes(node.search(context(1, LONG), asked.clone()), 4).await;
    assert_eq!(words(&replies), ["answered", "failed", "failed", "failed"]);
    assert_eq!(replies[1].error_class, ErrorClass::FailedPrecondition as u32);
    assert_eq!(replies[1].reason, "leaf-1 does not hold shard main/1 of \"web\"");
    let epoch = parts.routing.now().epoch.0;
    assert_eq!([0, 1, 2].map(|at| replies[at].wrong_epoch), [0, epoch, 0], "and by which snapshot it goes");
    assert!(replies[2].reason.len() < 200, "{}", replies[2].reason);
    asked.version = 9;
    let replies = outcomes(node.search(context(2, LONG), asked.clone()), 4).await;
    assert_eq!(replies[0].reason, "leaf-1 serves v1 of shard main/0, not v9");
    assert_eq!(replies[0].instead, None, "no version is pinned");
    let pins = vec![Pin { version: Version(1), share: ALL_QUERIES }];
    let corpora = [("web".to_owned(), CorpusRouting { pins, ..CorpusRouting::default() })].into();
    let epoch = Epoch(epoch + 1);
    assert!(parts.routing.publish(RoutingSnapshot { epoch, corpora, ..RoutingSnapshot::default() }));
    let replies = outcomes(node.search(context(3, LONG), asked), 4).await;
    let instead = Some(Instead { version: 1, epoch: epoch.0 });
    assert_eq!([0, 1].map(|at| replies[at].instead), [instead, None], "it has nothing of the second");
    assert_eq!(parts.metrics.in_flight.get(), 0);
}

#[tokio::test]
async fn the_deadline_is_kept_although_every_thread_is_stuck() {
    let gate = Gate::default();
    let (parts, node) = leaf(fixture::config(1, 16), 3, gate.search());
    let start = Instant::now();
    let still = Still::hold();
    let stuck = node.search(context(1, Duration::from_millis(60)), request(3));
    gate.arrival().await;
    let waiting = node.search(context(2, Duration::from_millis(50)), request(1));
    drop(still);
    let replies = outcomes(stuck, 3).await;
    assert_eq!(words(&replies), ["timed_out"; 3]);
    let replies = outcomes(waiting, 1).await;
    assert_eq!(words(&replies), ["timed_out"]);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    assert_eq!(parts.metrics.in_flight.get(), 0);
    gate.open(9);
}

#[tokio::test]
async fn what_expired_in_the_queue_is_counted_and_never_run() {
    let gate = Gate::default();
    let (parts, node) = leaf(fixture::config(1, 16), 1, gate.search());
    let first = node.search(context(1, LONG), request(1));
    gate.arrival().await;
    let still = Still::hold();
    // Nobody polls this stream: only the queue can drop it.
    let late = node.search(context(2, Duration::from_millis(20)), request(1));
    assert_eq!(parts.executor.queued(), 1);
    tokio::time::advance(Duration::from_millis(21)).await;
    drop(still);
    gate.open(1);
    assert_eq!(words(&outcomes(first, 1).await), ["answered"]);
    until("the drop", || parts.metrics.expired_in_queue.get() == 1).await;
    let replies = outcomes(late, 1).await;
    assert_eq!(replies[0].reason, "the deadline passed in the queue of this leaf");
    assert_eq!(gate.arrived(), 0, "it never ran");
}

#[tokio::test]
async fn a_full_queue_sheds_at_once_with_pushback_and_batch_waits_behind() {
    let gate = Gate::default();
    let (parts, node) = leaf(fixture::config(1, 2), 1, gate.search());
    let still = Still::hold();
    let running = node.search(context(1, LONG), request(1));
    gate.arrival().await;
    let batch = canopy_common::request::RequestContext { priority: Priority::Batch, ..context(9, LONG) };
    let batch = node.search(batch, request(1));
    let queued: Vec<_> = (2..4).map(|n| node.search(context(n, LONG), request(1))).collect();
    let mut shed = node.search(context(4, LONG), request(1));
    let reply: SearchReply = shed.next().now_or_never().expect("at once").unwrap().unwrap();
    assert_eq!(reply.shards[0].outcome, Outcome::Shed as i32);
    assert!(reply.call.as_ref().unwrap().pushback_ms >= 1);
    assert_eq!(reply.call.unwrap().in_flight, 4);
    assert!(shed.next().await.is_none());
    assert_eq!(parts.metrics.shed.get(), 1);
    drop(still);
    gate.open(4);
    assert_eq!(words(&outcomes(running, 1).await), ["answered"]);
    for stream in queued {
        assert_eq!(words(&outcomes(stream, 1).await), ["answered"]);
    }
    assert_eq!(words(&outcomes(batch, 1).await), ["answered"]);
}

#[tokio::test]
async fn a_panic_is_one_shards_failure_and_costs_no_thread() {
    let search = |_: &_, _: &_, shard: u32, _: &_| {
        assert_ne!(shard, 1, "on purpose");
        answered(shard)
    };
    let (parts, node) = leaf(fixture::config(1, 16), 3, Box::new(search));
    for query in 0..3 {
        let replies = outcomes(node.search(context(query, LONG), request(3)), 3).await;
        assert_eq!(words(&replies), ["answered", "failed", "answered"]);
        assert_eq!(replies[1].error_class, ErrorClass::Internal as u32);
        assert_eq!(replies[1].reason, "the search of shard main/1 panicked");
    }
    assert_eq!(parts.metrics.panics.get(), 3);
}

#[tokio::test]
async fn bad_input_ends_the_call_with_its_field() {
    let search = |_: &_, _: &_, shard: u32, _: &_| {
        ShardResult::failed(shard, Failure::invalid("sort.field", "there is no field x").with_limit(3))
    };
    let (_, node) = leaf(fixture::config(1, 16), 2, Box::new(search));
    let mut stream = node.search(context(1, LONG), request(2));
    let failure = stream.next().await.unwrap().unwrap_err();
    assert_eq!((failure.field.as_deref(), failure.limit), (Some("sort.field"), Some(3)));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_cancel_stops_running_and_queued_shards_and_frees_the_thread() {
    let gate = Gate::default();
    let inner = gate.clone();
    let search = move |_: &_, _: &_, shard, stop: &crate::stop::Stop| {
        inner.pass(shard);
        while !stop.now() {
            std::hint::spin_loop();
        }
        answered(shard)
    };
    let (parts, node) = leaf(fixture::config(1, 16), 2, Box::new(search));
    gate.open(9);
    let running = node.search(context(1, LONG), request(2));
    gate.arrival().await;
    let queued = node.search(context(2, LONG), request(1));
    assert_eq!(node.cancel(cancel_all(2)).await, Ok(1));
    assert_eq!(parts.executor.queued(), 0, "it left the queue");
    let replies = outcomes(queued, 1).await;
    assert_eq!((replies[0].error_class, words(&replies)), (ErrorClass::Cancelled as u32, vec!["failed"]));
    // One of two shards: its search sees the flag, the thread goes on with the other.
    let one = CancelRequest { shards: vec![0], ..cancel_all(1) };
    assert_eq!(node.cancel(one.clone()).await, Ok(1));
    assert_eq!(gate.arrival().await, 1);
    assert_eq!(node.cancel(one).await, Ok(0), "stopped already");
    drop(running);
    until("the thread", || parts.metrics.work_after_cancel.get_sample_count() == 2).await;
    let after = parts.metrics.work_after_cancel.get_sample_sum() / 2.0;
    assert!(after < LONG.as_micros() as f64, "{after} us of work after the cancel");
    assert_eq!((parts.metrics.in_flight.get(), parts.calls.running()), (0, 0));
}

#[tokio::test]
async fn the_callers_token_ends_the_stream_with_an_account() {
    let gate = Gate::default();
    let (_, node) = leaf(fixture::config(1, 16), 3, gate.search());
    let context = context(1, LONG);
    let cancel = context.cancel.clone();
    let stream = node.search(context, request(3));
    gate.arrival().await;
    cancel.cancel();
    assert_eq!(words(&outcomes(stream, 3).await), ["failed"; 3]);
    gate.open(3);
}

#[tokio::test]
async fn a_cancel_that_overtakes_its_request_stops_it_before_it_starts() {
    let ran = Count::default();
    let seen = ran.clone();
    let search = move |_: &_, _: &_, shard, _: &_| {
        seen.add();
        answered(shard)
    };
    let (_, node) = leaf(fixture::config(1, 16), 3, Box::new(search));
    assert_eq!(node.cancel(CancelRequest { shards: vec![1], ..cancel_all(1) }).await, Ok(0));
    let replies = outcomes(node.search(context(1, LONG), request(3)), 3).await;
    assert_eq!(words(&replies), ["answered", "failed", "answered"]);
    assert_eq!(ran.get(), 2);
    // A cancel after the end leaves no mark behind for the next attempt of that number.
    assert_eq!(node.cancel(cancel_all(1)).await, Ok(0));
    assert_eq!(words(&outcomes(node.search(context(1, LONG), request(3)), 3).await), ["answered"; 3]);
    let long = CancelRequest { shards: (0..5000).collect(), ..cancel_all(1) };
    assert_eq!(node.cancel(long).await.unwrap_err().limit, Some(1024));
}

#[tokio::test]
async fn two_searches_of_one_number_are_not_mistaken_for_each_other() {
    let gate = Gate::default();
    let (parts, node) = leaf(fixture::config(1, 16), 2, gate.search());
    let (a, b) = (node.search(context(1, LONG), request(1)), node.search(context(1, LONG), request(2)));
    gate.arrival().await;
    assert_eq!(node.cancel(cancel_all(1)).await, Ok(0), "it could mean either");
    gate.open(3);
    assert_eq!(words(&outcomes(a, 1).await), ["answered"]);
    assert_eq!(words(&outcomes(b, 2).await), ["answered"; 2]);
    assert_eq!(parts.calls.running(), 0);
}

#[tokio::test]
async fn short_searches_share_messages_and_long_ones_do_not_wait() {
    let mut config = fixture::config(1, 16);
    config.coalesce = canopy_common::config::Time::ms(10);
    let (_, node) = leaf(config.clone(), 16, Box::new(|_, _, shard, _| answered(shard)));
    let still = Still::hold();
    let replies = fixture::collect(node.search(context(1, LONG), request(16))).await;
    drop(still);
    assert!(replies.len() <= 3, "{} messages for 16 short searches", replies.len());

    let gate = Gate::default();
    config.coalesce = canopy_common::config::Time(Duration::from_micros(1));
    let (_, node) = leaf(config, 2, gate.search());
    let mut stream = node.search(context(1, LONG), request(2));
    gate.arrival().await;
    gate.open(1);
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first.shards.len(), 1, "the first is sent while the second still runs");
    gate.open(1);
    assert_eq!(stream.next().await.unwrap().unwrap().shards.len(), 1);
}

#[tokio::test]
async fn a_trace_has_the_queue_and_the_search_of_each_shard() {
    let (_, node) = leaf(fixture::config(1, 16), 2, Box::new(|_, _, shard, _| answered(shard)));
    let mut asked = request(2);
    asked.trace = true;
    let replies = fixture::collect(node.search(context(1, LONG), asked)).await;
    let spans: Vec<_> = replies.into_iter().flat_map(|reply| reply.spans).collect();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.fate == "answered" && span.children.len() == 2));
}

#[tokio::test]
async fn thousand_random_cancels_leave_nothing_behind() {
    let (parts, node) = leaf(fixture::config(2, 64), 4, Box::new(|_, _, shard, _| answered(shard)));
    let node = Arc::new(node);
    let dice = canopy_common::rng::Dice::seeded(11);
    for round in 0..1000_u64 {
        let mut context = context(0, LONG);
        context.query = QueryId([(round % 251) as u8; 16]);
        context.attempt = AttemptId(round);
        let cancel = context.cancel.clone();
        let mut stream = node.search(context, request(4));
        match dice.below(4) {
            0 => drop(stream),
            1 => {
                cancel.cancel();
                assert_eq!(outcomes(stream, 4).await.len(), 4);
            }
            2 => {
                let request = CancelRequest {
                    query_id: vec![(round % 251) as u8; 16],
                    attempt_id: round,
                    shards: vec![dice.below(4) as u32],
                    ..Default::default()
                };
                node.cancel(request).await.unwrap();
                assert_eq!(outcomes(stream, 4).await.len(), 4);
            }
            _ => {
                let _some = stream.next().await;
            }
        }
    }
    until("quiet", || parts.executor.queued() == 0 && parts.metrics.in_flight.get() == 0).await;
    assert_eq!(parts.calls.running(), 0);
}
