//! Searches that wait for offsets of the log: what leaves say of their overlays passes every level, and that they take their time
//! is held against nobody.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{config::GatherConfig, hedge::HedgeMode};
use canopy_proto::v1;
use canopy_tests::{
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::Script,
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const WANTED: [v1::PartitionOffset; 2] =
    [v1::PartitionOffset { partition: 1, offset: 7 }, v1::PartitionOffset { partition: 3, offset: 9 }];

fn tree(aggregators: usize) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::even(5, 8, 20));
    let gather = GatherConfig { fanout_max: if aggregators > 0 { 2 } else { 64 }, ..GatherConfig::default() };
    ModelTree::new(corpus, &Shape { aggregators, gather, ..Shape::default() })
}

fn waiting(tree: &ModelTree, hedge: Option<HedgeMode>) -> v1::SearchRequest {
    let all = v1::Completion { mode: v1::completion::Mode::All as i32, ..Default::default() };
    v1::SearchRequest {
        wanted_offsets: WANTED.to_vec(),
        completion: Some(all),
        hedge: hedge.map(canopy_aggregator::hedge::HedgeMode::to_wire),
        ..tree.corpus.request(tree.query(), 10)
    }
}

fn behind(tree: &ModelTree, behind: Duration) {
    for leaf in &tree.leaves {
        leaf.script(|script| *script = Script { behind, overlay: 3, ..Script::default() });
    }
}

#[tokio::test(start_paused = true)]
async fn what_leaves_say_of_their_overlays_passes_every_level() {
    for aggregators in [0, 2] {
        let tree = tree(aggregators);
        for (late, stale) in [(ms(50), false), (ms(5000), true)] {
            behind(&tree, late);
            let (request, start) = (waiting(&tree, None), Instant::now());
            let gathered = tree.search(request.clone(), ms(300)).await;
            assert!(start.elapsed() >= ms(50) && start.elapsed() <= ms(300), "{:?}", start.elapsed());
            let coverage = check(&tree.corpus, &request, &gathered);
            assert!(coverage.complete(), "stale or not");
            assert_eq!(coverage.documents_searched, tree.corpus.documents(), "the overlay counts apart");
            for shard in &gathered.shards {
                assert_eq!((shard.stale, shard.documents_overlay), (stale, 3), "{aggregators}: {shard:?}");
                assert_eq!(u128::from(shard.lag_ms), late.as_millis());
                assert_eq!(shard.offsets.len(), if stale { 1 } else { 3 });
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_that_waits_is_never_hedged() {
    for mode in [None, Some(HedgeMode::Tied), Some(HedgeMode::Delay(ms(5))), Some(HedgeMode::Factor(2))] {
        let tree = tree(0);
        behind(&tree, ms(150));
        let gathered = tree.search(waiting(&tree, mode), ms(300)).await;
        assert_eq!((gathered.tail.hedges, gathered.tail.retries), (0, 0), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_it_took_its_time_is_held_against_no_replica() {
    let tree = tree(0);
    // The first leaf waits long, again and again; the others have what is wanted.
    behind(&tree, Duration::ZERO);
    tree.leaves[0].script(|script| script.behind = ms(5000));
    for _ in 0..100 {
        tree.search(waiting(&tree, None), ms(300)).await;
    }
    let before = tree.leaves[0].seen.searches.load(Ordering::SeqCst);
    let plain = |tree: &ModelTree| v1::SearchRequest { wanted_offsets: Vec::new(), ..waiting(tree, None) };
    for _ in 0..100 {
        let gathered = tree.search(plain(&tree), ms(300)).await;
        assert!(gathered.shards.iter().all(|shard| !shard.stale), "it does not wait unasked");
    }
    let searches = tree.leaves[0].seen.searches.load(Ordering::SeqCst) - before;
    assert!(searches > 50, "it is asked like the others: {searches}");
}
