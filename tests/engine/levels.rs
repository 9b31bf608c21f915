//! Any tree shape gives the same list; aggregators may come and go.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::config::GatherConfig;
use canopy_common::error::ErrorClass;
use canopy_proto::v1;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape},
};

use canopy_tests::invariants::{check, places};

const BUDGET: Duration = Duration::from_millis(300);

fn tree(corpus: &Arc<ModelCorpus>, leaves: usize, fanout_max: u32, aggregators: usize) -> ModelTree {
    let gather = GatherConfig { fanout_max, branch_shards: 2, ..Default::default() };
    ModelTree::new(corpus.clone(), &Shape { leaves, gather, aggregators, ..Default::default() })
}

fn requests(tree: &ModelTree) -> Vec<v1::SearchRequest> {
    let plain = tree.corpus.request(tree.query(), 15);
    let sorted = |field: &str, descending| v1::SortBy { field: field.to_owned(), descending };
    let facet = |exact| v1::FacetBy { field: "host".to_owned(), size: 3, exact };
    vec![
        v1::SearchRequest { sort: vec![sorted("published", true)], ..plain.clone() },
        v1::SearchRequest { sort: vec![sorted("published", false), sorted("_score", true)], ..plain.clone() },
        v1::SearchRequest { collapse: "host".to_owned(), ..plain.clone() },
        v1::SearchRequest { facets: vec![facet(true), facet(false)], ..plain.clone() },
        plain,
    ]
}

#[tokio::test(start_paused = true)]
async fn one_two_and_three_levels_give_the_same_lists_totals_and_facets() {
    let corpus = Arc::new(ModelCorpus::generate(8, 60, 80));
    let shapes = [(64, 0, 30), (64, 0, 1), (8, 4, 30), (4, 4, 30), (2, 5, 30), (2, 5, 7)];
    let mut seen = Vec::new();
    for (fanout, aggregators, leaves) in shapes {
        let tree = tree(&corpus, leaves, fanout, aggregators);
        let mut lists = Vec::new();
        for request in requests(&tree) {
            let gathered = tree.search(request.clone(), BUDGET).await;
            assert!(check(&tree.corpus, &request, &gathered).complete(), "{fanout} {leaves}");
            let total = canopy_aggregator::merge::total(&gathered.shards);
            let facets = canopy_aggregator::merge::facets(&request.facets, &gathered.shards);
            lists.push((places(&gathered.hits), total, facets));
        }
        seen.push(lists);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    let facets = &seen[0][3].2;
    assert!(facets[0].values.iter().all(|value| value.2 == 0), "exact facets have no error");
    for (value, count, short) in &facets[1].values {
        let truth = corpus.shards.iter().flat_map(|shard| &shard.documents);
        let truth = truth.filter(|document| document.host == *value).count() as u64;
        assert!(*count <= truth && truth <= count + short, "{value}: {count} {truth} {short}");
    }
}

#[tokio::test(start_paused = true)]
async fn collapse_is_global_over_all_shards() {
    let corpus = Arc::new(ModelCorpus::generate(9, 12, 80));
    let tree = tree(&corpus, 4, 2, 2);
    let request = v1::SearchRequest { collapse: "host".to_owned(), ..tree.corpus.request(tree.query(), 50) };
    let gathered = tree.search(request.clone(), BUDGET).await;
    check(&tree.corpus, &request, &gathered);
    let mut hosts: Vec<&str> =
        gathered.hits.iter().map(|hit| hit.collapse.as_str()).filter(|host| !host.is_empty()).collect();
    let all = hosts.len();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!((hosts.len(), all), (11, 11));
}

#[tokio::test(start_paused = true)]
async fn a_dead_aggregator_is_replaced_and_without_any_the_leaves_are_asked_directly() {
    let corpus = Arc::new(ModelCorpus::generate(10, 24, 40));
    let gather = GatherConfig { fanout_max: 3, branch_shards: 2, ..Default::default() };
    for dead in 0..=2 {
        let mut tree = ModelTree::new(
            corpus.clone(),
            &Shape { leaves: 10, gather: gather.clone(), aggregators: 2, ..Default::default() },
        );
        let mut routing = (*tree.routing).clone();
        for number in 0..dead {
            let name = canopy_common::ids::NodeId::from(format!("agg-{number}").as_str());
            let aggregator = routing.nodes.remove(&name).unwrap();
            routing.nodes.insert(format!("gone-{number}").as_str().into(), aggregator);
        }
        tree.routing = Arc::new(routing);
        for _ in 0..10 {
            let request = tree.corpus.request(tree.query(), 10);
            let gathered = tree.search(request.clone(), BUDGET).await;
            assert!(
                check(&tree.corpus, &request, &gathered).complete(),
                "{dead} dead: {:?}",
                gathered.shards[0]
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_level_below_could_not_have_is_said_above_with_its_reason() {
    let corpus = Arc::new(ModelCorpus::generate(10, 24, 40));
    let tree = tree(&corpus, 6, 3, 2);
    for number in [2, 3] {
        tree.leaves[number].script(|script| script.fault = Fault::Refuse(ErrorClass::DataLoss));
    }
    let request = v1::SearchRequest { trace: true, ..tree.corpus.request(tree.query(), 10) };
    let gathered = tree.search(request.clone(), BUDGET).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!((coverage.failed, coverage.answered), (4, 20));
    assert_eq!(gathered.shards[2].error_class, ErrorClass::DataLoss as u32);
    let reason = &gathered.shards[2].reason;
    assert!(reason.contains("leaf-2") && reason.contains("leaf-3"), "{reason}");
    assert!(gathered.children[0].as_ref().is_some_and(|child| child.0.starts_with("agg-")));
    assert!(gathered.shards[0].node.starts_with("leaf-"));
    let below: usize = gathered.spans.iter().map(|span| span.children.len()).sum();
    assert!(!gathered.spans.is_empty() && below > 0, "the timeline reaches through the levels");
    assert!(gathered.tail.attempts as usize >= gathered.spans.len() + below);
    assert!(gathered.tail.retries > 0);
}

#[tokio::test(start_paused = true)]
async fn a_root_that_stops_early_keeps_what_a_slow_subtree_has_passed_on() {
    let corpus = Arc::new(ModelCorpus::generate(12, 40, 40));
    let gather = GatherConfig { fanout_max: 4, branch_shards: 2, enough_coverage: 0.8, ..Default::default() };
    let tree = ModelTree::new(
        corpus,
        &Shape { leaves: 20, replicas: 1, gather, aggregators: 2, ..Default::default() },
    );
    tree.leaves[7].script(|script| script.fault = Fault::Hang(0));
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), BUDGET).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    // The hanging leaf's subtree loses two shards, not all of them.
    assert_eq!((coverage.answered, coverage.timed_out), (38, 2));
    assert_eq!(gathered.decision, Some(canopy_aggregator::gather::Decision::Adaptive));
    let dropped: u64 = tree.leaves.iter().map(|leaf| leaf.seen.running.load(Ordering::SeqCst)).sum();
    assert_eq!(dropped, 0);
}
