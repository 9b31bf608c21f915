//! A version takes the place of another under load, with real processes: no query fails, none is mixed or partial; the way
//! back takes a moment and no download; and all of it goes on while the topology service is away.

use std::time::Duration;

use canopy_tests::{process::Signal, wait::wait_for};
use tokio::time::Instant;

use crate::{
    load::{Load, Told, after_the_first, pass},
    served::{PATIENCE, Served, publish, store, version},
    stage::{self, EVERY},
};

/// One that is baked long enough to be seen in each step, and kept for a rollback.
const QUICK: &str = r#"
retain = "10min"
grace = "1s"
steps = [
    { percent = 0, bake = "300ms", sample = 0 },
    { percent = 1, bake = "300ms", sample = 0 },
    { percent = 50, bake = "500ms", sample = 0 },
    { percent = 100, bake = "300ms", sample = 0 },
]
"#;

#[test]
fn a_swap_under_load_fails_mixes_and_cuts_no_answer_and_the_way_back_is_at_once() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "swapped");
        let old = store.latest("web").await.expect("a version").version;
        let old_documents: u64 = stage.documents.iter().sum();
        let mut served = Served::start(&directory, QUICK).await;
        let (ok, text) = served.try_command(&["rollout", "pause", "--corpus", "web"]).await;
        assert!(!ok && text.contains("no rollout is under way"), "{text}");
        served.first(old).await;

        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &parameters);
        let new = publish(&directory, &store, 9, 1500).await;
        let dry = served
            .command(&["rollout", "start", "--corpus", "web", "--version", &new.0.to_string(), "--dry-run"])
            .await;
        assert!(dry.contains("50 %") && dry.contains("100 %"), "{dry}");
        served.roll_out(new).await;
        served.all_on(new).await;
        let root = served.fleet.root();
        wait_for("an answer of the new version", PATIENCE, || async {
            let answer = root.search("web", &parameters).await;
            (answer.json["version"]["wanted"].as_u64() == Some(new.0)).then_some(())
        })
        .await;
        pass(Duration::from_millis(300)).await;
        let answers = load.finish().await;
        let seen: Vec<(u64, u64)> = answers.iter().map(|answer| version(answer.as_ref())).collect();
        let count = |wanted: (u64, u64)| seen.iter().filter(|seen| **seen == wanted).count();
        println!(
            "{} answers: {} of {old}, {} of {new}",
            seen.len(),
            count((old.0, old_documents)),
            count((new.0, 1500))
        );
        assert_eq!(
            count((old.0, old_documents)) + count((new.0, 1500)),
            seen.len(),
            "each whole, of one version"
        );
        assert_eq!((seen[0].0, seen[seen.len() - 1].0), (old.0, new.0));

        // Back, under load again.
        let load = Load::start(served.fleet.root(), Duration::from_millis(10), &parameters);
        pass(Duration::from_millis(200)).await;
        let begun = Instant::now();
        let done = served.command(&["rollback", "--corpus", "web", "--reason", "a test"]).await;
        wait_for("an answer of the old version", PATIENCE, || async {
            let answer = root.search("web", &parameters).await;
            (answer.json["version"]["wanted"].as_u64() == Some(old.0)).then_some(())
        })
        .await;
        println!("back after {:?}: {}", begun.elapsed(), done.trim());
        pass(Duration::from_millis(200)).await;
        let told = load.told().await;
        let of_old = |told: &Told| version(told.answered.as_ref()).0 == old.0;
        let later = after_the_first(&told, of_old);
        assert!(later.into_iter().all(of_old), "no query goes to it any more");
        let audit = served.command(&["topology", "audit"]).await;
        assert!(audit.contains("a test") && audit.contains(&format!("{new}")), "{audit}");
    });
}

#[test]
fn queries_and_a_restarted_leaf_need_no_topology_service() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "alone");
        let only = store.latest("web").await.expect("a version").version;
        let mut served = Served::start(&directory, QUICK).await;
        served.first(only).await;
        served.fleet.signal("topology-0", Signal::Kill);
        served.fleet.ended("topology-0").await;
        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &parameters);
        served.fleet.signal("leaf-1", Signal::Kill);
        served.fleet.ended("leaf-1").await;
        served.fleet.spawn("leaf-1", &[]);
        served.fleet.wait_ready("leaf-1").await;
        assert!(served.fleet.log("leaf-1").contains("goes by the last good routing snapshot"));
        for answer in load.finish().await {
            assert_eq!(version(answer.as_ref()).0, only.0);
        }
        let (ok, text) = served.try_command(&["topology", "show"]).await;
        assert!(!ok && text.contains("queries go on without it"), "{text}");
        // It comes back with everything it knew, and goes on.
        served.fleet.spawn("topology-0", &[]);
        served.fleet.wait_ready("topology-0").await;
        served.all_on(only).await;
        let next = publish(&directory, &store, 4, 800).await;
        served.roll_out(next).await;
        served.all_on(next).await;
    });
}
