//! Readiness where many corpora do not answer.

use canopy_common::ids::{Epoch, ShardId, Version};
use canopy_topology::routing::{CorpusRouting, RoutingSnapshot};

use super::*;
use crate::{
    config::RootConfig,
    fixture::{self, Mood, Tree, VERSION},
};

/// Corpora with one shard each: some on a leaf that hangs, `web` on one that answers.
fn tree(hanging: u32) -> Tree {
    let tree = fixture::rows(2, 1, 20, RootConfig::default());
    *tree.rows[0][0].search.lock() = Mood::Hangs;
    let on = |row| CorpusRouting {
        version: Some(Version(VERSION)),
        shards: [(ShardId::new("main", 0), [fixture::leaf_of(row, 0)].into())].into(),
        ..CorpusRouting::default()
    };
    let names: Vec<String> = (0..hanging).map(|number| format!("a{number}")).collect();
    let mut corpora: std::collections::BTreeMap<_, _> =
        names.iter().map(|name| (name.clone(), on(0))).collect();
    corpora.insert("web".to_owned(), on(1));
    let nodes = tree.root.routing.now().nodes.clone();
    let snapshot = RoutingSnapshot { epoch: Epoch(2), nodes, corpora, ..Default::default() };
    tree.root.versions.follow(&snapshot);
    assert!(tree.root.routing.publish(snapshot));
    for name in names {
        let mut state = fixture::corpus(1, 20);
        state.manifest.corpus = name;
        tree.root.versions.publish(state);
    }
    tree
}

#[tokio::test(start_paused = true)]
async fn a_probe_takes_a_second_at_most_whatever_number_of_corpora_hangs() {
    let tree = tree(9);
    assert_eq!(tree.root.versions.open().len(), 10);
    let health = RootHealth::new(tree.root.clone());
    let begun = Instant::now();
    health.ready().await.expect("one corpus answers");
    assert!(begun.elapsed() <= PROBE, "{:?}", begun.elapsed());

    *tree.rows[1][0].search.lock() = Mood::Hangs;
    let health = RootHealth::new(tree.root.clone());
    let begun = Instant::now();
    let reason = health.ready().await.unwrap_err();
    assert!(begun.elapsed() <= PROBE, "{:?}", begun.elapsed());
    assert!(reason.contains("a0") && reason.contains("web"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn corpora_that_fail_at_once_cost_no_time() {
    let tree = tree(9);
    *tree.rows[0][0].search.lock() = Mood::Fails(ErrorClass::DataLoss);
    let begun = Instant::now();
    RootHealth::new(tree.root.clone()).ready().await.expect("one corpus answers");
    assert!(begun.elapsed() < PROBE / 20, "{:?}", begun.elapsed());
}
