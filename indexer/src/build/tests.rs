//! Builds from records in memory into a store in a temporary directory.

use std::{collections::BTreeMap, fs, path::PathBuf};

use canopy_common::ids::{KeyHash, Version};
use canopy_format::{
    document::Reject,
    schema::Schema,
    statistics::Statistics,
    store::{Corpus, Ordering, VersionStore},
};
use serde_json::{Value, json};

use super::{make::Feed, read::Input, *};
use crate::{
    diff, inspect,
    source::{Link, Location, Record, Records},
    verify,
};

mod failures;
mod output;
mod sorting;

/// A store with the corpus `web`, and its directory.
struct Place {
    store: VersionStore,
    directory: tempfile::TempDir,
}

impl Place {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store = VersionStore::open(&directory.path().to_string_lossy(), true).expect("store");
        let corpus =
            Corpus { name: "web".into(), schema: Schema::web(), partitions: 4, ordering: Ordering::Log };
        store.create_corpus(&corpus).await.expect("corpus");
        Self { store, directory }
    }

    fn request(&self) -> BuildRequest {
        let inputs = vec![PathBuf::from("memory")];
        BuildRequest { shards: Some(4), ..BuildRequest::new(self.store.clone(), "web", inputs) }
    }

    /// Numbers of versions, published or not, that hold anything.
    fn in_use(&self) -> Vec<u64> {
        (1..=300).filter(|number| !self.files(Version(*number)).is_empty()).collect()
    }

    /// Everything below the versions, with its BLAKE3, for comparison.
    fn files(&self, version: Version) -> BTreeMap<String, String> {
        fn walk(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.expect("entry").path();
                let name = format!("{prefix}/{}", path.file_name().unwrap_or_default().to_string_lossy());
                if path.is_dir() {
                    walk(&path, &name, found);
                } else {
                    let hash = blake3::hash(&fs::read(&path).expect("file")).to_hex();
                    found.insert(name, hash.as_str().to_owned());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.store.version_dir("web", version).expect("local"), "", &mut found);
        found
    }
}

/// An input of JSON objects; text that is no object is a bad record.
fn lines(name: &str, records: Vec<Value>) -> Input {
    linked(name, records.into_iter().map(|record| (record, vec![])).collect())
}

fn linked(name: &str, records: Vec<(Value, Vec<(&'static str, &'static str)>)>) -> Input {
    let file: std::sync::Arc<str> = name.into();
    let open = move || -> Result<Records> {
        let (records, file) = (records.clone(), file.clone());
        Ok(Box::new((1..).zip(records).map(move |(number, (value, links))| {
            let content = match value {
                Value::Object(object) => Ok(object),
                other => Err(Reject { field: "record".into(), reason: format!("{other} is not an object") }),
            };
            let link = |(target, text): (&str, &str)| Link { url: target.into(), text: text.into() };
            Record {
                location: Location { file: file.clone(), number, offset: 0 },
                bytes: 100,
                content,
                links: links.into_iter().map(link).collect(),
                canonical: None,
                wrong_digest: false,
                last_of_damaged: false,
            }
        })))
    };
    Input::records(open)
}

fn page(number: usize, body: &str) -> Value {
    json!({ "url": format!("https://example.org/{number}"), "title": format!("Page {number}"), "body": body, "lang": "en" })
}

/// Text that differs by page and repeats words between pages.
fn body(number: usize) -> String {
    let word = |n: usize| ["river", "stone", "cloud", "ember", "meadow", "harbor", "lantern"][n % 7];
    let words: Vec<_> =
        (0..60).map(|n| format!("{}{}", word(number + n * n), (number * 31 + n * 7) % 97)).collect();
    words.join(" ")
}

fn pages(count: usize) -> Vec<Value> {
    (0..count).map(|number| page(number, &body(number))).collect()
}

async fn build(request: BuildRequest, inputs: Vec<Input>) -> Result<BuildReport> {
    run_on(request, Feed::new(inputs)).await
}

/// Key -> stored source of every document of a version.
fn stored(place: &Place, version: Version, schema: &Schema) -> BTreeMap<String, Value> {
    use tantivy::schema::Value as _;
    let fields = IndexSchema::new(schema).expect("schema");
    let mut found = BTreeMap::new();
    let shards = place.store.version_dir("web", version).expect("local").join("shards");
    for entry in fs::read_dir(shards).expect("shards") {
        let index = crate::read_back::index(&entry.expect("entry").path(), "shard").expect("index");
        let searcher = crate::read_back::reader(&index, "shard").expect("reader").searcher();
        for (number, segment) in searcher.segment_readers().iter().enumerate() {
            for document in 0..segment.max_doc() {
                let address = tantivy::DocAddress::new(number as u32, document);
                let stored: tantivy::TantivyDocument = searcher.doc(address).expect("document");
                let bytes =
                    stored.get_first(fields.source).and_then(|value| value.as_bytes()).expect("source");
                let source: Value = serde_json::from_slice(bytes).expect("JSON");
                found.insert(source["url"].as_str().expect("url").to_owned(), source);
            }
        }
    }
    found
}

/// Document frequency of a word in the statistics.
fn frequency(place: &Place, manifest: &Manifest, word: &str) -> u64 {
    let directory = place.store.version_dir("web", manifest.version).expect("local");
    let entry = &manifest.statistics;
    let statistics = Statistics::open(&directory.join(&entry.file.path), entry).expect("statistics");
    let mut term = String::new();
    Analyzer::new().document(word, "en", &mut |token| term = token.text);
    statistics.document_frequency("text", &term).unwrap_or(0)
}
