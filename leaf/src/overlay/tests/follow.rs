//! The loop against a log in memory: replay to a goal, refresh, restarts, gaps, a log that goes away.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use canopy_common::{clock, config::Time};
use canopy_format::store::Ordering;
use canopy_log::Slots;
use canopy_proto::v1::SearchRequest;
use parking_lot::Mutex;
use serde_json::Value as Json;

use super::{
    bed::{self, base, delete, expect, patch, put, titles},
    log::Memory,
};
use crate::{
    fixture::until,
    overlay::{
        Follower, Following,
        checkpoint::Of,
        config::OverlayConfig,
        follow::{Report, Stage, Wanted},
        ground::Ground,
    },
    shards::{Serving, background::Priority, files::ShardFiles},
};

struct Bed {
    log: Arc<Memory>,
    ground: Arc<Ground>,
    dir: tempfile::TempDir,
    config: OverlayConfig,
    report: Arc<Mutex<Report>>,
}

impl Bed {
    fn new(documents: &[(Json, u64)]) -> Self {
        Self {
            log: Memory::new("e1"),
            ground: bed::ground(documents, Ordering::Log, true),
            dir: tempfile::tempdir().unwrap(),
            config: OverlayConfig { refresh: Time::ms(10), ..OverlayConfig::default() },
            report: Arc::default(),
        }
    }

    fn saved(&self) -> &Path {
        self.dir.path()
    }

    fn follow_from(&self, epoch: &str, cut: &[(u32, u64)]) -> Follower {
        let report = self.report.clone();
        let name = Of { corpus: "web".into(), version: 1, shard: "main/0".into(), base: "b".into() };
        Follower::start(Following {
            wanted: Wanted {
                corpus: "web".into(),
                epoch: epoch.into(),
                slots: Slots::all().as_bytes().to_vec().into(),
                node: "leaf-1".into(),
            },
            cut: cut.iter().copied().collect(),
            source: self.log.clone(),
            ground: self.ground.clone(),
            config: self.config.clone(),
            checkpoint: (self.saved().join("overlay"), name),
            clock: Arc::new(clock::System),
            priority: Priority::Equal,
            tell: Box::new(move |told| *report.lock() = told.clone()),
        })
    }

    /// From the beginning of whatever log.
    fn follow(&self) -> Follower {
        self.follow_from("", &[(0, 0), (1, 0)])
    }
}

fn serving(follower: &Follower) -> Arc<Serving> {
    let serving =
        Serving::new("web".into(), follower.view(), ShardFiles::default(), SearchRequest::default(), 1);
    let serving = Arc::new(serving);
    follower.attach(&serving);
    serving
}

async fn shows(serving: &Serving, expected: &[(&str, &str)]) {
    let expected = expect(expected);
    until("the expected documents show", || titles(&serving.view()) == expected).await;
}

fn reached(serving: &Serving, ends: &BTreeMap<u32, u64>) -> bool {
    *serving.view().offsets == *ends
}

#[tokio::test]
async fn what_is_written_shows_and_what_is_deleted_does_not() {
    let bed = Bed::new(&base(&[("a", "a0"), ("b", "b0")]));
    bed.log.append(&[put("x", "x1"), delete("a")]);
    let follower = bed.follow();
    assert_eq!(follower.caught_up(None).await, Stage::CaughtUp);
    // Its goal was what the log held when it began.
    assert_eq!(titles(&follower.view()), expect(&[("b", "b0"), ("x", "x1")]));
    let serving = serving(&follower);
    let before = serving.view();
    let ends = bed.log.append(&[patch("b", "b1"), delete("x"), put("y", "y1")]);
    shows(&serving, &[("b", "b1"), ("y", "y1")]).await;
    assert!(reached(&serving, &ends));
    assert_eq!(
        titles(&before),
        expect(&[("b", "b0"), ("x", "x1")]),
        "a view that a query has does not change"
    );
    until("nothing waits", || serving.view().lag.ms(clock_us()) == 0).await;
    assert!(!serving.view().lag.stale());
}

fn clock_us() -> i64 {
    use canopy_common::clock::WallClock;
    clock::System.now_us()
}

#[tokio::test]
async fn poison_in_the_log_goes_to_the_dead_letters_and_the_rest_shows() {
    let bed = Bed::new(&[]);
    bed.log.poison("x");
    bed.log.append(&[patch("nobody", "n"), put("x", "x1")]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    assert_eq!(titles(&follower.view()), expect(&[("x", "x1")]));
    until("both are handed over", || bed.log.letters().len() == 2).await;
    let letters = bed.log.letters();
    assert!(
        letters
            .iter()
            .all(|letter| letter.by == "leaf leaf-1" && letter.at_us > 0 && !letter.reason.is_empty())
    );
    until("both are counted", || bed.report.lock().counts.refused == 2).await;
}

/// Killed at any moment: what was deleted stays deleted, and after a graceful end nothing is replayed.
#[tokio::test]
async fn a_restart_replays_what_came_since_the_checkpoint_only() {
    let bed = Bed::new(&base(&[("a", "a0"), ("b", "b0")]));
    let ends = bed.log.append(&[put("x", "x1"), delete("a")]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    follower.save(Duration::from_mins(1)).await;
    drop(follower);
    bed.log.append(&[delete("b"), put("x", "x2")]);
    for killed in [true, false] {
        let follower = bed.follow();
        follower.caught_up(None).await;
        assert_eq!(titles(&follower.view()), expect(&[("x", "x2")]), "{killed}");
        if !killed {
            follower.save(Duration::from_mins(1)).await;
        }
    }
    let asked = bed.log.asked();
    assert_eq!(asked, [BTreeMap::from([(0, 0), (1, 0)]), ends.clone(), ends]);
    // The log is away: it shows what it saved.
    bed.log.away(true);
    let follower = bed.follow();
    until("the checkpoint shows", || titles(&follower.view()) == expect(&[("x", "x2")])).await;
    assert_eq!(follower.stage(), Stage::Replaying);
}

/// A checkpoint that can't be read is not used.
#[tokio::test]
async fn a_damaged_checkpoint_is_dropped_and_everything_replayed() {
    let bed = Bed::new(&base(&[("a", "a0")]));
    bed.log.append(&[put("x", "x1"), delete("a")]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    follower.save(Duration::from_mins(1)).await;
    drop(follower);
    let state = bed.saved().join("overlay/state");
    let mut bytes = std::fs::read(&state).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&state, bytes).unwrap();
    let follower = bed.follow();
    follower.caught_up(None).await;
    assert_eq!(titles(&follower.view()), expect(&[("x", "x1")]));
    assert_eq!(bed.log.asked().last(), Some(&BTreeMap::from([(0, 0), (1, 0)])));
}

/// Two versions of a shard at a time: each from its own cut, both show everything; what the newer one has in its base it does
/// not lay over it again.
#[tokio::test]
async fn a_new_version_replays_from_its_cut_while_the_old_one_serves() {
    let old = Bed::new(&base(&[("a", "a0"), ("b", "b0")]));
    let cut = old.log.append(&[put("x", "x1"), delete("a")]);
    let follower = old.follow();
    follower.caught_up(None).await;
    let serves = serving(&follower);
    let new = Bed { log: old.log.clone(), ..Bed::new(&base(&[("b", "b0"), ("x", "x1")])) };
    let goal = old.log.append(&[put("x", "x2"), put("y", "y1")]);
    let cut: Vec<(u32, u64)> = cut.into_iter().collect();
    let next = new.follow_from("e1", &cut);
    assert_eq!(next.caught_up(None).await, Stage::CaughtUp);
    assert!(goal.iter().all(|(partition, goal)| next.view().offsets[partition] >= *goal));
    let takes_over = serving(&next);
    shows(&takes_over, &[("b", "b0"), ("x", "x2"), ("y", "y1")]).await;
    assert_eq!(
        takes_over.view().tombstones.len(),
        1,
        "what the version has deleted is no tombstone any more"
    );
    // Both live on.
    let ends = old.log.append(&[delete("b"), put("y", "y2")]);
    for serving in [&serves, &takes_over] {
        shows(serving, &[("x", "x2"), ("y", "y2")]).await;
        assert!(reached(serving, &ends));
    }
}

#[tokio::test]
async fn a_gap_is_stale_and_goes_on_serving_until_a_newer_version_comes() {
    let bed = Bed::new(&base(&[("a", "a0")]));
    let ends = bed.log.append(&[put("x", "x1")]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    let serving = serving(&follower);
    bed.log.anew("e2");
    until("it is noticed", || serving.view().lag.stale()).await;
    assert_eq!(follower.stage(), Stage::Lost);
    assert_eq!(titles(&serving.view()), expect(&[("a", "a0"), ("x", "x1")]));
    until("it is told", || bed.report.lock().stale.contains("e2")).await;
    // Trimmed beyond what is wanted; and a version of another log.
    let trimmed = Bed::new(&base(&[("a", "a0")]));
    trimmed.log.append(&[put("x", "x1"), put("x", "x2"), put("y", "y")]);
    trimmed.log.trim(1);
    for (epoch, cut) in [("", [(0, 0), (1, 0)]), ("e9", [(0, 1), (1, 1)])] {
        let late = trimmed.follow_from(epoch, &cut);
        assert_eq!(late.caught_up(None).await, Stage::Lost, "{epoch}");
        assert_eq!(titles(&late.view()), expect(&[("a", "a0")]));
    }
    // A version whose cut the new log has is well.
    let ends: BTreeMap<u32, u64> = ends.into_keys().map(|partition| (partition, 0)).collect();
    let cured = Bed { log: bed.log.clone(), ..Bed::new(&base(&[("a", "a0"), ("x", "x1")])) };
    let cut: Vec<(u32, u64)> = ends.into_iter().collect();
    assert_eq!(cured.follow_from("e2", &cut).caught_up(None).await, Stage::CaughtUp);
}

#[tokio::test]
async fn a_log_that_comes_back_is_followed_on() {
    let bed = Bed::new(&[]);
    bed.log.append(&[put("x", "x1")]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    let serving = serving(&follower);
    bed.log.away(true);
    until("it is stale", || serving.view().lag.stale()).await;
    assert!(serving.view().lag.ms(clock_us() + 10_000_000) >= 10_000, "nobody knows what came since");
    bed.log.append(&[delete("x"), put("y", "y1")]);
    bed.log.away(false);
    shows(&serving, &[("y", "y1")]).await;
    until("it is well", || !serving.view().lag.stale()).await;
}

/// A follower of a shard that is served no more ends by itself.
#[tokio::test]
async fn a_follower_ends_when_nobody_can_see_what_it_shows() {
    let bed = Bed::new(&[]);
    let follower = bed.follow();
    follower.caught_up(None).await;
    let held = Arc::downgrade(&serving(&follower));
    assert!(held.upgrade().is_none());
    bed.log.append(&[put("x", "x1")]);
    follower.ended().await;
}
