//! A root that serves two versions, and what it tells of them.

use canopy_common::ids::Version;
use canopy_proto::v1::QueryRequest;
use canopy_topology::routing::{ALL_QUERIES, CorpusRouting, Pin, RoutingSnapshot, VersionRouting};

use super::*;
use crate::{
    config::RootConfig,
    fixture::{self, Tree, VERSION, tree},
};

/// The fixture's tree with a version on trial that the same leaves hold.
fn on_trial(shadow: u32, share: u32) -> Tree {
    let tree = tree(2, 30, RootConfig::default());
    let new = Version(VERSION + 1);
    let mut state = fixture::corpus(2, 30);
    state.manifest.version = new;
    tree.root.versions.publish(state);
    let now = tree.root.routing.now();
    let held = VersionRouting { held: now.corpora["web"].shards.clone(), ..VersionRouting::default() };
    let control = Version(VERSION);
    let corpus = CorpusRouting {
        pins: vec![Pin { version: new, share }, Pin { version: control, share: ALL_QUERIES - share }],
        trial: Some(Trial { version: new, control, shadow, compared: share }),
        versions: [(control, held.clone()), (new, held)].into(),
        ..CorpusRouting::default()
    };
    let corpora = [("web".to_owned(), corpus)].into();
    let epoch = canopy_common::ids::Epoch(now.epoch.0 + 1);
    tree.root.routing.publish(RoutingSnapshot { epoch, corpora, nodes: now.nodes.clone() });
    tree
}

async fn ask(tree: &Tree, change: impl FnOnce(&mut QueryRequest)) -> Result<Answer> {
    let mut request = QueryRequest { corpus: "web".into(), q: "rust".into(), ..Default::default() };
    change(&mut request);
    let query = tree.root.dice.query_id();
    tree.root.search(&Asked { query, arrival: Instant::now(), limit: None, request }).await
}

#[tokio::test(start_paused = true)]
async fn both_arms_are_counted_and_named_versions_are_not() {
    let tree = on_trial(0, ALL_QUERIES / 4);
    let mut treated = 0;
    for _ in 0..200 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        treated += u64::from(answer.version.wanted == VERSION + 1);
    }
    ask(&tree, |request| request.version = VERSION + 1).await.unwrap();
    assert!(ask(&tree, |request| request.k = Some(1_000_000)).await.is_err(), "bad input is nobody's fault");
    let seen = tree.root.trials.take();
    let [seen] = seen.as_slice() else { panic!("{seen:?}") };
    let comparison = &seen.comparison;
    assert_eq!((comparison.treatment.queries, comparison.treatment.latencies.len()), (treated, treated));
    assert!((25..80).contains(&treated), "{treated}");
    assert!((25..80).contains(&comparison.control.queries), "an equal part: {}", comparison.control.queries);
    assert_eq!((comparison.treatment.errors, comparison.control.errors), (0, 0));
    assert!(tree.root.trials.take().is_empty(), "told once");
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_on_its_version() {
    let tree = on_trial(0, ALL_QUERIES / 2);
    let mut versions = std::collections::BTreeSet::new();
    for user in 0..20 {
        let session = format!("user-{user}");
        let mut of_user = std::collections::BTreeSet::new();
        for _ in 0..5 {
            of_user.insert(
                ask(&tree, |request| request.session.clone_from(&session)).await.unwrap().version.wanted,
            );
        }
        assert_eq!(of_user.len(), 1);
        versions.extend(of_user);
    }
    assert_eq!(versions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn shadowed_queries_are_asked_of_both_and_compared() {
    let tree = on_trial(ALL_QUERIES, 0);
    for _ in 0..10 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        assert_eq!(answer.version.wanted, VERSION, "what people see is the old one's");
        while tree.root.trials.shadows.available_permits() < SHADOWS {
            tokio::task::yield_now().await;
        }
    }
    let seen = tree.root.trials.take();
    let comparison = &seen[0].comparison;
    assert_eq!((comparison.treatment.queries, comparison.control.queries), (10, 10));
    assert_eq!(comparison.overlap.queries, 10);
    assert!((comparison.overlap.mean() - 1.0).abs() < 1e-9 && comparison.rank_biased_overlap.mean() > 0.99);
}
