//! The commands over a store in S3, as an operator types them: create, build, publish, list, verify, inspect, gc.

use std::{path::Path, process::Output};

use canopy_format::store::StoreConfig;
use canopy_tests::{
    corpus::{self, Page},
    process::{binary, run},
    s3::{S3, secret},
};

/// The parts of a configuration file that reach the store.
fn file(directory: &Path, config: &StoreConfig, more: &str) -> String {
    let path = directory.join("store.toml");
    let text = format!(
        "[store]\nurl = {:?}\nendpoint = {:?}\nallow_http = true\naccess_key_file = {:?}\nsecret_key_file = {:?}\n{more}",
        config.url, config.endpoint, config.access_key_file, config.secret_key_file
    );
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn told(output: &Output) -> String {
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!told.contains(secret()), "{told}");
    told
}

async fn good(arguments: &[&str]) -> String {
    let output = run(arguments).await;
    let told = told(&output);
    assert!(output.status.success(), "{arguments:?}: {told}");
    told
}

async fn bad(arguments: &[&str]) -> String {
    let output = run(arguments).await;
    let told = told(&output);
    assert!(!output.status.success(), "{arguments:?}: {told}");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_builds_signs_publishes_and_collects() {
    binary();
    let (server, place) = (S3::start().await, tempfile::tempdir().expect("a directory"));
    let at = |name: &str| place.path().join(name).display().to_string();
    let config = file(place.path(), &server.config_with_files("shop"), "");
    let local = at("local");
    let records: Vec<_> = corpus::generate(3, 60).iter().map(Page::record).collect();
    let input = corpus::write(&place.path().join("pages.jsonl"), &records).display().to_string();

    good(&["index", "keygen", "--out", &at("keys")]).await;
    let (private, public) = (at("keys/canopy-sign.pem"), at("keys/canopy-verify.pem"));
    good(&["corpus", "create", "web", "--store", &local]).await;
    good(&["index", "build", "--store", &local, "--input", &input, "--shards", "2", "--sign-key", &private])
        .await;

    // Straight into S3, where spill files need a place.
    let s3 = ["--store-config", &config];
    good(&[&["corpus", "create", "direct"], &s3[..]].concat()).await;
    let build = ["index", "build", "--corpus", "direct", "--input", &input, "--shards", "2"];
    assert!(bad(&[&build[..], &s3[..]].concat()).await.contains("--temp"));
    good(&[&build[..], &s3[..], &["--temp", &at("spill")]].concat()).await;
    assert!(good(&[&["index", "verify", "--corpus", "direct"], &s3[..]].concat()).await.contains("is whole"));

    let publish = ["index", "publish", "--from", &local, "--to", "s3://search/shop", "-c", &config];
    let said = good(&publish).await;
    assert!(
        said.contains("v1 of web is published in s3://search/shop") && said.contains("signed by key"),
        "{said}"
    );
    assert!(good(&publish).await.contains("already"));
    let report: serde_json::Value =
        serde_json::from_str(&good(&[&publish[..], &["--json"]].concat()).await).expect("JSON");
    assert_eq!((&report["version"], &report["already_there"]), (&1.into(), &true.into()));
    assert!(good(&[&["index", "list"], &s3[..]].concat()).await.contains("v1"));
    assert!(good(&[&["index", "inspect"], &s3[..]].concat()).await.contains("signed by key"));

    // Whoever trusts this key takes it; whoever trusts another does not.
    let trusted =
        file(place.path(), &server.config_with_files("shop"), &format!("verify_keys = [{public:?}]"));
    assert!(good(&["index", "inspect", "--store-config", &trusted]).await.contains("which is trusted"));
    let direct = bad(&["index", "verify", "--corpus", "direct", "--store-config", &trusted]).await;
    assert!(direct.contains("not signed") && direct.contains("verify_keys"), "{direct}");

    // Three more, of which gc leaves two.
    for _ in 0..3 {
        good(&["index", "build", "--store", &local, "--input", &input, "--sign-key", &private]).await;
        good(&publish).await;
    }
    let gc = ["index", "gc", "--keep", "2", "--without-service", "--store-config", &config];
    assert!(good(&[&gc[..], &["--dry-run"]].concat()).await.contains("would remove v1"));
    assert!(good(&gc).await.contains("2 of 4 versions that can be served stay"));
    let printed =
        good(&["config", "print", "-c", &config, "--set", &format!("store.secret_key={}", secret())]).await;
    assert!(printed.contains("store.secret_key = \"(set)\""), "{printed}");
    let away = bad(&[
        "index",
        "list",
        "--store",
        "s3://search/none",
        "--corpus",
        "nothing",
        "--store-config",
        &config,
    ])
    .await;
    assert!(away.contains("does not exist"), "{away}");
}
