//! Opening versions that the real pipeline built, whole and damaged in every way.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use canopy_common::{
    error::ErrorClass,
    ids::{ShardId, Version},
};
use canopy_format::manifest::{FORMAT, FileEntry};
use canopy_proto::{
    SearchNode,
    v1::{SearchRequest, ShardReply},
};

use super::{State, pace, status::Line, warm};
use crate::{
    config::LeafConfig,
    fixture::{self, Built, config, context, outcomes, pages, until},
    node::Parts,
    reply::outcome_word,
    stop::Stop,
    view::ShardView,
};

const LONG: std::time::Duration = std::time::Duration::from_secs(30);

fn line(parts: &Parts, number: u32) -> Line {
    parts.shards.board.lines(fixture::CORPUS, &ShardId::new("main", number)).remove(0)
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn words(replies: &[ShardReply]) -> Vec<&'static str> {
    replies.iter().map(outcome_word).collect()
}

#[tokio::test]
async fn verified_shards_serve_from_a_directory_that_nobody_can_write() {
    let built = Built::new(&pages(60), 3).await;
    let read_only = |mode: u32, file_mode: u32| {
        let mut open = vec![built.version_dir()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    fs::set_permissions(&path, fs::Permissions::from_mode(file_mode)).unwrap();
                }
            }
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    read_only(0o555, 0o444);
    let before = listing(&built.version_dir());
    let (parts, node) = built.open(config(2, 16)).await;
    let replies = outcomes(node.search(context(1, LONG), built.request("fox")), 3).await;
    assert_eq!(words(&replies), ["answered"; 3]);
    assert_eq!(replies.iter().map(|reply| reply.documents_searched).sum::<u64>(), 60);
    for number in 0..3 {
        let line = line(&parts, number);
        assert_eq!((line.state, line.serving()), (State::Serving, Some(built.manifest.version)));
        assert!(line.bytes > 0 && line.verified == line.bytes, "{line:?}");
    }
    assert_eq!(before, listing(&built.version_dir()), "nothing was written");
    read_only(0o755, 0o644);
}

fn listing(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(listing(&path)) } else { found.push(path.display().to_string()) }
    }
    found.sort();
    found
}

#[tokio::test]
async fn one_flipped_bit_of_any_file_quarantines_that_shard_only() {
    let built = Built::new(&pages(40), 2).await;
    let entry = &built.manifest.shards[1];
    assert!(entry.files.len() > 4, "{:?}", entry.files);
    for file in &entry.files {
        let path = built.version_dir().join(&file.path);
        for at in [0, file.bytes / 2, file.bytes.saturating_sub(1)] {
            if file.bytes == 0 {
                continue;
            }
            flip(&path, at);
            let (parts, node) = built.open(config(1, 16)).await;
            let replies = outcomes(node.search(context(1, LONG), built.request("fox")), 2).await;
            assert_eq!(words(&replies), ["answered", "failed"], "{} at {at}", file.path);
            assert_eq!(replies[1].error_class, ErrorClass::DataLoss as u32);
            let line = line(&parts, 1);
            assert_eq!(line.state, State::Quarantined);
            assert!(line.last_error.contains(&file.path), "{}", line.last_error);
            flip(&path, at);
        }
    }
}

#[tokio::test]
async fn a_missing_short_or_foreign_file_is_named() {
    let built = Built::new(&pages(40), 2).await;
    let file = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    let path = built.version_dir().join(&file.path);
    let whole = fs::read(&path).unwrap();
    let failed = async |why: &str| {
        let (parts, _) = built.open(config(1, 16)).await;
        let line = line(&parts, 0);
        assert_eq!(line.state, State::Quarantined);
        assert!(line.last_error.contains(why), "{}", line.last_error);
    };
    fs::write(&path, &whole[1..]).unwrap();
    failed("bytes, the manifest says").await;
    fs::remove_file(&path).unwrap();
    failed("is missing").await;
    fs::create_dir(&path).unwrap();
    failed(&file.path).await;
    fs::remove_dir(&path).unwrap();
    fs::write(&path, &whole).unwrap();
    // Files that the manifest does not name are not there for the engine.
    fs::write(path.parent().unwrap().join(".managed.json"), b"not json").unwrap();
    fs::write(path.parent().unwrap().join(".tantivy-meta.lock"), b"").unwrap();
    let (parts, _) = built.open(config(1, 16)).await;
    assert_eq!(line(&parts, 0).state, State::Serving);
}

#[tokio::test]
async fn a_version_of_other_rules_is_refused_by_name() {
    let built = Built::new(&pages(10), 1).await;
    let path = built.version_dir().join("manifest.json");
    let original = fs::read_to_string(&path).unwrap();
    let mut manifest = built.manifest.clone();
    manifest.analysis_id = "a999".into();
    manifest.schema_id = manifest.schema.id_under("a999");
    let newer = original.replacen(&format!("\"format\": {FORMAT}"), "\"format\": 99", 1);
    for (text, why) in [
        (String::from_utf8(manifest.to_json()).unwrap(), "was built with analysis a999"),
        (newer, "has format 99; this build reads up to"),
        ("{".to_owned(), "it is not a manifest"),
    ] {
        fs::write(&path, text).unwrap();
        let parts = fixture::parts(config(1, 16), fixture::real());
        let routing = built.routing().into();
        fixture::follow(&parts, built.store.clone(), routing).await;
        let line = line(&parts, 0);
        assert!(line.last_error.contains(why), "{}", line.last_error);
        assert!(line.state == State::Failed && line.due.is_some(), "it is looked for again: {line:?}");
    }
    fs::write(&path, original).unwrap();
}

#[tokio::test]
async fn a_newest_version_that_can_not_be_read_is_passed_over_aloud() {
    let built = Built::new(&pages(10), 1).await;
    let newest = built.store.version_dir(fixture::CORPUS, Version(9)).unwrap();
    fs::create_dir_all(&newest).unwrap();
    fs::write(newest.join("manifest.json"), "{").unwrap();
    let mut routing = built.routing();
    routing.corpora.get_mut(fixture::CORPUS).unwrap().version = None;
    let parts = fixture::parts(config(1, 16), fixture::real());
    fixture::follow(&parts, built.store.clone(), routing.into()).await;
    assert_eq!(line(&parts, 0).serving(), Some(built.manifest.version));
    let passed_over = parts.shards.board.passed_over();
    assert_eq!((passed_over.len(), &passed_over[0]["version"]), (1, &serde_json::json!(9)));
    assert!(passed_over[0]["reason"].as_str().unwrap().contains("it is not a manifest"), "{passed_over:?}");
}

#[tokio::test]
async fn a_shard_that_the_version_does_not_have_fails_and_the_others_serve() {
    let built = Built::new(&pages(10), 1).await;
    let mut routing = built.routing();
    let corpus = routing.corpora.get_mut(fixture::CORPUS).unwrap();
    corpus.shards.insert(ShardId::new("main", 7), vec!["leaf-1".into()].into());
    let parts = fixture::parts(config(1, 16), fixture::real());
    fixture::follow(&parts, built.store.clone(), routing.into()).await;
    assert_eq!((line(&parts, 0).state, line(&parts, 7).state), (State::Serving, State::Failed));
    assert!(line(&parts, 7).last_error.contains("has no shard main/7; its shards are: 1 main"));
}

#[tokio::test]
async fn a_file_that_is_cut_while_it_is_served_quarantines_its_shard() {
    let built = Built::new(&pages(4000), 2).await;
    let (parts, node) = built.open(config(1, 16)).await;
    assert_eq!(
        words(&outcomes(node.search(context(1, LONG), built.request("fox")), 2).await),
        ["answered"; 2]
    );
    for file in &built.manifest.shards[0].files {
        fs::OpenOptions::new()
            .write(true)
            .open(built.version_dir().join(&file.path))
            .unwrap()
            .set_len(1)
            .unwrap();
    }
    let replies = outcomes(node.search(context(2, LONG), built.request("wolf")), 2).await;
    assert_eq!(words(&replies), ["failed", "answered"]);
    assert_eq!(replies[0].error_class, ErrorClass::DataLoss as u32);
    let line = line(&parts, 0);
    assert_eq!(line.state, State::Quarantined);
    assert!(line.last_error.contains("could not be read from the disk"), "{}", line.last_error);
}

#[tokio::test]
async fn a_panic_makes_the_files_be_read_again() {
    let built = Built::new(&pages(40), 2).await;
    let panics = || -> crate::node::SearchShard {
        let real = fixture::real();
        Box::new(move |view, request, shard, stop| {
            assert_ne!(shard, 0, "on purpose");
            real(view, request, shard, stop)
        })
    };
    let parts = fixture::parts(config(1, 16), panics());
    built.open_on(&parts).await;
    let node = crate::node::LeafNode::new(parts.clone());
    // Sound files: the shard stays.
    assert_eq!(
        words(&outcomes(node.search(context(1, LONG), built.request("fox")), 2).await),
        ["failed", "answered"]
    );
    assert_eq!(line(&parts, 0).state, State::Serving);
    // Damaged ones: a second leaf, since each view is suspected once.
    let parts = fixture::parts(config(1, 16), panics());
    built.open_on(&parts).await;
    let node = crate::node::LeafNode::new(parts.clone());
    let file = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    flip(&built.version_dir().join(&file.path), file.bytes / 2);
    let _panicked = outcomes(node.search(context(2, LONG), built.request("fox")), 2).await;
    until("the quarantine", || line(&parts, 0).state == State::Quarantined).await;
    assert!(line(&parts, 0).last_error.contains("BLAKE3"));
}

#[tokio::test]
async fn a_query_of_death_that_was_asked_of_late_keeps_no_version_away() {
    let built = Built::new(&pages(40), 1).await;
    let (parts, _) = built.open(config(1, 16)).await;
    let snapshot = parts.shards.directory.snapshot();
    let view = &snapshot.all().next().unwrap().view();
    let asked = std::cell::Cell::new(0);
    let ask = |_: &ShardView, request: &SearchRequest, _: &Stop| {
        asked.set(asked.get() + 1);
        assert_ne!(request.collapse, "death", "on purpose");
    };
    let (pace, stop) = (pace::Pace::FULL, Stop::never());
    let (manifest, entry) = (&built.manifest, &built.manifest.shards[0]);
    let warming = warm::Warming { view, manifest, entry, pace: &pace, stop: &stop, ask: &ask };
    let of_death = SearchRequest { collapse: "death".to_owned(), ..built.request("fox") };
    warming.sample(&[of_death, built.request("fox")], view, &|| true);
    assert!(asked.get() >= 4, "both, of both views: {}", asked.get());
}

#[tokio::test]
async fn a_shard_proves_itself_also_when_reading_it_took_all_of_the_time() {
    let built = Built::new(&pages(40), 1).await;
    let mut manifest = built.manifest.clone();
    // Its documents can't be read, and were built so: the checksums are right.
    let is_store =
        |file: &&mut FileEntry| Path::new(&file.path).extension().is_some_and(|end| end == "store");
    let file = manifest.shards[0].files.iter_mut().find(is_store).unwrap();
    let path = built.version_dir().join(&file.path);
    for at in 0..40 {
        flip(&path, at);
    }
    *file = FileEntry::of_file(&path, &file.path).unwrap();
    fs::write(built.version_dir().join("manifest.json"), manifest.to_json()).unwrap();
    for warm_ms in [10_000, 0] {
        let warm_limit = canopy_common::config::Time::ms(warm_ms);
        let (parts, _) = built.open(LeafConfig { warm_limit, ..config(1, 16) }).await;
        let line = line(&parts, 0);
        assert_eq!(line.state, State::Quarantined, "{warm_ms}: {}", line.last_error);
    }
}

#[tokio::test]
async fn an_empty_shard_serves() {
    let built = Built::new(&pages(1), 2).await;
    let (parts, node) = built.open(config(1, 16)).await;
    let replies = outcomes(node.search(context(1, LONG), built.request("fox")), 2).await;
    assert_eq!(words(&replies), ["answered"; 2], "{replies:?}");
    assert_eq!(parts.shards.board.counts().get(&State::Serving), Some(&2));
}

#[tokio::test]
async fn an_empty_shard_where_documents_should_be_is_no_shard() {
    let built = Built::new(&pages(1), 2).await;
    let mut manifest = built.manifest.clone();
    let empty = manifest.shards.iter_mut().find(|entry| entry.documents == 0).unwrap();
    empty.documents = 5;
    let number = empty.shard.number;
    manifest.statistics.documents += 5;
    *manifest.languages.values_mut().next().unwrap() += 5;
    fs::write(built.version_dir().join("manifest.json"), manifest.to_json()).unwrap();
    let (parts, _) = built.open(config(1, 16)).await;
    let line = line(&parts, number);
    assert_eq!(line.state, State::Quarantined, "{}", line.last_error);
    assert!(line.last_error.contains("it has 0 documents, the manifest says 5"), "{}", line.last_error);
}
