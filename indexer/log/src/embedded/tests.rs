//! Tests of the embedded engine on a file system in memory that can be full, fail, write short and lose power.

mod damage;
mod model;
mod world;

use std::sync::Arc;

use bytes::Bytes;
use canopy_common::rng::Dice;

use super::*;
use world::World;

const P: u32 = 3;

fn config() -> Config {
    Config { segment_bytes: MIN_SEGMENT_BYTES, reserve_bytes: 0, ..Config::new("/log", P) }
}

fn open(world: &World) -> Result<Embedded> {
    Embedded::open_on(config(), Arc::new(world.clone()), &Dice::seeded(1))
}

fn record(partition: u32, key: &str, text: &str) -> Append {
    Append {
        partition,
        slot: (u16::from(key.as_bytes()[0]) * 3 + partition as u16) % 4096,
        key: KeyHash::of(key),
        delete: text.is_empty(),
        id: 0,
        at_us: 7,
        record: Bytes::from(text.to_owned()),
    }
}

async fn write(log: &Embedded, partition: u32, key: &str, text: &str) -> Result<u64> {
    log.append(vec![record(partition, key, text)]).await.pop().unwrap()
}

/// All that can be read, with the offsets at which a read was an error.
async fn texts(log: &Embedded, partition: u32) -> (Vec<(u64, String)>, Vec<u64>) {
    let Range { first, end } = log.ranges().await.unwrap()[partition as usize];
    let (mut at, mut found, mut bad) = (first, Vec::new(), Vec::new());
    while at < end {
        match log.read(partition, at, Slots::all(), 1 << 20).await {
            Ok(chunk) => {
                assert!(chunk.next > at, "a read goes on");
                let text = |entry: &crate::Entry| String::from_utf8(entry.record.to_vec()).unwrap();
                found.extend(chunk.entries.iter().map(|entry| (entry.offset, text(entry))));
                at = chunk.next;
            }
            Err(Error::Damaged { .. }) => {
                bad.push(at);
                at += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (found, bad)
}

#[tokio::test]
async fn a_full_disk_takes_deletes_only_and_recovers_without_a_restart() {
    let world = World::default();
    let config = Config { reserve_bytes: 10_000, ..config() };
    let log = Embedded::open_on(config, Arc::new(world.clone()), &Dice::seeded(1)).unwrap();
    world.set_free(10_100);
    let refused = write(&log, 0, "a", "some text").await.unwrap_err();
    assert!(matches!(refused, Error::Full { free: 10_100, reserve: 10_000, .. }), "{refused}");
    assert!(refused.again() && refused.to_string().contains("10100 are free"));
    assert_eq!(write(&log, 0, "a", "").await, Ok(0));
    world.set_free(1 << 30);
    assert_eq!(write(&log, 0, "a", "some text").await, Ok(1));
    assert_eq!(log.status()["refused_for_room"], 1);
}

#[tokio::test]
async fn a_failed_sync_or_write_counts_for_nothing_and_the_next_write_works() {
    let world = World::default();
    let log = open(&world).unwrap();
    assert_eq!(write(&log, 0, "a", "one").await, Ok(0));
    world.fail_syncs(3);
    assert!(matches!(write(&log, 0, "b", "two").await, Err(Error::Io { .. })));
    world.fail_syncs(0);
    world.write_at_most(Some(20));
    assert!(matches!(write(&log, 0, "c", "three").await, Err(Error::Full { .. })));
    world.write_at_most(None);
    assert_eq!(write(&log, 0, "d", "four").await, Ok(1));
    drop(log);
    let (found, bad) = texts(&open(&world).unwrap(), 0).await;
    assert_eq!((found, bad), (vec![(0, "one".to_owned()), (1, "four".to_owned())], vec![]));
}

#[tokio::test]
async fn strays_are_left_alone_and_another_format_is_refused() {
    let world = World::default();
    let log = open(&world).unwrap();
    write(&log, 0, "a", "one").await.unwrap();
    drop(log);
    for name in [".tmp123", "foo.swp", "empty", "0000000000000009.seg.bak"] {
        world.put(&format!("/log/{name}"), b"");
    }
    world.make_dir("a directory");
    assert_eq!(texts(&open(&world).unwrap(), 0).await.0.len(), 1);
    let mut bytes = world.get("/log/0000000000000001.seg");
    bytes[8] = 2;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..12]) as u32;
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    world.put("/log/0000000000000001.seg", &bytes);
    let refused = open(&world).err().unwrap();
    assert!(matches!(refused, Error::OtherFormat { found: 2, known: 1, .. }), "{refused}");
}

#[tokio::test]
async fn two_processes_cannot_open_one_log_and_a_real_directory_works() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { reserve_bytes: 0, ..Config::new(dir.path(), P) };
    let log = Embedded::open(config.clone()).unwrap();
    write(&log, 1, "a", "one").await.unwrap();
    assert!(matches!(Embedded::open(config.clone()), Err(Error::Locked(_))));
    let epoch = log.epoch();
    drop(log);
    let again = Embedded::open(config.clone()).unwrap();
    assert_eq!((again.epoch(), texts(&again, 1).await.0.len()), (epoch, 1));
    drop(again);
    let other = Config { partitions: P + 1, ..config };
    assert!(matches!(Embedded::open(other), Err(Error::Invalid { field: "partitions", .. })));
}

#[tokio::test]
async fn erased_text_is_in_no_file_and_what_is_newer_stays() {
    let world = World::default();
    let log = open(&world).unwrap();
    for (key, text) in [("a", "SECRET 1"), ("b", "other"), ("a", "SECRET 2"), ("a", ""), ("a", "newer")] {
        write(&log, 2, key, text).await.unwrap();
    }
    assert_eq!(log.erase(2, KeyHash::of("a")).await, Ok(2));
    assert!(!world.anywhere(b"SECRET"));
    assert_eq!(log.erase(2, KeyHash::of("a")).await, Ok(0));
    let left = vec![(1, "other".to_owned()), (3, String::new()), (4, "newer".to_owned())];
    assert_eq!(texts(&log, 2).await, (left.clone(), vec![]));
    assert_eq!(write(&log, 2, "c", "after").await, Ok(5));
    drop(log);
    let mut found = texts(&open(&world).unwrap(), 2).await.0;
    assert_eq!(found.pop(), Some((5, "after".to_owned())));
    assert_eq!(found, left);
}

#[tokio::test]
async fn a_segment_whose_making_was_cut_off_is_not_lost_with_the_power_after_a_restart() {
    for operations in 0..12 {
        let world = World::default();
        world.power_for(Some(operations));
        drop(open(&world));
        world.power_for(None);
        // Only the process ended: names that are not durable yet are still there.
        let log = open(&world).unwrap();
        assert_eq!(write(&log, 0, "a", "one").await, Ok(0));
        world.power_for(Some(0));
        drop(log);
        world.crash_hard();
        let found = texts(&open(&world).unwrap(), 0).await;
        assert_eq!(found, (vec![(0, "one".to_owned())], vec![]), "power for {operations} operations");
    }
}

#[tokio::test]
async fn nothing_is_written_behind_a_segment_that_could_not_be_made() {
    let world = World::default();
    let log = open(&world).unwrap();
    let long = "x".repeat(MIN_SEGMENT_BYTES as usize / 2);
    assert_eq!(write(&log, 0, "a", &long).await, Ok(0));
    world.fail_syncs(1);
    assert!(matches!(log.trim((0..P).map(|of| (of, u64::MAX)).collect()).await, Err(Error::Io { .. })));
    assert_eq!(write(&log, 0, "b", "two").await, Ok(1));
    drop(log);
    let (found, bad) = texts(&open(&world).unwrap(), 0).await;
    assert_eq!((found, bad), (vec![(0, long), (1, "two".to_owned())], vec![]));
}
