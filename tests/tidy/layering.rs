//! Which crate may use which: dependencies point one way, and heavy libraries stay where they belong.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{none, top};

/// Allowed edges within the workspace; a crate that is missing here may use none.
const MAY_USE: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("proto", &["common"]),
    ("topology", &["common", "proto"]),
    ("indexer/format", &["common"]),
    ("indexer/log", &["common", "format", "proto"]),
    ("indexer/ingest", &["common", "format", "proto", "log"]),
    ("indexer", &["common", "format"]),
    ("aggregator", &["common", "proto", "topology"]),
    ("aggregator/lab", &["common", "proto", "topology", "aggregator"]),
    ("leaf", &["common", "proto", "topology", "format", "log", "indexer"]),
    ("root", &["common", "proto", "topology", "aggregator", "format"]),
    (
        "cli",
        &[
            "common",
            "proto",
            "topology",
            "aggregator",
            "lab",
            "format",
            "log",
            "ingest",
            "indexer",
            "leaf",
            "root",
        ],
    ),
    (
        "tests",
        &[
            "common",
            "proto",
            "topology",
            "aggregator",
            "lab",
            "format",
            "log",
            "ingest",
            "indexer",
            "leaf",
            "root",
            "cli",
        ],
    ),
    (
        "bench",
        &[
            "common",
            "proto",
            "topology",
            "aggregator",
            "format",
            "log",
            "ingest",
            "indexer",
            "leaf",
            "root",
            "cli",
        ],
    ),
];

/// Libraries and the only crates that may link them.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("tantivy", &["indexer", "leaf", "tests", "bench"]),
    ("axum", &["root", "indexer/ingest"]),
    ("plotters", &["aggregator/lab"]),
    ("clap", &["cli", "bench"]),
    ("anyhow", &["cli", "tests", "bench"]),
    ("object_store", &["indexer/format", "indexer", "tests"]),
    ("turmoil", &["tests"]),
    ("etcd-client", &["topology", "tests"]),
    ("async-nats", &["indexer/log"]),
    (
        "proptest",
        &["tests", "aggregator", "common", "root", "leaf", "indexer", "indexer/format", "proto", "topology"],
    ),
];

/// Dependencies of a crate; development ones are listed apart.
fn dependencies(dir: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let path = top().join(dir).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let manifest: toml::Table = text.parse().expect("a valid Cargo.toml");
    let names = |key: &str| -> BTreeSet<String> {
        let table = manifest.get(key).and_then(toml::Value::as_table);
        table.into_iter().flat_map(|table| table.keys().cloned()).collect()
    };
    (names("dependencies"), names("dev-dependencies"))
}

#[test]
fn crates_use_only_what_is_below_them() {
    let mut complaints = Vec::new();
    for (dir, allowed) in MAY_USE {
        let (normal, _) = dependencies(dir);
        for used in normal.iter().filter_map(|name| name.strip_prefix("canopy-")) {
            if !allowed.contains(&used) {
                complaints.push(format!("{dir} must not use canopy-{used}"));
            }
        }
    }
    none("dependencies point one way", &complaints);
}

#[test]
fn every_member_has_its_rule() {
    let manifest: toml::Table =
        std::fs::read_to_string(top().join("Cargo.toml")).expect("Cargo.toml").parse().expect("valid");
    let members = manifest["workspace"]["members"].as_array().expect("members");
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let missing: Vec<String> = members
        .iter()
        .filter_map(|member| member.as_str())
        .filter(|member| !rules.contains_key(member))
        .map(str::to_owned)
        .collect();
    none("members without a layering rule", &missing);
}

#[test]
fn heavy_libraries_stay_where_they_belong() {
    let mut complaints = Vec::new();
    for (dir, _) in MAY_USE {
        let (normal, _) = dependencies(dir);
        for (library, homes) in ONLY_IN {
            if normal.contains(*library) && !homes.contains(dir) {
                complaints.push(format!("{dir} links {library}, which belongs to {}", homes.join(", ")));
            }
        }
    }
    none("libraries in the wrong crate", &complaints);
}
