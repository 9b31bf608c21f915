//! A leaf that follows a log from its start to its end, and again.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::{
    admin::Health,
    clock::{self, WallClock},
};
use canopy_topology::routing::Routing;

use super::{
    bed::{delete, put, titles},
    log::Memory,
};
use crate::{
    config::LeafConfig,
    fixture::{self, Built, pages, until},
    health::LeafHealth,
    load,
    node::Parts,
    shards::lifecycle::{Feed, Lifecycle},
};

/// All that a leaf shows of the version that it holds newest.
fn shown(parts: &Parts) -> BTreeMap<String, String> {
    let snapshot = parts.shards.directory.snapshot();
    let newest = snapshot.all().map(|serving| serving.version).max();
    let of_newest = snapshot.all().filter(|serving| Some(serving.version) == newest);
    of_newest.flat_map(|serving| titles(&serving.view())).collect()
}

fn key(n: usize) -> String {
    format!("https://{n}.example/")
}

#[tokio::test]
async fn a_leaf_serves_what_the_log_holds_over_a_restart() {
    let built = Built::new(&pages(6), 2).await;
    let log = Memory::of("e1", 1);
    log.append(&[put(&key(0), "zero"), delete(&key(1)), put(&key(77), "new")]);
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_string_lossy().into_owned();
    let config = || LeafConfig { cache_dir: cache_dir.clone(), ..fixture::config(1, 16) };
    let routing: Routing = built.routing().into();
    let start = |parts: &Arc<Parts>| {
        let clock = Arc::new(clock::System);
        let feed = Feed { source: log.clone(), clock, metrics: parts.metrics.clone() };
        let (shards, recent) = (parts.shards.clone(), parts.recent.clone());
        let lifecycle =
            Lifecycle::new(built.store.clone(), shards, parts.config.clone(), recent, parts.drain.clone());
        let lifecycle = Arc::new(lifecycle.following(feed));
        (lifecycle.clone(), tokio::spawn(lifecycle.run(routing.clone())))
    };
    let mut expected: BTreeMap<String, String> = (2..6).map(|n| (key(n), format!("Page <{n}>"))).collect();
    expected.extend([(key(0), "zero".to_owned()), (key(77), "new".to_owned())]);
    for round in 0..2 {
        let parts = fixture::parts(config(), fixture::real());
        let (lifecycle, running) = start(&parts);
        until("every shard settles", || parts.shards.board.settled()).await;
        assert_eq!(shown(&parts), expected, "nothing serves before its overlay is replayed: round {round}");
        let ends = log.append(&[put(&key(88), &format!("round {round}")), delete(&key(5))]);
        expected.insert(key(88), format!("round {round}"));
        expected.remove(&key(5));
        until("it shows", || shown(&parts) == expected).await;
        let all = || parts.shards.directory.snapshot();
        until("all shards are there", || all().all().all(|serving| *serving.view().offsets == ends)).await;
        until("nothing waits", || load::lag_ms(&parts.shards, clock::System.now_us()) == Some(0)).await;
        assert_eq!(LeafHealth::new(parts.clone()).ready().await, Ok(()));
        let status = parts.shards.board.to_json(clock::System.now_us());
        assert_eq!(status[0]["overlay"]["stage"], "following", "{status}");
        if round == 1 {
            log.append(&(0..6).map(|n| delete(&key(n))).collect::<Vec<_>>());
            until("all of the base is gone", || shown(&parts).len() == 2).await;
            // That a shard has none of its documents any more is no damage.
            assert_eq!(LeafHealth::new(parts.clone()).ready().await, Ok(()));
        }
        parts.drain.start();
        running.await.unwrap();
        lifecycle.save().await;
    }
    let asked = log.asked();
    let again = asked.iter().filter(|from| from.get(&0) == Some(&5)).count();
    assert_eq!((asked.len(), again), (4, 2), "a restart begins where it was saved: {asked:?}");
}
