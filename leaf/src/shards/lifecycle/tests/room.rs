//! What does not fit is refused with its numbers, what makes room by itself is waited for, and a store that hangs holds up nobody.

use canopy_topology::link::Progress;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use super::*;
use crate::shards::holdings::condition;

/// Progress of a version, as the topology service is told.
fn told(leaf: &Following, version: Version) -> Vec<Progress> {
    let held = condition(&leaf.parts.shards.board).holdings.into_iter();
    held.filter(|held| held.version == version).map(|held| held.progress).collect()
}

fn states(leaf: &Following) -> Vec<(State, bool)> {
    leaf.parts.shards.board.all().into_iter().map(|(_, line)| (line.state, line.wanted)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_does_not_fit_beside_the_other_is_refused_and_one_that_is_wanted_no_more_makes_room() {
    let mut built = Built::new(&pages(30), 1).await;
    let old = built.manifest.clone();
    built.next(&pages(40)).await;
    let new = built.manifest.clone();
    let (one, other) = (old.shards[0].resident_bytes, new.shards[0].resident_bytes);
    let config = LeafConfig {
        memory: canopy_common::config::Size(one.max(other) + 10),
        retain: canopy_common::config::Time::ms(600_000),
        ..fixture::config(1, 16)
    };
    let mut leaf = Following::new(built.store.clone(), config);
    leaf.want(&[old.version], 1);
    leaf.serves(old.version, 1).await;
    leaf.want(&[old.version, new.version], 1);
    until("the refusal", || leaf.lines(new.version).first().is_some_and(|line| line.state == State::Failed))
        .await;
    let reason = leaf.lines(new.version)[0].last_error.clone();
    let free = one.max(other) + 10 - one;
    let shard = canopy_common::ids::ShardId::new("main", 0);
    let said = crate::error::Error::NoRoom { what: "memory", shard, need: other, free }.to_string();
    assert!(reason.contains(&said), "{reason}");
    let refused = Progress::Failed { reason, everywhere: false };
    assert_eq!(told(&leaf, new.version), [refused]);
    let at = std::mem::replace(&mut built.manifest, old.clone());
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 30), "the old one serves on");
    // Now the old one is turned away from. A query has just asked of it, so it is not sent away, but waited for.
    leaf.want(&[new.version], 1);
    until("it waits", || told(&leaf, new.version) == [Progress::Loading]).await;
    built.manifest = at;
    leaf.serves(new.version, 1).await;
    assert!(leaf.lines(old.version).is_empty(), "long before its ten minutes");
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_start_no_more_is_taken_on_than_fits() {
    let built = Built::new(&pages(90), 3).await;
    let needs: Vec<u64> = built.manifest.shards.iter().map(|entry| entry.resident_bytes).collect();
    let config = LeafConfig {
        memory: canopy_common::config::Size(needs.iter().sum::<u64>() - 1),
        open_threads: 3,
        ..fixture::config(1, 16)
    };
    let mut leaf = Following::new(built.store.clone(), config);
    leaf.want(&[built.manifest.version], 3);
    until("all settle", || leaf.parts.shards.board.settled()).await;
    let lines = leaf.lines(built.manifest.version);
    let count = |state| lines.iter().filter(|line| line.state == state).count();
    assert_eq!((count(State::Serving), count(State::Failed)), (2, 1), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_does_not_keep_the_leaf_from_following() {
    let built = Built::new(&pages(10), 1).await;
    let hangs = ThrottleConfig { wait_get_per_call: Duration::from_hours(1), ..Default::default() };
    let objects = ThrottledStore::new(Arc::into_inner(in_memory(&built).await).unwrap(), hangs);
    let cache = tempfile::tempdir().unwrap();
    let mut leaf = Following::new(VersionStore::remote(Arc::new(objects)), copying(cache.path()));
    leaf.want(&[built.manifest.version], 1);
    until("it is asked for", || states(&leaf) == [(State::Fetching, true)]).await;
    leaf.want(&[], 0);
    until("it is wanted no more", || states(&leaf) == [(State::Fetching, false)]).await;
    leaf.want(&[built.manifest.version], 1);
    until("it is wanted again", || states(&leaf) == [(State::Fetching, true)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_is_a_reason_and_not_the_end() {
    let mut built = Built::new(&pages(30), 1).await;
    let old = built.manifest.clone();
    let cache = tempfile::tempdir().unwrap();
    let mut leaf = Following::new(built.store.clone(), copying(cache.path()));
    leaf.want(&[old.version], 1);
    leaf.serves(old.version, 1).await;
    built.next(&pages(40)).await;
    let new = built.manifest.clone();
    // What the next version is written to takes no byte.
    let fulls: Vec<PathBuf> = new.shards[0]
        .files
        .iter()
        .map(|file| {
            let path = kept(cache.path(), new.version).join(format!("{}.part", file.path));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/dev/full", &path).unwrap();
            path
        })
        .collect();
    leaf.want(&[old.version, new.version], 1);
    until("the failure", || matches!(told(&leaf, new.version)[..], [Progress::Failed { .. }])).await;
    let reason = leaf.lines(new.version)[0].last_error.clone();
    assert!(reason.contains("No space left") && reason.contains(".part"), "{reason}");
    built.manifest = old;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 30), "the old one serves on");
    for full in fulls {
        std::fs::remove_file(full).unwrap();
    }
    leaf.serves(new.version, 1).await;
    built.manifest = new.clone();
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 40));
    // What came of a version that failed goes with it.
    built.next(&pages(50)).await;
    let next = built.manifest.clone();
    let at = kept(cache.path(), next.version);
    let path = at.join(format!("{}.part", next.shards[0].files[0].path));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    leaf.want(&[new.version, next.version], 1);
    until("the failure", || matches!(told(&leaf, next.version)[..], [Progress::Failed { .. }])).await;
    leaf.want(&[new.version], 1);
    until("its files are gone", || !at.exists()).await;
}
