//! Processes that are asked to leave: whoever looks is told first, everything is answered meanwhile, then they go.

use std::time::Duration;

use canopy_common::{config::Time, net::NetIo};
use canopy_tests::{
    cluster::Shape,
    process::{Fleet, Signal},
    wait::wait_for,
};
use tokio::time::Instant;

use crate::{
    load::{Load, Told},
    stage::{self, EVERY, SHARDS},
};

const LAME_DUCK: Duration = Duration::from_secs(3);
/// By then a probe has been answered, or nobody is there any more who could.
const PATIENCE: Duration = Duration::from_secs(20);

async fn fleet(store: &std::path::Path, shape: &Shape) -> Fleet {
    Fleet::start(store, shape, &[("web", SHARDS)], |config| {
        config.rpc.lame_duck = Time::ms(LAME_DUCK.as_millis() as u64);
    })
    .await
}

#[test]
fn a_root_says_so_and_answers_every_new_connection_before_it_refuses_one() {
    stage::run(|stage| async move {
        let mut fleet = fleet(&stage.store(), &Shape::flat(2, 2)).await;
        let root = fleet.root();
        let load = Load::start(root.clone(), Duration::from_millis(20), &[EVERY, ("timeout_ms", "20000")]);
        let begun = Instant::now();
        fleet.signal("root-0", Signal::Terminate);
        wait_for("the root to say that it leaves", PATIENCE, || async {
            (root.try_get("/healthz/ready").await?.status == 503).then_some(())
        })
        .await;
        let told = begun.elapsed();
        let refused = wait_for("the root to refuse", PATIENCE, || async {
            NetIo::tcp().connect(root.address()).await.is_err().then(|| begun.elapsed())
        })
        .await;
        let status = fleet.ended("root-0").await;
        let answers = load.told().await;
        println!("told after {told:?}, refused after {refused:?}, {} queries", answers.len());
        assert!(status.success(), "{status}");
        assert!(refused >= LAME_DUCK, "{refused:?}");
        // Those of the last moment may meet the closed door.
        let early = |told: &&Told| told.answered.is_none() && told.came < begun + LAME_DUCK;
        assert_eq!(answers.iter().filter(early).count(), 0, "of {}", answers.len());
        let answered = || answers.iter().filter_map(|told| told.answered.as_ref());
        assert!(answered().all(|answer| answer.status == 200));
        let closes = answered().filter(|answer| {
            answer.headers.get("connection").is_some_and(|value| value.as_bytes() == b"close")
        });
        assert!(closes.count() > 0, "clients are told to move on");
    });
}

#[test]
fn leaves_and_aggregators_leave_without_a_query_that_notices() {
    stage::run(|stage| async move {
        let mut fleet = fleet(&stage.store(), &Shape::two_levels(2, 2)).await;
        let parameters = [EVERY, ("timeout_ms", "20000"), ("completion", "all")];
        let load = Load::start(fleet.root(), Duration::from_millis(50), &parameters);
        for id in ["aggregator-1", "leaf-1"] {
            let admin = fleet.admin(id);
            let begun = Instant::now();
            fleet.signal(id, Signal::Terminate);
            wait_for(&format!("{id} to say that it leaves"), PATIENCE, || async {
                (admin.try_get("/healthz/ready").await?.status == 503).then_some(())
            })
            .await;
            let accepted = NetIo::tcp().connect(&fleet.node(id).address).await.is_ok();
            assert!(accepted || begun.elapsed() >= LAME_DUCK, "it accepts while it leaves");
            let status = fleet.ended(id).await;
            assert!(status.success(), "{id}: {status}");
            assert!(begun.elapsed() >= LAME_DUCK, "{id}: {:?}", begun.elapsed());
        }
        let answers = load.finish().await;
        let whole = |answer: &canopy_tests::api::Answered| {
            answer.status == 200 && answer.json["coverage"]["complete"] == true
        };
        let bad: Vec<_> = answers.iter().filter(|answer| !answer.as_ref().is_some_and(whole)).collect();
        assert!(bad.is_empty(), "{} of {}: {:?}", bad.len(), answers.len(), bad.first());
    });
}

#[test]
fn a_second_signal_ends_it_at_once() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::start(&stage.store(), &Shape::flat(1, 1), &[("web", SHARDS)], |config| {
            config.rpc.lame_duck = Time::ms(60_000);
        })
        .await;
        fleet.signal("leaf-0", Signal::Terminate);
        // What comes within a moment of the first is taken for the same one.
        let status = wait_for("the leaf to end", Duration::from_secs(20), || {
            let ended = fleet.try_ended("leaf-0");
            if ended.is_none() {
                fleet.signal("leaf-0", Signal::Terminate);
            }
            async move { ended }
        })
        .await;
        assert_eq!(status.code(), Some(1));
        assert!(fleet.log("leaf-0").contains("stopped by a second SIGTERM"), "{}", fleet.log("leaf-0"));
    });
}
