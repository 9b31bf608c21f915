//! A root whose snapshot names a version that nobody holds any more.

use canopy_common::ids::Epoch;
use canopy_proto::v1::QueryRequest;
use canopy_topology::routing::{CorpusRouting, VersionRouting};
use tokio::time::{advance, sleep};

use super::*;
use crate::{
    answer::Answer,
    config::RootConfig,
    error::{Error, Result},
    fixture::{self, Tree, VERSION},
};

const NEXT: u64 = VERSION + 1;

/// Two rows of two shards, pinned to a version by the snapshot of epoch 2.
fn pinned() -> Tree {
    let tree = fixture::rows(2, 2, 30, RootConfig::default());
    assert!(tree.root.routing.publish(snapshot(&tree, 2, VERSION)));
    tree
}

fn snapshot(tree: &Tree, epoch: u64, version: u64) -> RoutingSnapshot {
    let leaves = |shard| [0, 1].map(|row| fixture::leaf_of(row, shard)).into();
    let held = (0..2).map(|shard| (ShardId::new("main", shard), leaves(shard))).collect();
    let version = Version(version);
    let corpus = CorpusRouting {
        pins: vec![Pin { version, share: ALL_QUERIES }],
        versions: [(version, VersionRouting { held, ..VersionRouting::default() })].into(),
        ..CorpusRouting::default()
    };
    let nodes = tree.root.routing.now().nodes.clone();
    RoutingSnapshot {
        epoch: Epoch(epoch),
        nodes,
        corpora: [("web".to_owned(), corpus)].into(),
        ..Default::default()
    }
}

/// All leaves have one version and no other, by the snapshot of that epoch.
fn holds(tree: &Tree, version: u64, epoch: u64) {
    for leaf in tree.rows.iter().flatten() {
        *leaf.holds.lock() = Some((version, epoch));
        leaf.seen.lock().clear();
    }
}

fn open(tree: &Tree, version: u64) {
    let mut state = fixture::corpus(2, 30);
    state.manifest.version = Version(version);
    tree.root.versions.publish(state);
}

async fn ask(tree: &Tree, change: impl FnOnce(&mut QueryRequest)) -> Result<Answer> {
    let mut request =
        QueryRequest { corpus: "web".into(), q: "rust".into(), timeout_ms: 1000, ..Default::default() };
    change(&mut request);
    let query = tree.root.dice.query_id();
    tree.root.search(&Asked { query, arrival: Instant::now(), limit: None, request }).await
}

async fn whole(tree: &Tree) -> Answer {
    let answer = ask(tree, |_| ()).await.unwrap();
    assert!(answer.coverage.complete, "{:?}", answer.degraded);
    answer
}

fn follows(tree: &Tree) -> Value {
    tree.root.versions.followed.status(tree.root.routing.now().epoch)
}

fn asked_of(tree: &Tree, version: u64) -> usize {
    let leaves = tree.rows.iter().flatten();
    leaves.map(|leaf| leaf.seen.lock().iter().filter(|search| search.version == version).count()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_root_that_is_cut_off_serves_what_the_leaves_serve_until_a_newer_snapshot_comes() {
    let tree = pinned();
    open(&tree, NEXT);
    assert_eq!(whole(&tree).await.version.wanted, VERSION);
    holds(&tree, NEXT, 9);
    let first = whole(&tree).await;
    assert_eq!(first.version.wanted, NEXT);
    assert!(first.warnings.iter().any(|warning| warning.code == "repinned"), "{:?}", first.warnings);
    assert_eq!(follows(&tree)[0]["state"], "serving");
    holds(&tree, NEXT, 9);
    for _ in 0..20 {
        let answer = whole(&tree).await;
        assert_eq!((answer.version.wanted, answer.warnings.len()), (NEXT, 0));
    }
    assert_eq!(asked_of(&tree, VERSION), 0, "the others are asked of it at once");
    // Another one, and back.
    open(&tree, NEXT + 1);
    holds(&tree, NEXT + 1, 12);
    assert_eq!(whole(&tree).await.version.wanted, NEXT + 1);
    holds(&tree, NEXT, 15);
    assert_eq!(whole(&tree).await.version.wanted, NEXT);
    // What is heard rules.
    tree.root.routing.publish(snapshot(&tree, 16, VERSION));
    holds(&tree, VERSION, 16);
    assert_eq!(whole(&tree).await.version.wanted, VERSION);
    assert_eq!(follows(&tree), json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_version_is_served_once_its_statistics_are_open() {
    let tree = pinned();
    holds(&tree, NEXT, 9);
    let error = ask(&tree, |request| request.timeout_ms = 400).await.unwrap_err();
    assert!(matches!(error, Error::NothingAnswered { .. }), "{error}");
    assert_eq!(follows(&tree)[0]["state"], "opening");
    let wanted = tree.root.routed();
    assert!(wanted.corpora["web"].versions.contains_key(&Version(NEXT)), "so it is opened");
    assert_eq!(wanted.corpora["web"].main(), Some(Version(VERSION)));
    let opened = async {
        sleep(Duration::from_millis(300)).await;
        open(&tree, NEXT);
    };
    let (answer, ()) = tokio::join!(whole(&tree), opened);
    assert_eq!(answer.version.wanted, NEXT);
    assert_eq!(follows(&tree)[0]["state"], "serving");
}

#[tokio::test(start_paused = true)]
async fn queries_do_not_wait_for_what_does_not_open() {
    let tree = pinned();
    holds(&tree, NEXT, 9);
    assert!(ask(&tree, |_| ()).await.is_err());
    advance(OPENS).await;
    let start = Instant::now();
    assert!(ask(&tree, |_| ()).await.is_err());
    assert!(start.elapsed() < Duration::from_millis(150), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn leaves_that_are_late_are_not_followed_and_named_versions_are_kept() {
    let tree = pinned();
    open(&tree, NEXT);
    holds(&tree, NEXT, 2);
    assert!(ask(&tree, |_| ()).await.is_err());
    holds(&tree, NEXT, 9);
    assert!(ask(&tree, |request| request.version = VERSION).await.is_err());
    assert_eq!(follows(&tree), json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_root_that_was_stopped_goes_by_the_newer_snapshot_that_it_finds() {
    let tree = pinned();
    holds(&tree, NEXT, 3);
    let heard = async {
        sleep(Duration::from_millis(20)).await;
        tree.root.routing.publish(snapshot(&tree, 3, NEXT));
        sleep(Duration::from_millis(200)).await;
        open(&tree, NEXT);
    };
    let (answer, ()) = tokio::join!(whole(&tree), heard);
    assert_eq!(answer.version.wanted, NEXT);
    assert_eq!(follows(&tree), json!([]));
}

#[tokio::test(start_paused = true)]
async fn queries_that_wait_for_a_version_leave_half_of_the_places_to_others() {
    let config = RootConfig { min_in_flight: 4, max_in_flight: 4, queue: 0, ..RootConfig::default() };
    let tree = fixture::rows(2, 2, 30, config);
    // The next version is what queries get from now on, and is not open here yet; the old one is kept.
    let mut next = snapshot(&tree, 2, NEXT);
    let corpus = next.corpora.get_mut("web").unwrap();
    let held = corpus.versions[&Version(NEXT)].clone();
    corpus.versions.insert(Version(VERSION), held);
    tree.root.versions.follow(&next);
    assert!(tree.root.routing.publish(next));
    let begun = Instant::now();
    let one = || async {
        let refused = matches!(ask(&tree, |_| ()).await, Err(Error::NotOpen { .. }));
        (refused, begun.elapsed())
    };
    let others = async {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(tree.root.gate.admission().in_flight(), 2, "two wait");
        ask(&tree, |request| request.version = VERSION).await.expect("its version is open")
    };
    let (first, second, third, fourth, answer) = tokio::join!(one(), one(), one(), one(), others);
    assert_eq!(answer.version.wanted, VERSION);
    let waited =
        [first, second, third, fourth].map(|(refused, time)| (refused, time > Duration::from_millis(100)));
    assert_eq!(waited, [(true, true), (true, true), (true, false), (true, false)]);
}
