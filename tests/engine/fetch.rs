//! Phase two: from whoever answered, else by key from another holder; what stays empty says why.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{config::GatherConfig, gather::Gathered};
use canopy_common::{error::ErrorClass, ids::NodeId};
use canopy_proto::v1;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

const BUDGET: Duration = Duration::from_millis(300);

fn tree(replicas: usize, fanout_max: u32, aggregators: usize) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(31, 12, 60));
    let gather = GatherConfig { fanout_max, ..Default::default() };
    ModelTree::new(corpus, &Shape { replicas, gather, aggregators, ..Default::default() })
}

/// The page of a search, as the root would fetch it.
async fn page(tree: &ModelTree) -> (v1::FetchRequest, Vec<Option<NodeId>>) {
    let request = tree.corpus.request(tree.query(), 20);
    let Gathered { hits, shards, children, .. } = tree.search(request.clone(), BUDGET).await;
    let item = |hit: &v1::Hit| {
        let settled = &shards[hit.shard as usize];
        v1::FetchItem {
            shard: request.shards[hit.shard as usize].shard.clone(),
            key_high: hit.key_high,
            key_low: hit.key_low,
            address: hit.address,
            node: settled.node.clone(),
            lease: settled.lease,
        }
    };
    let fetch = v1::FetchRequest {
        query_id: request.query_id.to_vec(),
        corpus: request.corpus.clone(),
        version: request.version,
        items: hits.iter().map(item).collect(),
        ..Default::default()
    };
    let children = hits.iter().map(|hit| children[hit.shard as usize].clone()).collect();
    assert_eq!(hits.len(), 20);
    (fetch, children)
}

async fn fetch(tree: &ModelTree, fetch: v1::FetchRequest, children: &[Option<NodeId>]) -> v1::FetchReply {
    let context = tree.context(BUDGET);
    let items = fetch.items.clone();
    let reply = tree.gatherer.fetch(&context, &tree.routing, fetch, children).await.unwrap();
    assert_eq!(reply.documents.len(), items.len());
    for (item, document) in items.iter().zip(&reply.documents) {
        let key = format!("{:016x}{:016x}", item.key_high, item.key_low);
        assert!(!document.filled || document.key == key, "in the order asked");
        assert!(document.filled || !document.reason.is_empty());
    }
    reply
}

fn filled(reply: &v1::FetchReply) -> usize {
    reply.documents.iter().filter(|document| document.filled).count()
}

fn seen(tree: &ModelTree) -> (u64, u64) {
    let sum =
        |of: fn(&canopy_tests::model_leaf::Seen) -> u64| tree.leaves.iter().map(|leaf| of(&leaf.seen)).sum();
    (sum(|seen| seen.by_address.load(Ordering::SeqCst)), sum(|seen| seen.by_key.load(Ordering::SeqCst)))
}

#[tokio::test(start_paused = true)]
async fn hits_are_fetched_by_address_from_the_leaves_that_gave_them() {
    for (fanout, aggregators) in [(64, 0), (2, 2)] {
        let tree = tree(2, fanout, aggregators);
        let (request, children) = page(&tree).await;
        let reply = fetch(&tree, request, &children).await;
        assert_eq!((filled(&reply), seen(&tree)), (20, (20, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_leafs_hits_come_by_key_from_another_holder() {
    let faults = [
        Fault::Refuse(ErrorClass::Unavailable),
        Fault::Refuse(ErrorClass::Internal),
        Fault::End(0),
        Fault::Hang(0),
    ];
    for fault in faults {
        for (fanout, aggregators) in [(64, 0), (2, 2)] {
            let tree = tree(2, fanout, aggregators);
            let (request, children) = page(&tree).await;
            let lost: usize = request.items[0].node["leaf-".len()..].parse().unwrap();
            tree.leaves[lost].script(|script| script.fetch = fault);
            let start = Instant::now();
            let reply = fetch(&tree, request, &children).await;
            assert_eq!(filled(&reply), 20, "{fault:?} {:?}", reply.documents);
            assert!(seen(&tree).1 > 0);
            assert!(start.elapsed() < BUDGET);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_in_time_is_empty_with_a_reason() {
    let tree = tree(1, 64, 0);
    let (request, children) = page(&tree).await;
    tree.leaves[1].script(|script| script.fetch = Fault::Hang(0));
    tree.leaves[2].script(|script| script.fetch = Fault::Refuse(ErrorClass::Unavailable));
    let lost = |number: &str| {
        let name = Some(NodeId::from(number));
        children.iter().filter(|child| **child == name).count()
    };
    let missing = lost("leaf-1") + lost("leaf-2");
    assert!(missing > 0);
    let start = Instant::now();
    let reply = fetch(&tree, request, &children).await;
    assert!(start.elapsed() <= BUDGET);
    assert_eq!(filled(&reply), 20 - missing);
    let reasons: Vec<&str> = reply.documents.iter().map(|document| document.reason.as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.starts_with("leaf-1: DEADLINE_EXCEEDED")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.starts_with("leaf-2: UNAVAILABLE")), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_needs_to_know_no_children_and_survives_unknown_shards() {
    let tree = tree(2, 64, 0);
    let (mut request, _) = page(&tree).await;
    request.items[3].shard = "main/999".to_owned();
    request.items[3].node.clear();
    let reply = fetch(&tree, request, &[]).await;
    assert_eq!(filled(&reply), 19);
    assert_eq!(reply.documents[3].reason, "no leaf holds main/999");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_ends_the_fetch() {
    let tree = tree(2, 64, 0);
    let (request, children) = page(&tree).await;
    for leaf in &tree.leaves {
        leaf.script(|script| script.fetch = Fault::Hang(0));
    }
    let context = tree.context(BUDGET);
    let leave = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        context.cancel.cancel();
    };
    let fetching = tree.gatherer.fetch(&context, &tree.routing, request, &children);
    let (result, ()) = tokio::join!(fetching, leave);
    assert_eq!(result.unwrap_err().class, ErrorClass::Cancelled);
}
