//! A leaf that stands still: its sockets are open, nothing answers.

use std::time::Duration;

use canopy_tests::{
    api::{Answered, Api},
    cluster::Shape,
    form::by_form,
    process::{Fleet, Signal},
    wait::wait_for,
};
use tokio::time::Instant;

use crate::stage::{self, EVERY, SHARDS};

/// Time of a query, so long that a machine that does other things too answers in it.
const DEADLINE_MS: &str = "1000";
/// Bound on the 99th percentile: whoever waits for the deadline twice is found out. The aim is 5 ms more than the deadline.
const GENEROUS_MS: f64 = 1900.0;

async fn all(api: &Api, timeout_ms: &str) -> Answered {
    let asked = [
        EVERY,
        ("completion", "all"),
        ("timeout_ms", timeout_ms),
        ("k", "10"),
        ("total", "exact"),
        ("snippet", "false"),
    ];
    api.search("web", &asked).await
}

fn took(answered: &Answered) -> f64 {
    answered.json["took_ms"].as_f64().unwrap_or(f64::MAX)
}

#[test]
fn one_of_four_costs_its_documents_and_the_deadline_and_nothing_else() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::start(&stage.store(), &Shape::flat(4, 1), &[("web", SHARDS)], |_| ()).await;
        let root = fleet.root();
        let whole = all(&root, "60000").await.ok();
        let total: u64 = stage.documents.iter().sum();
        assert_eq!(whole.documents(), (total, 0, total));
        fleet.signal("leaf-2", Signal::Stop);
        let (mut times, mut timed_out, mut exact) = (Vec::new(), 0, 0);
        let began = Instant::now();
        let count = by_form(60, 200, 2000);
        while times.len() < count {
            // Several at a time: a frozen leaf holds each of them to the deadline.
            let batch = futures::future::join_all((0..20).map(|_| all(&root, DEADLINE_MS))).await;
            // Pings go unanswered, too: later the leaf is known to be gone, and is not waited for.
            let known = began.elapsed() > Duration::from_secs(3);
            for answered in batch {
                let answered = answered.ok();
                answered.adds_up();
                let missing = answered.json["coverage"]["missing"].as_array().cloned().unwrap_or_default();
                let line =
                    missing.iter().find(|line| line["shard"] == "main/2").expect("the frozen leaf's shard");
                assert_eq!(line["documents"], stage.documents[2]);
                let outcome = line["outcome"].as_str().unwrap_or_default();
                // Once pings went unanswered, what it was asked fails at once.
                let gone = known && ["unavailable", "failed"].contains(&outcome);
                assert!(outcome == "timed_out" || gone, "{line}");
                timed_out += usize::from(outcome == "timed_out");
                assert!(answered.degraded().contains(&"partial"));
                assert_eq!(answered.json["total"]["lower_bound"], true);
                exact += usize::from(answered.documents() == (total - stage.documents[2], 0, total));
                times.push(took(&answered));
            }
        }
        times.sort_by(f64::total_cmp);
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!(
            "one of four leaves frozen, {DEADLINE_MS} ms: p50 {p50:.1} ms, p99 {p99:.1} ms, max {:.1} ms, {} queries in {:?}",
            times[times.len() - 1],
            times.len(),
            began.elapsed()
        );
        // A machine that is busy elsewhere may hold up a leaf that is not frozen; it is then missing too, and said so.
        println!("{exact} of {} had exactly the documents of the other three leaves", times.len());
        assert!(exact * 100 >= times.len() * 95, "{exact} of {}", times.len());
        assert!(timed_out >= 20, "{timed_out}");
        assert!(p99 <= GENEROUS_MS, "p99 {p99} ms");
        // All of them: no answer, in time, with an account.
        for leaf in ["leaf-0", "leaf-1", "leaf-3"] {
            fleet.signal(leaf, Signal::Stop);
        }
        let nothing = all(&root, DEADLINE_MS).await;
        assert_eq!(nothing.status, 504, "{}", nothing.json);
        assert_eq!(nothing.json["error"]["code"], "DEADLINE_EXCEEDED");
        nothing.adds_up();
        assert_eq!(nothing.documents(), (0, 0, total));
        assert_eq!(nothing.json["coverage"]["documents"]["ratio"], 0.0);
        // They come back by themselves.
        for leaf in 0..4 {
            fleet.signal(&format!("leaf-{leaf}"), Signal::Continue);
        }
        let began = Instant::now();
        let back = wait_for("a whole answer", Duration::from_mins(1), || async {
            let answered = all(&root, "2000").await;
            (answered.degraded().is_empty() && answered.status == 200).then_some(answered)
        })
        .await;
        println!("whole again {:?} after the leaves went on", began.elapsed());
        assert_eq!(back.places(), whole.places());
    });
}

#[test]
fn a_frozen_replica_is_found_dead_and_the_other_answers() {
    stage::run(|stage| async move {
        let mut fleet =
            Fleet::start(&stage.store(), &Shape::two_levels(2, 2), &[("web", SHARDS)], |config| {
                config.rpc.keepalive_interval = canopy_common::config::Time::ms(500);
                config.rpc.keepalive_timeout = canopy_common::config::Time::ms(500);
            })
            .await;
        let root = fleet.root();
        let whole = all(&root, "60000").await.ok();
        fleet.signal("leaf-1", Signal::Stop);
        let began = Instant::now();
        // Queries that picked it run into their deadline, until the connection is found dead; then the other is asked.
        wait_for("ten whole answers in a row", Duration::from_mins(1), || async {
            for _ in 0..10 {
                let answered = all(&root, DEADLINE_MS).await;
                if answered.status != 200
                    || !answered.degraded().is_empty()
                    || answered.places() != whole.places()
                {
                    answered.adds_up();
                    return None;
                }
            }
            Some(())
        })
        .await;
        println!("a frozen replica is no longer missed after {:?} (pings every 500 ms)", began.elapsed());
        fleet.signal("leaf-1", Signal::Continue);
        let before = fleet.admin("leaf-1").metric("canopy_leaf_outcomes_total").await;
        wait_for("the replica to be asked again", Duration::from_mins(2), || async {
            all(&root, "2000").await.ok();
            (fleet.admin("leaf-1").metric("canopy_leaf_outcomes_total").await > before).then_some(())
        })
        .await;
    });
}
