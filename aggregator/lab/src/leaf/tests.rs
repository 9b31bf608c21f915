//! Order, workers, what becomes of abandoned work, and copies told apart.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    deadline::Deadline,
    ids::{AttemptId, QueryId},
    request::RequestContext,
};
use canopy_proto::{SearchNode, v1};
use futures::StreamExt;
use tokio::time::Instant;

use super::*;
use crate::latency::{Body, Hiccups};

fn ground(workers: u32, cancel: Cancel) -> Arc<Ground> {
    let latency =
        Latency { body: Body::Fixed { mean: 10.0 }, hiccups: Hiccups { share: 0.0, from: 0.0, to: 0.0 } };
    let slowness = vec![Slowness { from: 1000.0, to: 2000.0, factor: 3.0 }];
    let scale = Scale::new(10).unwrap();
    let (travel, start) = (Duration::from_millis(1), Instant::now());
    Arc::new(Ground {
        scale,
        latency,
        versions: vec![(2, Latency { body: Body::Fixed { mean: 20.0 }, ..latency })],
        seed: 1,
        workers,
        cancel,
        slowness,
        warmup: 0,
        protected: None,
        travel,
        start,
    })
}

fn leaf(ground: &Arc<Ground>, siblings: &Arc<Siblings>) -> Asked {
    Asked(Arc::new(ModelLeaf::new(ground.clone(), siblings.clone(), 0, 1.0)))
}

fn ask(leaf: &Asked, query: u64) -> ReplyStream {
    ask_of(leaf, query, 1)
}

fn ask_of(leaf: &Asked, query: u64, version: u64) -> ReplyStream {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&query.to_be_bytes());
    let deadline = Deadline::after(Duration::from_hours(1));
    let context = RequestContext::new(QueryId(id), AttemptId(1), deadline);
    let shards = vec![v1::ShardRequest { shard: "main/0".into(), k: 1, documents: DOCUMENTS, after: None }];
    leaf.search(context, v1::SearchRequest { shards, version, ..Default::default() })
}

/// Model ms until it answers, and the model ms it says it waited.
async fn answer(mut replies: ReplyStream) -> (f64, f64) {
    let start = Instant::now();
    let reply = replies.next().await.unwrap().unwrap();
    assert_eq!(reply.shards.len(), 1);
    assert_eq!(reply.shards[0].documents_searched, DOCUMENTS);
    (start.elapsed().as_secs_f64() * 100.0, reply.call.unwrap().queue_wait_us as f64 / 10_000.0)
}

#[tokio::test(start_paused = true)]
async fn calls_are_served_in_order_by_as_many_workers_as_there_are() {
    let one = leaf(&ground(2, Cancel::Running), &Arc::default());
    let calls: Vec<_> = (0..5).map(|query| tokio::spawn(answer(ask(&one, query)))).collect();
    let mut times = vec![];
    for call in calls {
        times.push(call.await.unwrap());
    }
    assert_eq!(times, [(10.0, 0.0), (10.0, 0.0), (20.0, 10.0), (20.0, 10.0), (30.0, 20.0)]);
    let counts = one.0.counts();
    assert_eq!((counts.arrived, counts.begun, counts.finished, counts.copies), (5, 5, 5, 0));
    assert_eq!(counts.busy, Duration::from_millis(500));
    let free = leaf(&ground(0, Cancel::Running), &Arc::default());
    let calls: Vec<_> = (0..5).map(|query| tokio::spawn(answer(ask(&free, query)))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), (10.0, 0.0));
    }
}

/// One call runs, one waits; both callers go after half the work; a third one comes.
async fn after_two_left(cancel: Cancel) -> (f64, Counts) {
    let one = leaf(&ground(1, cancel), &Arc::default());
    let gone: Vec<_> = (0..2).map(|query| tokio::spawn(answer(ask(&one, query)))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let third = tokio::spawn(answer(ask(&one, 2)));
    tokio::task::yield_now().await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    (third.await.unwrap().0, one.0.counts())
}

#[tokio::test(start_paused = true)]
async fn work_that_nobody_waits_for_stops_where_the_setting_says() {
    let (took, counts) = after_two_left(Cancel::Running).await;
    assert_eq!(took, 10.0);
    assert_eq!((counts.begun, counts.stopped, counts.left_queue, counts.for_nobody), (2, 1, 1, 0));
    assert_eq!(counts.busy, Duration::from_millis(150));
    let (took, counts) = after_two_left(Cancel::Queued).await;
    assert_eq!(took, 15.0);
    assert_eq!((counts.begun, counts.stopped, counts.left_queue, counts.for_nobody), (2, 0, 1, 1));
    let (took, counts) = after_two_left(Cancel::Never).await;
    assert_eq!(took, 25.0);
    assert_eq!((counts.begun, counts.stopped, counts.left_queue, counts.for_nobody), (3, 0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_query_are_told_apart_over_all_replicas() {
    let (ground, siblings) = (ground(0, Cancel::Running), Arc::default());
    let (first, second) = (leaf(&ground, &siblings), leaf(&ground, &siblings));
    let slow = tokio::spawn(answer(ask(&first, 7)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!siblings.finished(7));
    answer(ask(&second, 7)).await;
    assert!(siblings.finished(7) && !siblings.finished(8) && !siblings.finished(7 + RECENT as u64));
    slow.await.unwrap();
    assert_eq!((first.0.counts().copies, second.0.counts().copies, second.0.counts().twice), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn all_leaves_can_be_slow_for_a_while() {
    let one = leaf(&ground(0, Cancel::Running), &Arc::default());
    assert_eq!(answer(ask(&one, 0)).await.0, 10.0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(answer(ask(&one, 1)).await.0, 30.0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(answer(ask(&one, 2)).await.0, 10.0);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_loads_is_slow_and_answers_from_what_it_holds() {
    let one = leaf(&ground(0, Cancel::Running), &Arc::default());
    assert_eq!(answer(ask_of(&one, 0, 2)).await.0, 20.0, "nobody said what it holds");
    one.0.hold(1);
    one.0.slow_down(1.5);
    assert_eq!(answer(ask(&one, 1)).await.0, 15.0);
    let reply = ask_of(&one, 2, 2).next().await.unwrap().unwrap();
    assert_eq!(reply.shards[0].outcome, v1::Outcome::Unavailable as i32);
    assert_eq!((one.0.counts().not_held, one.0.counts().refused, one.0.counts().finished), (1, 1, 2));
    one.0.slow_down(1.0);
    one.0.hold(2);
    one.0.let_go(1);
    assert_eq!(answer(ask_of(&one, 3, 2)).await.0, 20.0);
    let reply = ask(&one, 4).next().await.unwrap().unwrap();
    assert_eq!(reply.shards[0].outcome, v1::Outcome::Unavailable as i32);
}
