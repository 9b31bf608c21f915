//! One query cannot take the process' memory: replies are merged as they come, and a query over its limit fails alone.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::config::GatherConfig;
use canopy_common::{config::Size, error::ErrorClass};
use canopy_proto::v1;
use canopy_tests::{
    model_corpus::{ModelCorpus, ModelDocument, ModelShard},
    model_tree::{ModelTree, Shape},
};

use canopy_tests::invariants::check;

/// Every document has a host of its own.
fn many_hosts(shards: usize, documents: usize) -> ModelCorpus {
    let mut corpus = ModelCorpus::generate(1, shards, 0);
    for (number, shard) in corpus.shards.iter_mut().enumerate() {
        let document = |n: usize| ModelDocument {
            key: canopy_common::ids::KeyHash::of(&format!("{number}/{n}")),
            score: (n % 100) as f32,
            published: None,
            host: format!("host-{number}-{n}.example.org"),
        };
        *shard = ModelShard { name: shard.name.clone(), documents: (0..documents).map(document).collect() };
    }
    corpus
}

fn request(tree: &ModelTree) -> v1::SearchRequest {
    let facet = v1::FacetBy { field: "host".to_owned(), size: 10, exact: true };
    v1::SearchRequest { facets: vec![facet], ..tree.corpus.request(tree.query(), 10) }
}

#[tokio::test(start_paused = true)]
async fn a_query_over_its_memory_loses_replies_and_says_so_others_lose_nothing() {
    let gather = GatherConfig { merge_memory: Size(1 << 20), ..Default::default() };
    let corpus = Arc::new(many_hosts(100, 500));
    let tree = ModelTree::new(corpus, &Shape { replicas: 1, gather, ..Default::default() });
    let large = request(&tree);
    let small = tree.corpus.request(tree.query(), 10);
    let both = tokio::join!(
        tree.search(large.clone(), Duration::from_secs(5)),
        tree.search(small.clone(), Duration::from_secs(5))
    );
    let coverage = check(&tree.corpus, &large, &both.0);
    assert!(coverage.failed > 0 && coverage.answered > 0, "{} {}", coverage.failed, coverage.answered);
    let refused = both.0.shards.iter().find(|shard| shard.outcome == v1::Outcome::Failed as i32).unwrap();
    assert_eq!(refused.error_class, ErrorClass::Quota as u32);
    assert!(refused.reason.contains("over 1MiB; ask for fewer facet values"), "{}", refused.reason);
    let kept: usize =
        both.0.shards.iter().flat_map(|shard| &shard.facets).map(|facet| facet.values.len()).sum();
    assert!(kept * 32 < 2 << 20, "{kept}");
    assert!(check(&tree.corpus, &small, &both.1).complete());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_passed_on_is_freed_at_an_aggregator() {
    // Two levels: each aggregator passes on far more than its limit, in batches.
    let gather =
        GatherConfig { merge_memory: Size(2 << 20), fanout_max: 2, branch_shards: 1, ..Default::default() };
    let corpus = Arc::new(many_hosts(24, 500));
    let shape = Shape { leaves: 8, replicas: 1, aggregators: 2, gather, ..Default::default() };
    let tree = ModelTree::new(corpus, &shape);
    for (number, leaf) in tree.leaves.iter().enumerate() {
        leaf.script(|script| script.start = Duration::from_millis(20 * number as u64));
    }
    let large = request(&tree);
    let gathered = tree.search(large.clone(), Duration::from_secs(5)).await;
    let coverage = check(&tree.corpus, &large, &gathered);
    assert!(coverage.complete(), "{:?}", gathered.shards.iter().find(|shard| !shard.reason.is_empty()));
}
