//! Judged queries are asked of both versions, once, and what can't be asked is nobody's fault.

use canopy_topology::routing::{CorpusRouting, RoutingSnapshot, VersionRouting};
use parking_lot::Mutex;

use super::*;
use crate::{
    config::RootConfig,
    fixture::{self, Mood, Tree, VERSION},
};

const GATE: u64 = 4;

struct Service {
    tasks: Mutex<Vec<(String, Trial)>>,
    queries: Vec<JudgedQuery>,
    given: Mutex<u32>,
}

impl Tasks for Service {
    fn tasks(&self) -> Vec<(String, Trial)> {
        self.tasks.lock().clone()
    }

    fn queries<'a>(
        &'a self,
        corpus: &'a str,
        gate: u64,
    ) -> BoxFuture<'a, std::result::Result<Vec<JudgedQuery>, String>> {
        assert_eq!((corpus, gate), ("web", GATE));
        let mut given = self.given.lock();
        *given += 1;
        let first = *given == 1;
        let answer = if first { Err("away".to_owned()) } else { Ok(self.queries.clone()) };
        futures::future::ready(answer).boxed()
    }
}

fn trial() -> Trial {
    Trial { version: Version(VERSION + 1), control: Version(VERSION), shadow: 0, compared: 0, gate: GATE }
}

/// Both versions are on the same leaves; the new one is told on the wire as failing where a test wants that.
fn tree() -> Tree {
    let tree = fixture::tree(2, 20, RootConfig::default());
    let mut state = fixture::corpus(2, 20);
    state.manifest.version = Version(VERSION + 1);
    tree.root.versions.publish(state);
    let now = tree.root.routing.now();
    let held = VersionRouting { held: now.corpora["web"].shards.clone(), ..VersionRouting::default() };
    let corpus = CorpusRouting {
        versions: [(Version(VERSION), held.clone()), (Version(VERSION + 1), held)].into(),
        ..CorpusRouting::default()
    };
    let corpora = [("web".to_owned(), corpus)].into();
    let epoch = canopy_common::ids::Epoch(now.epoch.0 + 1);
    tree.root.routing.publish(RoutingSnapshot { epoch, corpora, ..(*now).clone() });
    tree
}

/// The first hits of the fixture have the best score of each shard.
fn query(q: &str, good: &str) -> JudgedQuery {
    JudgedQuery { q: q.to_owned(), gains: [(good.to_owned(), 1)].into() }
}

fn service(queries: Vec<JudgedQuery>) -> Arc<Service> {
    let tasks = Mutex::new(vec![("web".to_owned(), trial())]);
    Arc::new(Service { tasks, queries, given: Mutex::default() })
}

/// Works on what it is told, in the background.
fn work(tree: &Tree, service: &Arc<Service>) {
    let (root, service) = (tree.root.clone(), service.clone());
    tokio::spawn(async move { run(&root, &*service).await });
}

async fn told(tree: &Tree) -> Vec<Paired> {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let seen = tree.root.trials.take();
        if !seen.is_empty() {
            assert!(seen.iter().all(|seen| seen.gate == GATE));
            return seen.into_iter().filter_map(|seen| seen.comparison.judged).collect();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn both_versions_are_asked_and_their_sums_told_once() {
    let tree = tree();
    // Found first, found among the first ten, not found.
    let queries = vec![
        query("rust", "https://example.org/0/0"),
        query("search", "https://example.org/1/5"),
        query("tree", "https://example.org/none"),
    ];
    let service = service(queries);
    work(&tree, &service);
    let [sums] = told(&tree).await.try_into().unwrap();
    assert_eq!((sums.before.queries, sums.after.queries, sums.difference.queries), (3, 3, 3));
    assert!(sums.before.mean() > 0.2 && sums.difference.mean().abs() < 1e-12, "{sums:?}");
    let asked: Vec<_> = tree.leaves.iter().flat_map(|leaf| leaf.seen.lock().clone()).collect();
    assert!(asked.iter().all(|request| request.priority == canopy_proto::v1::Priority::Batch as i32));
    for version in [VERSION, VERSION + 1] {
        assert_eq!(asked.iter().filter(|request| request.version == version).count(), 6);
    }
    // Still told a moment later: it is on its way.
    let again = tokio::time::timeout(Duration::from_secs(20), told(&tree)).await;
    assert!(again.is_err());
    // After a minute it was lost.
    assert_eq!(told(&tree).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_answers_nothing_has_no_gain_and_what_can_not_be_asked_is_left_out() {
    let tree = tree();
    tree.leaves.iter().for_each(|leaf| leaf.lost.lock().0 = VERSION + 1);
    let long = "x ".repeat(6_000);
    let service =
        service(vec![query("rust", "https://example.org/0/0"), query(&long, "https://example.org/0/0")]);
    work(&tree, &service);
    let [sums] = told(&tree).await.try_into().unwrap();
    assert_eq!((sums.before.queries, sums.after.queries), (1, 1));
    assert!(sums.before.mean() > 0.0 && sums.after.mean() == 0.0, "{sums:?}");
}

#[tokio::test(start_paused = true)]
async fn load_costs_the_round_and_a_task_that_is_over_is_left() {
    let tree = tree();
    tree.leaves.iter().for_each(|leaf| *leaf.search.lock() = Mood::Hangs);
    let service = service(vec![query("rust", "https://example.org/0/0"); 3]);
    work(&tree, &service);
    let over = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        service.tasks.lock().clear();
        tree.leaves.iter().for_each(|leaf| *leaf.search.lock() = Mood::Answers);
    };
    let judged = async { tokio::join!(told(&tree), over).0 };
    assert!(tokio::time::timeout(Duration::from_mins(3), judged).await.is_err(), "nobody waits for it");
}
