//! Branches are asked for no more hits than can matter, and the page is exact all the same.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use canopy_aggregator::{config::GatherConfig, gather::attempt::Fate};
use canopy_common::coverage::Cut;
use canopy_proto::{convert, v1};
use canopy_tests::{
    invariants::{check, places},
    model_corpus::ModelCorpus,
    model_tree::{ModelTree, Shape},
};

const BUDGET: Duration = Duration::from_millis(300);

fn tree(corpus: ModelCorpus, aggregators: usize) -> ModelTree {
    let gather = GatherConfig { fanout_max: if aggregators > 0 { 10 } else { 200 }, ..Default::default() };
    let shape = Shape { leaves: corpus.shards.len(), replicas: 2, aggregators, gather, ..Default::default() };
    ModelTree::new(Arc::new(corpus), &shape)
}

/// All of the best documents are in one shard.
fn skewed() -> ModelCorpus {
    let mut corpus = ModelCorpus::even(5, 100, 30);
    for document in &mut corpus.shards[37].documents {
        document.score += 100.0;
    }
    corpus
}

#[tokio::test(start_paused = true)]
async fn pages_are_exact_though_each_branch_sends_a_few_hits() {
    for aggregators in [0, 4] {
        let tree = tree(ModelCorpus::even(3, 100, 50), aggregators);
        for k in [1, 10, 40] {
            let request = tree.corpus.request(tree.query(), k);
            let gathered = tree.search(request.clone(), BUDGET).await;
            assert!(check(&tree.corpus, &request, &gathered).complete());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_holds_the_whole_page_is_asked_again() {
    let tree = tree(skewed(), 0);
    for sort in [vec![], vec![v1::SortBy { field: "_score".to_owned(), descending: true }]] {
        let request = v1::SearchRequest { sort, ..tree.corpus.request(tree.query(), 10) };
        let gathered = tree.search(request.clone(), BUDGET).await;
        assert!(check(&tree.corpus, &request, &gathered).complete());
        assert!(gathered.hits.iter().all(|hit| hit.shard == 37));
        let more: Vec<_> = gathered.steps.iter().filter(|step| step.kind == "more").collect();
        assert_eq!(more.len(), 1);
        assert_eq!((more[0].shard, more[0].fate), (37, Fate::Won));
    }
    let asked: u64 = tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).sum();
    assert_eq!(asked, 2 * 101);
}

#[tokio::test(start_paused = true)]
async fn with_collapse_every_branch_is_asked_for_the_whole_page() {
    let tree = tree(skewed(), 0);
    let request = v1::SearchRequest { collapse: "host".to_owned(), ..tree.corpus.request(tree.query(), 10) };
    let gathered = tree.search(request.clone(), BUDGET).await;
    assert!(check(&tree.corpus, &request, &gathered).complete());
    assert!(gathered.steps.iter().all(|step| step.kind != "more"));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_asked_again_in_time_is_cut_and_said_so() {
    let tree = tree(skewed(), 0);
    // The answers come at 80 of 100 ms; a second round would come at 160.
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = Duration::from_millis(60));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), Duration::from_millis(100)).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    assert!(!coverage.complete());
    assert_eq!(convert::cut(gathered.shards[37].cut), Cut::Hits);
    let others = gathered.shards.iter().enumerate().filter(|(shard, _)| *shard != 37);
    assert!(others.into_iter().all(|(_, reply)| convert::cut(reply.cut) == Cut::None));
    assert_eq!(places(&gathered.hits).iter().filter(|place| place.0 == 37).count(), 4);
}
