//! The first command that a person runs, and a look at a running tree with the others.

use canopy_tests::{
    cluster::Shape,
    process::{self, Fleet},
};
use serde_json::Value;

use crate::stage::{self, SHARDS};

#[test]
fn quickstart_answers_and_exits() {
    stage::run(|stage| async move {
        let dir = stage.shelf.dir().join("quickstart");
        let dir = dir.to_string_lossy();
        for round in 0..2 {
            let began = tokio::time::Instant::now();
            let output = process::run(&["quickstart", "--once", "--json", "--dir", &dir]).await;
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{out}{err}");
            let answer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
            assert_eq!(answer["coverage"]["complete"], true, "{answer}");
            assert_eq!(answer["coverage"]["shards"]["answered"], 4);
            assert_eq!(answer["hits"].as_array().map(Vec::len), Some(3));
            println!("quickstart --once --json, round {round}: {:?}", began.elapsed());
        }
    });
}

#[test]
fn commands_look_at_a_running_tree_and_fail_with_a_hint() {
    stage::run(|stage| async move {
        let fleet = Fleet::start(&stage.store(), &Shape::two_levels(2, 1), &[("web", SHARDS)], |_| ()).await;
        let (root, file) = (fleet.root(), fleet.config_file());
        let file = file.to_string_lossy();
        let output = process::run(&["status", "-c", &file, "--json"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        for id in ["root-0", "aggregator-0", "aggregator-1", "leaf-0", "leaf-1"] {
            assert!(status.contains(id), "{status}");
        }
        let output =
            process::run(&["search", "river", "--root", root.address(), "--corpus", "web", "--json"]).await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(
            output.status.success() && answer["hits"].as_array().is_some_and(|hits| !hits.is_empty()),
            "{output:?}"
        );
        let refused = [
            vec!["search", "river", "--root", "127.0.0.1:9"],
            vec!["search", "river", "--root", root.address(), "--corpus", "nosuch"],
            vec!["leaf", "-c", "no-such-file.toml"],
            vec!["leaf", "-c", &file, "--node", "root-0"],
            vec!["leaf", "-c", &file, "--set", "leaf.threads=many"],
        ];
        for arguments in refused {
            let output = process::run(&arguments).await;
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{arguments:?}");
            // A root's own message says what to do in its words.
            let hint = err.contains("hint: ") || err.contains("; GET /v1 lists");
            assert!(err.starts_with("error: ") && hint, "{arguments:?}: {err}");
        }
    });
}
