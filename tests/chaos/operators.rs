//! What an operator meets with real processes: a newest version that can't be read, a load on a tree that is gone.

use std::path::Path;

use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_tests::{
    cluster::{Shape, copy_store},
    process::{self, Fleet, Signal},
};
use serde_json::Value;

use crate::stage::{self, EVERY, SHARDS};

async fn command(arguments: &[&str]) -> (bool, String, String) {
    let output = process::run(arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn garble(store: &VersionStore, version: Version) {
    let directory = store.version_dir("web", version).expect("a directory");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("manifest.json"), "garbage").expect("written");
}

#[test]
fn a_garbled_newest_version_is_passed_over_aloud_until_it_is_pinned() {
    stage::run(|stage| async move {
        let copy = stage.shelf.dir().join("garbled");
        copy_store(&stage.store(), &copy);
        let store = VersionStore::open(&copy.to_string_lossy(), false).expect("a store");
        let sound = store.latest("web").await.expect("a version").version;
        let garbled = Version(sound.0 + 1);
        garble(&store, garbled);
        let mut fleet = Fleet::start(&copy, &Shape::flat(1, 1), &[("web", SHARDS)], |_| ()).await;
        let answer = fleet.root().search("web", &[EVERY, ("timeout_ms", "20000")]).await.ok();
        assert_eq!(answer.json["coverage"]["complete"], true);
        assert_eq!(answer.json["version"]["wanted"], sound.0);
        for (id, metric) in
            [("root-0", "canopy_root_versions_passed_over"), ("leaf-0", "canopy_leaf_versions_passed_over")]
        {
            let status = fleet.admin(id).get("/status").await.ok().json;
            let passed = &status["passed_over"][0];
            assert_eq!((&passed["corpus"], &passed["version"]), (&"web".into(), &garbled.0.into()), "{id}");
            assert!(fleet.log(id).contains("the newer version can't be served"), "{}", fleet.log(id));
            canopy_tests::wait::wait_until(metric, std::time::Duration::from_mins(1), 1.0, || {
                let admin = fleet.admin(id);
                async move { admin.metric(metric).await }
            })
            .await;
        }
        let (ok, out, _) = command(&["status", "-c", &fleet.config_file().to_string_lossy()]).await;
        assert!(ok && out.contains(&format!("web {garbled} can't be served")), "{out}");
        let url = copy.to_string_lossy();
        let (ok, out, err) = command(&["index", "list", "--store", &url]).await;
        let shown = |line: &str| line.contains(&garbled.to_string()) && line.contains("can't be read");
        assert!(!ok && out.lines().any(shown), "{out}");
        assert!(err.contains("it is not a manifest") && err.contains("hint: "), "{err}");
        fleet.signal("leaf-0", Signal::Kill);
        fleet.ended("leaf-0").await;
        assert!(build(&copy).await > garbled.0);
    });
}

/// Builds one more version; its number.
async fn build(store: &Path) -> u64 {
    let input = store.join("one.jsonl");
    std::fs::write(&input, r#"{"url":"https://a.example/","title":"one","body":"two"}"#).expect("written");
    let (input, url) = (input.to_string_lossy(), store.to_string_lossy());
    let (ok, out, err) =
        command(&["index", "build", "--store", &url, "--input", &input, "--force", "--json"]).await;
    assert!(ok, "{err}");
    let report: Value = serde_json::from_str(&out).expect("a report");
    report["version"].as_u64().expect("a version")
}

#[test]
fn a_load_fails_with_its_queries_and_says_why() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::start(&stage.store(), &Shape::flat(2, 1), &[("web", SHARDS)], |_| ()).await;
        let queries = stage.shelf.dir().join("queries");
        std::fs::write(&queries, "river\ngarden\n").expect("written");
        let (queries, address) = (queries.to_string_lossy().into_owned(), fleet.root().address().to_owned());
        let load = async |more: &[&str]| {
            let mut arguments = vec!["load", "--root", &address, "--queries", &queries, "--qps", "20"];
            arguments.extend(["--duration", "1s", "--timeout", "30s", "--json"]);
            arguments.extend(more);
            let (ok, out, err) = command(&arguments).await;
            (ok, serde_json::from_str::<Value>(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
        };
        let (ok, report) = load(&[]).await;
        assert!(ok && report["failed"] == 0 && report["partial"] == 0, "{report}");
        fleet.signal("leaf-1", Signal::Kill);
        fleet.ended("leaf-1").await;
        let (ok, report) = load(&[]).await;
        assert!(ok && report["partial"].as_u64() > Some(0), "an answer in part is an answer: {report}");
        let lacks = report["lacks"].as_object().expect("causes");
        assert!(lacks.keys().any(|cause| cause.starts_with("unavailable: ")), "{report}");
        let (ok, report) = load(&["--param", "k=5000"]).await;
        let refused = &report["failures"]["answered 400 INVALID_ARGUMENT"];
        assert!(!ok && refused.as_u64() == report["queries"].as_u64(), "{report}");
        let (ok, _) = load(&["--param", "k=5000", "--allow-failures"]).await;
        assert!(ok);
    });
}

#[test]
fn settings_of_the_engine_are_read_again_while_it_runs() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::start(&stage.store(), &Shape::flat(2, 2), &[("web", SHARDS)], |_| ()).await;
        let root = fleet.root();
        let mode = || async { root.get("/status").await.ok().json["hedging"]["mode"].clone() };
        assert_eq!(mode().await, "auto");
        let file = fleet.config_file();
        let sound = std::fs::read_to_string(&file).expect("a configuration");
        let logged = |fleet: &Fleet, words: &str| {
            let log = fleet.log("root-0");
            let found = log.contains(words).then_some(());
            async move { found }
        };
        let wait = std::time::Duration::from_mins(1);

        std::fs::write(
            &file,
            format!("{sound}\n[gather]\nhedge = \"off\"\n[aggregator]\nmax_in_flight = 77\n"),
        )
        .expect("written");
        fleet.signal("root-0", Signal::Hangup);
        canopy_tests::wait::wait_for("the new settings", wait, || logged(&fleet, "configuration read again"))
            .await;
        assert_eq!(mode().await, "off");
        let log = fleet.log("root-0");
        for words in ["gather.hedge", "setting reloaded", "aggregator.max_in_flight", "at the next start"] {
            assert!(log.contains(words), "{words}: {log}");
        }

        std::fs::write(&file, format!("{sound}\n[gather]\nhedge = \"sometimes\"\n")).expect("written");
        fleet.signal("root-0", Signal::Hangup);
        canopy_tests::wait::wait_for("the refusal", wait, || {
            logged(&fleet, "the configuration was not reloaded")
        })
        .await;
        assert_eq!(mode().await, "off");
        let answer = root.search("web", &[EVERY, ("timeout_ms", "20000")]).await.ok();
        assert_eq!(answer.json["coverage"]["complete"], true);
    });
}
