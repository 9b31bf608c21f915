//! One leaf whose wire is slow, loses segments, or is dead, under a steady load: hedges and the picker go around it, no
//! query fails or lacks a document, and it is used again once the wire is sound.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    api::{Answered, Api},
    cluster::Shape,
    form::by_form,
    process::Fleet,
    proxy::Wire,
    wait::wait_for,
};

use crate::{
    load::callers,
    stage::{self, SHARDS},
};

const ASKED: [(&str, &str); 6] = [
    ("q", "river garden"),
    ("k", "10"),
    ("timeout_ms", "10000"),
    ("completion", "all"),
    ("total", "none"),
    ("snippet", "false"),
];
/// Callers at a time.
const CALLERS: usize = 2;
/// What is added to half as much again as the healthy tail, for a machine that does other things too. Without a way
/// around, a slow wire adds 200 ms, and a dead one the deadline.
const GENEROUS_MS: f64 = 150.0;

/// What a load saw: 50th, 95th and 99th percentile, and the hedges.
struct Seen {
    queries: usize,
    p50: f64,
    p95: f64,
    p99: f64,
    hedges: u64,
}

/// Lets a load run and judges its answers; all of them but those sent in the first `unjudged` count for the times.
async fn judged(what: &str, root: &Api, whole: &Answered, time: Duration, unjudged: Duration) -> Seen {
    let (mut times, mut hedges) = (Vec::new(), 0);
    for (at, answered) in callers(CALLERS, root, time, &ASKED).await {
        let answered = answered.unwrap_or_else(|| panic!("{what}: a connection to the root failed")).ok();
        answered.adds_up();
        assert_eq!(answered.degraded(), [""; 0], "{what}: {}", answered.json);
        assert_eq!(answered.places(), whole.places(), "{what}");
        hedges += answered.json["tail"]["hedges"].as_u64().unwrap_or(0);
        if at >= unjudged {
            times.push(answered.json["took_ms"].as_f64().unwrap_or(f64::MAX));
        }
    }
    times.sort_by(f64::total_cmp);
    let quantile = |share: usize| times[times.len() * share / 100];
    let seen = Seen { queries: times.len(), p50: quantile(50), p95: quantile(95), p99: quantile(99), hedges };
    println!(
        "{what}: {} queries, 0 failed or partial, p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms, {} hedges",
        seen.queries, seen.p50, seen.p95, seen.p99, seen.hedges
    );
    seen
}

/// Lets loads run until one is hardly slower than a sound wire. A machine that does other things too adds to one or the other, and
/// takes nothing off any.
async fn hardly_slower(
    what: &str,
    root: &Api,
    whole: &Answered,
    time: Duration,
    unjudged: Duration,
    healthy: &Seen,
) {
    let bound = 1.5 * healthy.p95 + GENEROUS_MS;
    for _ in 0..5 {
        if judged(what, root, whole, time, unjudged).await.p95 <= bound {
            return;
        }
    }
    panic!("{what}: the 95th percentile stays above {bound} ms");
}

#[test]
fn a_leaf_behind_a_bad_wire_costs_no_query_and_little_time() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::prepare(&stage.store(), &Shape::flat(4, 2), &[("web", SHARDS)], |config| {
            config.rpc.keepalive_interval = Time::ms(500);
            config.rpc.keepalive_timeout = Time::ms(500);
        })
        .await;
        let proxy = fleet.behind_proxy("leaf-1").await;
        fleet.spawn_all();
        fleet.wait_all_ready().await;
        let (root, leaf) = (fleet.root(), fleet.admin("leaf-1"));
        let whole = root.search("web", &ASKED).await.ok();
        let time = Duration::from_secs(by_form(3, 5, 20));
        judged("warming up", &root, &whole, time, Duration::ZERO).await;
        let healthy = judged("a sound wire", &root, &whole, time, Duration::ZERO).await;
        let wires = [
            ("200 ms slow", Wire::Slow(Duration::from_millis(200))),
            ("5 % of the segments lost", Wire::Lossy(0.05)),
            ("dead", Wire::Dead),
        ];
        for (what, wire) in wires {
            proxy.set(wire);
            hardly_slower(what, &root, &whole, time, Duration::from_secs(1), &healthy).await;
            proxy.set(Wire::Sound);
            let before = leaf.metric("canopy_leaf_outcomes_total").await;
            wait_for("the leaf to be asked again", Duration::from_mins(2), || async {
                root.search("web", &ASKED).await.ok();
                (leaf.metric("canopy_leaf_outcomes_total").await > before + 5.0).then_some(())
            })
            .await;
        }
        hardly_slower("sound again", &root, &whole, time, Duration::ZERO, &healthy).await;
    });
}
