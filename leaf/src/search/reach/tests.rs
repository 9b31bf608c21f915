//! Waiting for offsets: no thread is held, news end it, and so does the greater part of the deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use canopy_common::ids::Version;
use canopy_proto::{
    SearchNode,
    v1::{Outcome, PartitionOffset, SearchRequest},
};
use futures::StreamExt;

use crate::{
    fixture::{self, CORPUS, Still, answered, config, context},
    node::{LeafNode, Parts, SearchShard},
    shards::Serving,
    view::Overlay,
};

const LONG: Duration = Duration::from_secs(40);

/// A search that says whether its view had what was wanted, and counts.
fn told(count: Arc<AtomicU32>) -> SearchShard {
    Box::new(move |view, request, shard, _| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut result = answered(shard);
        result.reply.stale = !view.reached(&request.wanted_offsets);
        result
    })
}

fn leaf() -> (Arc<Parts>, LeafNode, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let (parts, node) = fixture::leaf(config(1, 4), 2, told(count.clone()));
    (parts, node, count)
}

fn wants(offset: u64) -> SearchRequest {
    SearchRequest { wanted_offsets: vec![PartitionOffset { partition: 0, offset }], ..fixture::request(2) }
}

/// A state of every shard that holds what is before `offset`.
fn publish(parts: &Parts, offset: u64) {
    let snapshot = parts.shards.directory.snapshot();
    let shards = snapshot.version(CORPUS, Version(1)).expect("version");
    for serving in shards.values() {
        let next = |serving: &Serving| {
            let (overlay, offsets) = (Overlay::default(), [(0, offset)].into());
            serving.view().with_overlay(overlay, roaring::RoaringBitmap::new(), offsets)
        };
        serving.publish_view(next(serving));
    }
}

#[tokio::test]
async fn a_search_waits_for_what_it_wants_and_holds_no_thread() {
    let (parts, node, count) = leaf();
    publish(&parts, 6);
    let mut stream = node.search(context(1, LONG), wants(8));
    assert!(matches!(futures::poll!(stream.next()), Poll::Pending));
    // There is one thread, and it is free.
    let others = fixture::outcomes(node.search(context(2, LONG), fixture::request(2)), 2).await;
    assert!(others.iter().all(|reply| reply.outcome == Outcome::Answered as i32));
    publish(&parts, 7);
    assert!(matches!(futures::poll!(stream.next()), Poll::Pending));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    publish(&parts, 8);
    let replies = fixture::outcomes(stream, 2).await;
    assert!(replies.iter().all(|reply| reply.outcome == Outcome::Answered as i32 && !reply.stale));
}

#[tokio::test]
async fn what_is_there_is_not_waited_for() {
    let (parts, node, _) = leaf();
    publish(&parts, 8);
    let _still = Still::hold();
    let replies = fixture::outcomes(node.search(context(1, LONG), wants(8)), 2).await;
    assert!(replies.iter().all(|reply| !reply.stale));
}

#[tokio::test]
async fn after_most_of_the_deadline_the_answer_is_stale() {
    let (parts, node, count) = leaf();
    publish(&parts, 6);
    let _still = Still::hold();
    let mut stream = node.search(context(1, LONG), wants(8));
    assert!(matches!(futures::poll!(stream.next()), Poll::Pending));
    tokio::time::advance((LONG / 4 * 3).saturating_sub(Duration::from_millis(5))).await;
    assert!(matches!(futures::poll!(stream.next()), Poll::Pending));
    assert_eq!(count.load(Ordering::SeqCst), 0);
    tokio::time::advance(Duration::from_millis(10)).await;
    let replies = fixture::outcomes(stream, 2).await;
    assert!(replies.iter().all(|reply| reply.outcome == Outcome::Answered as i32 && reply.stale));
}
