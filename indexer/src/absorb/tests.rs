//! Tests of `absorb`: what its module comment promises. Random operations, absorbed in steps, against a build of the
//! documents that a plain model of the rules says there are.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use canopy_format::{
    layout::slot,
    manifest::Manifest,
    newest::Kind,
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::build;

mod equal;
mod model;
mod refusals;

const PARTITIONS: u32 = 3;

/// A log in memory.
struct Log {
    epoch: String,
    first: u64,
    partitions: Mutex<BTreeMap<u32, Vec<Logged>>>,
    /// An error at this offset.
    broken_at: Option<u64>,
}

impl Log {
    fn new(epoch: &str) -> Self {
        let partitions = (0..PARTITIONS).map(|partition| (partition, vec![])).collect();
        Self { epoch: epoch.to_owned(), first: 0, partitions: Mutex::new(partitions), broken_at: None }
    }

    fn append(&self, kind: Kind, key: &str, order: u64, document: Option<&Json>) {
        let mut partitions = self.partitions.lock();
        let records = partitions.entry(u32::from(slot(key)) % PARTITIONS).or_default();
        let document = document.map(|json| Bytes::from(json.to_string())).unwrap_or_default();
        let offset = records.len() as u64;
        records.push(Logged { offset, kind, key: key.to_owned(), order, document });
    }
}

impl Operations for Log {
    fn ends(&self) -> BoxFuture<'_, Result<Ends>> {
        let range = |records: &Vec<Logged>| Range { first: self.first, end: records.len() as u64 };
        let ranges =
            self.partitions.lock().iter().map(|(number, records)| (*number, range(records))).collect();
        Box::pin(async move { Ok(Ends { epoch: self.epoch.clone(), ranges }) })
    }

    fn read(&self, partition: u32, from: u64, to: u64) -> BoxFuture<'_, Result<Chunk>> {
        let next = to.min(from + 7);
        let operations = self.partitions.lock()[&partition][from as usize..next as usize].to_vec();
        let broken = self.broken_at.is_some_and(|at| (from..next).contains(&at));
        Box::pin(async move {
            if broken {
                return Err(Error::Log("the connection was lost".to_owned()));
            }
            Ok(Chunk { operations, next })
        })
    }
}

/// A store with a corpus.
struct Place {
    directory: tempfile::TempDir,
    store: VersionStore,
}

impl Place {
    async fn new(ordering: Ordering) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store = VersionStore::open(&directory.path().to_string_lossy(), true).expect("store");
        let (name, schema) = ("web".to_owned(), Schema::web());
        let corpus = Corpus { name, schema, partitions: PARTITIONS, ordering };
        store.create_corpus(&corpus).await.expect("corpus");
        Self { directory, store }
    }

    async fn build(&self, lines: &[Json], token: &str, shards: u32) -> Manifest {
        let input = self.directory.path().join("input.jsonl");
        let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
        fs::write(&input, lines.join("\n")).expect("input");
        let mut request = BuildRequest::new(self.store.clone(), "web", vec![input]);
        (request.shards, request.force) = (Some(shards), true);
        if !token.is_empty() {
            let token: Token = token.parse().expect("token");
            (request.cut, request.log) = (token.offsets, token.epoch);
        }
        let report = build::run(request).await.expect("build");
        assert_eq!(report.counts.rejected, 0, "{:?}", report.rejects);
        self.latest().await
    }

    async fn latest(&self) -> Manifest {
        self.store.latest("web").await.expect("manifest")
    }

    fn request(&self, log: &Arc<Log>) -> AbsorbRequest {
        AbsorbRequest::new(self.store.clone(), "web", log.clone())
    }

    fn directory(&self, manifest: &Manifest) -> PathBuf {
        self.store.version_dir("web", manifest.version).expect("local")
    }

    fn numbers(&self) -> Vec<String> {
        let versions = self.directory.path().join("corpora/web/versions");
        let used = |entry: &Path| fs::read_dir(entry).is_ok_and(|mut files| files.next().is_some());
        let entries = fs::read_dir(versions).expect("versions").map(|entry| entry.expect("entry"));
        let mut numbers: Vec<String> = entries
            .filter(|entry| used(&entry.path()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        numbers.sort();
        numbers
    }
}

/// Absorbs and compares with a build of what the model says.
async fn check(place: &Place, log: &Arc<Log>, model: &model::Model, request: AbsorbRequest, seed: u64) {
    let before = place.latest().await;
    let report = run(request).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let report = report.expect("there is news");
    let made = place.latest().await;
    assert_eq!((report.of, made.parent), (before.version, Some(before.version)));
    assert_eq!(
        (made.log.as_str(), report.token.parse::<Token>().expect("token").offsets),
        ("e", made.cut.clone())
    );
    assert_eq!(made.cut, log.ends().await.expect("ends").ranges.iter().map(|(p, r)| (*p, r.end)).collect());
    let other = Place::new(model.ordering).await;
    let expected = other.build(&model.lines(), "", made.layouts[0].shards).await;
    equal::versions((place, &made), (&other, &expected), seed);
}

async fn random(ordering: Ordering, seed: u64) {
    println!("seed {seed}");
    let mut dice = model::Dice(seed);
    let place = Place::new(ordering).await;
    let mut model = model::Model::new(ordering);
    let log = Arc::new(Log::new("e"));
    (0..40).for_each(|_| model.put_before(&mut dice));
    place.build(&model.lines(), "e:", 3).await;
    for step in 0..4 {
        for _ in 0..=dice.below(60) {
            model.write(&mut dice, &log);
        }
        let mut request = place.request(&log);
        request.shards = (step == 2).then_some(5);
        request.words = dice.below(2).eq(&0).then_some(200);
        request.threads = 1 + dice.below(4) as usize;
        Box::pin(check(&place, &log, &model, request, seed)).await;
    }
    assert!(run(place.request(&log)).await.expect("nothing to do").is_none());
}

#[tokio::test]
async fn a_chain_of_absorbs_equals_builds_where_the_log_decides() {
    for seed in 1..5 {
        Box::pin(random(Ordering::Log, seed)).await;
    }
}

#[tokio::test]
async fn a_chain_of_absorbs_equals_builds_where_producers_decide() {
    for seed in 11..15 {
        Box::pin(random(Ordering::Producer, seed)).await;
    }
}
