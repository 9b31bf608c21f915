//! Tests of `manifest`: what its module comment promises.

use super::*;
use crate::analysis::Analyzer;

/// A manifest of a version with two shards, whose files do not exist.
pub(crate) fn example(corpus: &str, version: u64) -> Manifest {
    let schema = Schema::web();
    let shard = |number| {
        let shard = ShardId::new("main", number);
        let dir = Manifest::shard_dir(&shard);
        let file = |name: &str, bytes| FileEntry {
            path: format!("{dir}/{name}"),
            bytes,
            blake3: blake3::hash(name.as_bytes()).to_hex().to_string(),
        };
        ShardEntry {
            files: vec![file("meta.json", 10), file("segment.idx", 90)],
            shard,
            documents: 3 + u64::from(number),
            bytes: 100,
            tokens: BTreeMap::from([("text".into(), 30), ("title".into(), 5)]),
            resident_bytes: 50,
        }
    };
    Manifest {
        format: FORMAT,
        corpus: corpus.into(),
        version: Version(version),
        parent: None,
        created: "2024-05-01T12:00:00Z".into(),
        builder: "0.1.0".into(),
        schema_id: schema.id(),
        schema,
        analysis_id: Analyzer::id().into(),
        layouts: vec![Layout::first("main", 2).unwrap()],
        cut: BTreeMap::from([(3, 99)]),
        log: "5f2c0011aabb2233".into(),
        whole: true,
        statistics: StatisticsEntry {
            id: "0123456789abcdef".into(),
            file: FileEntry {
                path: crate::statistics::FILE.into(),
                bytes: 7,
                blake3: blake3::hash(b"statistics").to_hex().to_string(),
            },
            documents: 7,
            tokens: BTreeMap::from([("text".into(), 60), ("title".into(), 10)]),
            terms: 12,
            spellings: Some(9),
        },
        shards: vec![shard(0), shard(1)],
        languages: BTreeMap::from([("en".into(), 5), ("de".into(), 2)]),
        counts: BuildCounts { read: 9, rejected: 1, superseded: 1, ..BuildCounts::default() },
        warmup: vec!["rust".into()],
    }
}

const PATH: &str = "corpora/web/versions/0000000001/manifest.json";

type Change = fn(&mut Manifest);

fn refusal(change: impl FnOnce(&mut Manifest)) -> String {
    let mut manifest = example("web", 1);
    change(&mut manifest);
    match Manifest::from_json(&manifest.to_json(), PATH) {
        Err(Error::Damaged { file, reason }) => {
            assert_eq!(file, PATH);
            reason
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_manifest_survives_the_store() {
    let manifest = example("web", 1742);
    let json = manifest.to_json();
    let read = Manifest::from_json(&json, PATH).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(read.to_json(), json);
    assert_eq!(read.documents(), 7);
    assert_eq!(read.files().count(), 5);
    assert_eq!(read.shard(&ShardId::new("main", 1)).unwrap().documents, 4);
    assert!(read.shard(&ShardId::new("main", 2)).is_none());
}

#[test]
fn a_version_of_before_there_were_logs_is_not_whole_and_is_still_read() {
    let mut json: serde_json::Value = serde_json::from_slice(&example("web", 1).to_json()).unwrap();
    let parts = json.as_object_mut().unwrap();
    assert!(parts.remove("log").is_some() && parts.remove("whole").is_some());
    let read = Manifest::from_json(&serde_json::to_vec(&json).unwrap(), PATH).unwrap();
    assert_eq!((read.whole, read.log.as_str()), (false, ""));
}

#[test]
fn format_1_has_no_spellings_and_is_still_read() {
    let mut manifest = example("web", 1);
    (manifest.format, manifest.statistics.spellings, manifest.whole) = (1, None, false);
    let json = manifest.to_json();
    assert!(!String::from_utf8_lossy(&json).contains("spellings"));
    assert_eq!(Manifest::from_json(&json, PATH).unwrap(), manifest);
    assert!(refusal(|manifest| manifest.format = 1).contains("spellings"));
    assert!(refusal(|manifest| manifest.statistics.spellings = None).contains("spellings"));
}

#[test]
fn a_newer_format_is_named_before_anything_else() {
    let newer = br#"{"format": 4, "corpus": 17, "shards": "elsewhere"}"#;
    match Manifest::from_json(newer, PATH) {
        Err(error @ Error::NewerFormat { found: 4, known: 3, .. }) => {
            assert!(error.to_string().contains("upgrade this node first"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(refusal(|manifest| manifest.format = 0).contains("format 0"));
}

#[test]
fn every_cut_and_every_kind_of_byte_damage_is_an_error() {
    let json = example("web", 1).to_json();
    for end in (0..json.len() - 2).step_by(97) {
        assert!(Manifest::from_json(&json[..end], PATH).is_err(), "{end}");
    }
    for (i, byte) in [0, 0xff, b'"', b'{', b'9', b' '].into_iter().cycle().take(600).enumerate() {
        let mut json = json.clone();
        let at = i * 7919 % json.len();
        json[at] = byte;
        let _ = Manifest::from_json(&json, PATH);
    }
    for text in ["", "null", "[]", "{}", "{\"format\": -1}", "{\"format\": \"1\"}", "{\"format\": 1}"] {
        assert!(Manifest::from_json(text.as_bytes(), PATH).is_err(), "{text}");
    }
}

#[test]
fn contradictions_are_refused_by_name() {
    let cases: [(&str, Change); 27] = [
        ("corpus name", |m| m.corpus = "../web".into()),
        ("version 0", |m| m.version = Version(0)),
        ("parent", |m| m.parent = Some(Version(1))),
        ("schema is not valid", |m| m.schema.fields.clear()),
        ("schema id", |m| m.schema.fields[1].weight = 2),
        ("schema id", |m| m.analysis_id = "other".into()),
        ("no id", |m| m.statistics.id.clear()),
        ("format 3", |m| m.format = 2),
        ("no epoch", |m| m.log = "a b".into()),
        ("its cut", |m| m.cut = BTreeMap::from([(1024, 1)])),
        ("no layout", |m| m.layouts.clear()),
        ("4095 slots", |m| m.layouts[0].table.truncate(4095)),
        ("two layouts", |m| m.layouts.push(m.layouts[0].clone())),
        ("not those of its layouts", |m| m.shards.truncate(1)),
        ("not those of its layouts", |m| m.shards.swap(0, 1)),
        ("not those of its layouts", |m| m.shards[1].shard = ShardId::new("main", 0)),
        ("not those of its layouts", |m| m.shards.push(m.shards[1].clone())),
        ("no files", |m| m.shards[0].files.clear()),
        ("not below shards/main-0000/", |m| m.shards[0].files[0].path = "shards/main-0001/a".into()),
        ("not sorted", |m| m.shards[0].files.swap(0, 1)),
        ("100 bytes, its files have 101", |m| m.shards[0].files[0].bytes += 1),
        ("64 lower-case hex", |m| m.shards[0].files[0].blake3.truncate(63)),
        ("hold 8 documents", |m| m.shards[0].documents += 1),
        ("languages add up to 8", |m| *m.languages.get_mut("en").unwrap() += 1),
        ("tokens of title", |m| *m.shards[0].tokens.get_mut("title").unwrap() += 1),
        ("no text field", |m| {
            m.statistics.tokens.insert("host".into(), 0);
        }),
        ("more than a number can hold", |m| m.shards[0].documents = u64::MAX),
    ];
    for (expected, change) in cases {
        let found = refusal(change);
        assert!(found.contains(expected), "{expected} not in {found}");
    }
    for path in ["", "/etc/passwd", "shards/main-0000/../../x", "a//b", "a/./b", "a\\b", "a\0b", "é", "a/"] {
        assert!(!valid_path(path), "{path}");
        assert!(
            refusal(|m| m.shards[0].files[0].path = path.into()).contains("plain relative path"),
            "{path}"
        );
        assert!(refusal(|m| m.statistics.file.path = path.into()).contains("plain relative path"), "{path}");
    }
    assert!(valid_path("shards/main-0003/ab12.fast"));
}
