//! Two versions at once: both arms of a comparison are offered the same leaves, a search that is wanted whole ends where it
//! can't be, and one that was planned by an old snapshot is asked again by the newer one, once.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{
    config::GatherConfig,
    gather::{Decision, Gathered},
};
use canopy_common::{
    error::ErrorClass,
    ids::{Epoch, NodeId, ShardId, Version},
};
use canopy_proto::v1;
use canopy_tests::{
    invariants::{check, coverage, places},
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape},
};
use canopy_topology::routing::{CorpusRouting, RoutingSnapshot, VersionRouting};
use tokio::time::Instant;

const BUDGET: Duration = Duration::from_millis(300);
/// What the model leaves answer from.
const OWN: u64 = 7;
const OTHER: u64 = 8;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn tree(shape: Shape) -> ModelTree {
    ModelTree::new(Arc::new(ModelCorpus::even(5, 8, 40)), &shape)
}

/// Four leaves that all hold all shards.
fn wide() -> ModelTree {
    tree(Shape { leaves: 4, replicas: 4, ..Shape::default() })
}

/// A snapshot in which each version is held by these leaves, all shards by all of them.
fn held(tree: &ModelTree, epoch: u64, versions: &[(u64, &[usize])]) -> Arc<RoutingSnapshot> {
    let of = |leaves: &[usize]| {
        let leaves: Arc<[NodeId]> =
            leaves.iter().map(|leaf| NodeId::from(format!("leaf-{leaf}").as_str())).collect();
        let each = tree.corpus.shards.iter();
        let held = each.map(|shard| (shard.name.parse::<ShardId>().expect("a shard"), leaves.clone()));
        VersionRouting { held: held.collect(), ..VersionRouting::default() }
    };
    let versions = versions.iter().map(|(version, leaves)| (Version(*version), of(leaves))).collect();
    let corpus = CorpusRouting { versions, ..CorpusRouting::default() };
    let nodes = tree.routing.nodes.clone();
    Arc::new(RoutingSnapshot {
        epoch: Epoch(epoch),
        nodes,
        corpora: [("web".to_owned(), corpus)].into(),
        ..Default::default()
    })
}

/// The same with leaves that should hold the version too and have not said so.
fn wanted(mut routing: RoutingSnapshot, leaves: &[usize]) -> Arc<RoutingSnapshot> {
    let leaves: Arc<[NodeId]> =
        leaves.iter().map(|leaf| NodeId::from(format!("leaf-{leaf}").as_str())).collect();
    for corpus in routing.corpora.values_mut() {
        for version in corpus.versions.values_mut() {
            version.wanted = version.held.keys().map(|shard| (shard.clone(), leaves.clone())).collect();
        }
    }
    Arc::new(routing)
}

fn searches(tree: &ModelTree) -> Vec<u64> {
    tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).collect()
}

async fn ask(tree: &ModelTree, routing: &Arc<RoutingSnapshot>, request: &v1::SearchRequest) -> Gathered {
    let context = tree.context(BUDGET);
    tree.gatherer.search(&context, routing, Arc::new(request.clone())).await
}

async fn ask_whole(
    tree: &ModelTree,
    routing: &Arc<RoutingSnapshot>,
    request: &v1::SearchRequest,
) -> Gathered {
    let context = tree.context(BUDGET);
    tree.gatherer.search_whole(&context, routing, Arc::new(request.clone())).await
}

fn request(tree: &ModelTree, beside: u64) -> v1::SearchRequest {
    v1::SearchRequest { beside, ..tree.corpus.request(tree.query(), 10) }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_asks_only_who_holds_both_versions_also_when_it_hedges_or_fails() {
    for aggregators in [0, 2] {
        let gather = GatherConfig { fanout_max: 2, branch_shards: 1, ..GatherConfig::default() };
        let tree = tree(Shape { leaves: 4, replicas: 4, aggregators, gather, seed: 3 });
        let routing = held(&tree, 2, &[(OWN, &[0, 1, 2, 3]), (OTHER, &[1, 2])]);
        tree.current.publish(routing.clone());
        tree.leaves[1].script(|script| script.shard = ms(30));
        for _ in 0..40 {
            let request = request(&tree, OTHER);
            let gathered = ask(&tree, &routing, &request).await;
            assert!(check(&tree.corpus, &request, &gathered).complete());
        }
        tree.leaves[2].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
        for _ in 0..40 {
            ask(&tree, &routing, &request(&tree, OTHER)).await;
        }
        let seen = searches(&tree);
        assert!(seen[0] == 0 && seen[3] == 0 && seen[1] > 0 && seen[2] > 0, "{aggregators}: {seen:?}");
        ask(&tree, &routing, &request(&tree, 0)).await;
        for _ in 0..20 {
            ask(&tree, &routing, &request(&tree, 0)).await;
        }
        let seen = searches(&tree);
        assert!(seen[0] > 0 && seen[3] > 0, "who compares nothing may ask all: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_nobody_holds_in_both_is_unavailable() {
    let tree = wide();
    let routing = held(&tree, 2, &[(OWN, &[0, 1]), (OTHER, &[2, 3])]);
    let request = request(&tree, OTHER);
    let gathered = ask(&tree, &routing, &request).await;
    assert_eq!(coverage(&request, &gathered).unavailable, 8);
    assert_eq!(searches(&tree), [0; 4]);
}

#[tokio::test(start_paused = true)]
async fn who_should_hold_a_shard_and_did_not_say_so_is_asked_when_nobody_else_is_left() {
    for aggregators in [0, 2] {
        let gather = GatherConfig { fanout_max: 2, branch_shards: 1, ..GatherConfig::default() };
        let tree = tree(Shape { leaves: 4, replicas: 4, aggregators, gather, seed: 4 });
        let known = |epoch, leaves: &[usize], coming: &[usize]| {
            let routing = wanted((*held(&tree, epoch, &[(OWN, leaves)])).clone(), coming);
            tree.current.publish(routing.clone());
            routing
        };
        // Not while others answer.
        let routing = known(2, &[0, 1], &[0, 1, 2]);
        let request = request(&tree, 0);
        for _ in 0..20 {
            assert!(check(&tree.corpus, &request, &ask(&tree, &routing, &request).await).complete());
        }
        assert_eq!(searches(&tree)[2..], [0, 0]);
        for leaf in [0, 1] {
            tree.leaves[leaf].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
        }
        for _ in 0..20 {
            assert!(check(&tree.corpus, &request, &ask(&tree, &routing, &request).await).complete());
        }
        assert!(searches(&tree)[2] > 0 && searches(&tree)[3] == 0);
        // Nor in a search that has another version to go to; aggregators do not know that it has.
        let before = searches(&tree)[2];
        let gathered = ask_whole(&tree, &routing, &request).await;
        let lost = (gathered.decision, searches(&tree)[2]) == (Some(Decision::Lost), before);
        assert_eq!(lost, aggregators == 0);
        // Where nobody is known to hold it at all.
        let routing = known(3, &[], &[2]);
        assert!(check(&tree.corpus, &request, &ask(&tree, &routing, &request).await).complete());
        // One that has nothing says so, and that is the end.
        let routing = known(4, &[0], &[1]);
        let start = Instant::now();
        let gathered = ask(&tree, &routing, &request).await;
        assert_eq!(coverage(&request, &gathered).unavailable, 8);
        assert!(start.elapsed() < ms(50), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_had_whole_ends_at_once_and_what_nobody_holds_costs_nothing() {
    let tree = wide();
    let nobody = held(&tree, 2, &[(OWN, &[])]);
    let start = Instant::now();
    let gathered = ask_whole(&tree, &nobody, &request(&tree, 0)).await;
    assert_eq!((gathered.decision, start.elapsed()), (Some(Decision::Lost), Duration::ZERO));
    assert_eq!((searches(&tree), gathered.tail.attempts), (vec![0; 4], 0));
    // The only leaf that holds half of the shards dies while the others take their time.
    let tree = self::tree(Shape { leaves: 2, replicas: 1, ..Shape::default() });
    tree.leaves[0].script(|script| script.fault = Fault::Fail(ErrorClass::Unavailable, 0));
    tree.leaves[1].script(|script| script.start = ms(200));
    let start = Instant::now();
    let gathered = ask_whole(&tree, &tree.routing.clone(), &request(&tree, 0)).await;
    assert_eq!(gathered.decision, Some(Decision::Lost));
    assert!(start.elapsed() < ms(5), "{:?}: the time is left for the other version", start.elapsed());
    // Who wants what there is gets it.
    let request = request(&tree, 0);
    let part = ask(&tree, &tree.routing.clone(), &request).await;
    assert_eq!(check(&tree.corpus, &request, &part).answered, 4);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_known_to_fail_are_not_asked_by_who_has_something_better() {
    let tree = wide();
    let routing = held(&tree, 2, &[(OWN, &[0, 1])]);
    for leaf in 0..2 {
        tree.leaves[leaf].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
    }
    for _ in 0..10 {
        ask(&tree, &routing, &request(&tree, 0)).await;
    }
    let before = searches(&tree);
    let gathered = ask_whole(&tree, &routing, &request(&tree, 0)).await;
    assert_eq!((gathered.decision, searches(&tree)), (Some(Decision::Lost), before));
    // Well again, they are found so by shadows, since nothing else asks them.
    for leaf in 0..2 {
        tree.leaves[leaf].script(|script| script.fault = Fault::None);
    }
    let mut whole = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let gathered = ask_whole(&tree, &routing, &request(&tree, 0)).await;
        whole += u32::from(gathered.decision != Some(Decision::Lost));
    }
    assert!(whole >= 10, "{whole}");
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_when_no_time_is_left_for_another_search_is_answered_in_part() {
    let tree = tree(Shape { leaves: 2, replicas: 1, ..Shape::default() });
    tree.leaves[0]
        .script(|script| (script.fault, script.start) = (Fault::Refuse(ErrorClass::Unavailable), ms(200)));
    let request = request(&tree, 0);
    let gathered = ask_whole(&tree, &tree.routing.clone(), &request).await;
    assert!(gathered.decision != Some(Decision::Lost), "{:?}", gathered.decision);
    assert_eq!(check(&tree.corpus, &request, &gathered).answered, 4);
}

#[tokio::test(start_paused = true)]
async fn giving_up_is_paid_for_and_without_budget_the_part_is_taken() {
    let gather = GatherConfig { extra_work_floor: 0, extra_work_burst: 4, ..GatherConfig::default() };
    let tree = tree(Shape { leaves: 2, replicas: 1, gather, ..Shape::default() });
    tree.leaves[0]
        .script(|script| (script.fault, script.start) = (Fault::Refuse(ErrorClass::Unavailable), ms(5)));
    tree.leaves[1].script(|script| script.start = ms(20));
    let routing = tree.routing.clone();
    let mut lost = 0;
    for _ in 0..4 {
        let request = request(&tree, 0);
        let gathered = ask_whole(&tree, &routing, &request).await;
        if gathered.decision == Some(Decision::Lost) {
            lost += 1;
        } else {
            assert_eq!(check(&tree.corpus, &request, &gathered).answered, 4);
            assert!(gathered.tail.budget_denied > 0);
        }
    }
    assert_eq!(lost, 1, "four shards had been begun, which is all that was saved up");
}

#[tokio::test(start_paused = true)]
async fn a_leaf_without_the_version_is_asked_elsewhere_free_of_charge_and_stays_in_use() {
    let gather =
        GatherConfig { extra_work_floor: 0, extra_work_burst: 1, extra_work: 0.0, ..GatherConfig::default() };
    let tree = tree(Shape { leaves: 2, replicas: 2, gather, ..Shape::default() });
    tree.leaves[0].script(|script| (script.fault, script.batch) = (Fault::Unheld(1), 16));
    for _ in 0..30 {
        let request = request(&tree, 0);
        let gathered = ask(&tree, &tree.routing.clone(), &request).await;
        assert!(check(&tree.corpus, &request, &gathered).complete());
        assert_eq!(gathered.tail.budget_denied, 0);
    }
    assert!(tree.gatherer.loads().of(&"leaf-0".into()).seen(Instant::now()).ejected.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_newer_snapshot_is_waited_for_once_and_its_leaves_are_asked() {
    let tree = wide();
    let (old, new) = (held(&tree, 2, &[(OWN, &[0])]), held(&tree, 3, &[(OWN, &[0, 2, 3])]));
    tree.current.publish(old.clone());
    tree.leaves[0].script(|script| script.fault = Fault::Unheld(3));
    let asked = request(&tree, 0);
    // It comes after 20 ms.
    let start = Instant::now();
    let (gathered, ()) = tokio::join!(ask(&tree, &old, &asked), async {
        tokio::time::sleep(ms(20)).await;
        tree.current.publish(new.clone());
    });
    assert!(check(&tree.corpus, &asked, &gathered).complete());
    assert!((ms(20)..ms(60)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(searches(&tree)[0], 1, "who does not have it is not asked again");
    // It is here already: nobody waits.
    let start = Instant::now();
    let gathered = ask(&tree, &old, &asked).await;
    assert!(check(&tree.corpus, &asked, &gathered).complete());
    assert!(start.elapsed() < ms(20), "{:?}", start.elapsed());
    let healthy = wide();
    assert_eq!(places(&gathered.hits), places(&ask(&healthy, &healthy.routing.clone(), &asked).await.hits));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_snapshot_is_bounded_and_happens_once() {
    let tree = wide();
    let old = held(&tree, 2, &[(OWN, &[0])]);
    tree.current.publish(old.clone());
    tree.leaves[0].script(|script| script.fault = Fault::Unheld(9));
    let asked = request(&tree, 0);
    let start = Instant::now();
    let gathered = ask(&tree, &old, &asked).await;
    assert!((ms(90)..ms(120)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(coverage(&asked, &gathered).failed, 8);
    assert!(gathered.shards[0].reason.contains("leaf-0"), "{}", gathered.shards[0].reason);
    // The newer one sends it to another leaf that does not have it either: that is all.
    let tree = wide();
    let (old, new) = (held(&tree, 2, &[(OWN, &[0])]), held(&tree, 9, &[(OWN, &[1])]));
    tree.leaves[0].script(|script| script.fault = Fault::Unheld(9));
    tree.leaves[1].script(|script| script.fault = Fault::Unheld(12));
    tree.current.publish(new);
    let start = Instant::now();
    let gathered = ask(&tree, &old, &asked).await;
    assert!(start.elapsed() < ms(20), "{:?}", start.elapsed());
    assert_eq!(coverage(&asked, &gathered).failed, 8);
    assert_eq!(searches(&tree), [1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_aggregator_that_is_behind_its_caller_waits_for_the_callers_snapshot() {
    let gather = GatherConfig { fanout_max: 2, branch_shards: 1, ..GatherConfig::default() };
    let tree = tree(Shape { leaves: 4, replicas: 4, aggregators: 2, gather, seed: 3 });
    let new = held(&tree, 5, &[(OWN, &[1, 2])]);
    tree.current.publish(held(&tree, 4, &[(OTHER, &[0])]));
    let asked = v1::SearchRequest { epoch: 5, ..request(&tree, 0) };
    let (gathered, ()) = tokio::join!(ask(&tree, &new, &asked), async {
        tokio::time::sleep(ms(10)).await;
        tree.current.publish(new.clone());
    });
    assert!(check(&tree.corpus, &asked, &gathered).complete());
    let seen = searches(&tree);
    assert!(seen[0] == 0 && seen[3] == 0, "{seen:?}");
}
