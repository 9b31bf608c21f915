//! A leaf whose copy of the store is damaged sets that shard aside by name; the replica with a sound copy answers.

use canopy_format::store::VersionStore;
use canopy_tests::{
    cluster::{Shape, copy_store},
    process::Fleet,
};

use crate::stage::{self, EVERY, SHARDS};

#[test]
fn the_other_replica_answers_for_a_damaged_one() {
    stage::run(|stage| async move {
        let copy = stage.shelf.dir().join("damaged");
        copy_store(&stage.store(), &copy);
        let store = VersionStore::open(&copy.to_string_lossy(), false).expect("a store");
        let manifest = store.latest("web").await.expect("a version");
        let dir = store.version_dir("web", manifest.version).expect("a directory");
        // One byte in one shard, a file cut short in another.
        let largest = |shard: usize| {
            let file = manifest.shards[shard].files.iter().max_by_key(|file| file.bytes).expect("a file");
            dir.join(&file.path)
        };
        let mut bytes = std::fs::read(largest(0)).expect("a file");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(largest(0), bytes).expect("damage");
        let bytes = std::fs::read(largest(1)).expect("a file");
        std::fs::write(largest(1), &bytes[..bytes.len() / 3]).expect("damage");

        let mut fleet = Fleet::prepare(&stage.store(), &Shape::flat(2, 2), &[("web", SHARDS)], |_| ()).await;
        fleet.spawn("leaf-0", &[format!("store.url={:?}", copy.to_string_lossy())]);
        fleet.spawn("leaf-1", &[]);
        fleet.spawn("root-0", &[]);
        for id in ["leaf-0", "leaf-1", "root-0"] {
            fleet.wait_ready(id).await;
        }
        let status = fleet.admin("leaf-0").get("/status").await.ok().json;
        let states: Vec<(&str, &str)> = status["shards"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|shard| {
                (shard["shard"].as_str().unwrap_or_default(), shard["state"].as_str().unwrap_or_default())
            })
            .collect();
        assert_eq!(
            states,
            [
                ("main/0", "quarantined"),
                ("main/1", "quarantined"),
                ("main/2", "serving"),
                ("main/3", "serving")
            ],
            "{status}"
        );
        let mut by_leaf = [0, 0];
        let asked =
            [EVERY, ("timeout_ms", "60000"), ("completion", "all"), ("total", "exact"), ("explain", "true")];
        // Several at once: of two idle replicas the one that was a little faster gets all that comes alone.
        let root = fleet.root();
        for _ in 0..10 {
            for answered in futures::future::join_all((0..6).map(|_| root.search("web", &asked))).await {
                let answered = answered.ok();
                answered.adds_up();
                assert_eq!(answered.degraded(), [""; 0], "{}", answered.json["coverage"]);
                assert_eq!(answered.documents().0, manifest.documents());
                for hit in answered.hits() {
                    let node = hit["explain"]["provenance"]["node"].as_str().unwrap_or_default();
                    by_leaf[usize::from(node == "leaf-1")] += 1;
                }
            }
        }
        assert!(
            by_leaf[0] > 0 && by_leaf[1] > 0,
            "the damaged leaf still serves its sound shards: {by_leaf:?}"
        );
        let log = fleet.log("leaf-0");
        assert!(log.contains("main/0") && log.contains("damaged"), "{log}");
    });
}
