//! Random operations, repetitions, merges and restarts: what is shown is what the reference map has.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::rng::Dice;
use canopy_format::{
    document::Document,
    newest::{Kind, Stamp},
    operation::{Action, Given},
    schema::Schema,
    store::Ordering,
};
use canopy_log::record;
use serde_json::{Map, Value as Json, json};
use xxhash_rust::xxh3::xxh3_128;

use super::bed;
use crate::overlay::{
    apply::{Applied, Incoming},
    checkpoint::{self, Of, Written},
    config::OverlayConfig,
    ground::Ground,
    merge::Job,
    part::Part,
    write::SMALL,
};

/// A document as the reference has it: each field with the write that set it.
#[derive(Debug, Clone, Default)]
struct Entry {
    /// Newest put or delete.
    stamp: (u64, u64),
    live: bool,
    fields: BTreeMap<String, ((u64, u64), Json)>,
}

/// The reference: applies one record after the other, by values, without engine or positions.
#[derive(Default)]
struct Reference(BTreeMap<String, Entry>);

impl Reference {
    fn base(documents: &[(Json, u64)]) -> Self {
        let mut reference = Self::default();
        for (fields, order) in documents {
            let document = bed::document(fields);
            let whole: Map<String, Json> =
                serde_json::from_slice(&document.to_whole(&Schema::web())).unwrap();
            let stamp = (*order, 0);
            let fields = whole.into_iter().map(|(name, value)| (name, (stamp, value))).collect();
            reference.0.insert(document.key, Entry { stamp, live: true, fields });
        }
        reference
    }

    fn apply(&mut self, line: &Json, stamp: (u64, u64)) {
        let key = line["key"].as_str().unwrap().to_owned();
        let given = Given { op: "put".into(), key: key.clone(), document: None, order: None };
        let known = self.0.contains_key(&key);
        let entry = self.0.entry(key).or_default();
        let newest = !known || stamp > entry.stamp;
        match line["op"].as_str().unwrap() {
            "delete" if newest => *entry = Entry { stamp, live: false, fields: BTreeMap::new() },
            "put" if newest => {
                let document = line["document"].as_object().cloned();
                let put = Given { document, ..given }.check(&Schema::web(), Ordering::Log).unwrap();
                let Action::Put(document) = put.action else { unreachable!() };
                let whole: Map<String, Json> =
                    serde_json::from_slice(&document.to_whole(&Schema::web())).unwrap();
                let mut fields: BTreeMap<_, _> =
                    whole.into_iter().map(|(name, value)| (name, (stamp, value))).collect();
                fields.extend(
                    std::mem::take(&mut entry.fields).into_iter().filter(|(_, (set, _))| *set > stamp),
                );
                *entry = Entry { stamp, live: true, fields };
            }
            "patch" if entry.live => {
                for (name, value) in line["document"].as_object().unwrap() {
                    let set = entry.fields.get(name).map_or(entry.stamp, |(set, _)| *set).max(entry.stamp);
                    if stamp > set {
                        entry.fields.insert(name.clone(), (stamp, value.clone()));
                    }
                }
            }
            _ => {}
        }
        if !known && !entry.live && line["op"] == "patch" {
            self.0.remove(line["key"].as_str().unwrap());
        }
    }

    fn shown(&self) -> BTreeMap<String, Map<String, Json>> {
        let live = self.0.iter().filter(|(_, entry)| entry.live);
        live.map(|(key, entry)| {
            let fields = entry.fields.iter().filter(|(_, (_, value))| !value.is_null());
            (key.clone(), fields.map(|(name, (_, value))| (name.clone(), value.clone())).collect())
        })
        .collect()
    }
}

fn key(n: u64) -> String {
    format!("https://{n}.example/")
}

fn line(dice: &Dice, ordering: Ordering) -> Json {
    let (n, word) = (dice.below(12), dice.below(1000));
    let mut line = match dice.below(5) {
        0 => json!({ "op": "delete" }),
        1 | 2 => {
            let mut fields = Map::new();
            if dice.below(2) == 0 {
                fields.insert("title".into(), json!(format!("patched {word}")));
            }
            if fields.is_empty() || dice.below(2) == 0 {
                fields.insert(
                    "anchors".into(),
                    if dice.below(4) == 0 { Json::Null } else { json!([format!("to {word}")]) },
                );
            }
            json!({ "op": "patch", "document": fields })
        }
        _ => json!({ "op": "put", "document": {
            "title": format!("title {word}"), "body": "some words", "anchors": [format!("from {word}")], "lang": "en",
        }}),
    };
    line["key"] = json!(key(n));
    if ordering == Ordering::Producer {
        line["order"] = json!(dice.below(40).to_string());
    }
    line
}

fn stamp(ordering: Ordering, incoming: &Incoming) -> (u64, u64) {
    let record = record::decode(&incoming.record).unwrap();
    let kind = match record.op {
        1 => Kind::Put,
        2 => Kind::Patch,
        _ => Kind::Delete,
    };
    let stamp = match ordering {
        // The base is older than any offset.
        Ordering::Log => Stamp::of_log(incoming.offset + 1),
        Ordering::Producer => Stamp::of_producer(record.order, kind, xxh3_128(&record.document)),
    };
    (stamp.order, stamp.tie)
}

struct Real {
    ground: Arc<Ground>,
    config: OverlayConfig,
    applied: Applied,
    written: Written,
    merging: Option<Job>,
    dir: tempfile::TempDir,
}

fn of() -> Of {
    Of { corpus: "web".into(), version: 1, shard: "main/0".into(), base: "b".into() }
}

impl Real {
    fn new(documents: &[(Json, u64)], ordering: Ordering) -> Self {
        let (ground, config) = (bed::ground(documents, ordering, true), OverlayConfig::default());
        let applied = bed::empty(&ground, &config);
        let (written, dir) = (Written::default(), tempfile::tempdir().unwrap());
        Self { ground, config, applied, written, merging: None, dir }
    }

    /// Something that may happen at any moment.
    fn happens(&mut self, dice: &Dice) {
        match dice.below(6) {
            0 => self.applied.close().unwrap(),
            1 if self.merging.is_none() => self.begin_merge(),
            1 | 2 => {
                if let Some(job) = self.merging.take() {
                    let part: Option<Part> =
                        job.run(&self.ground.view.shard, &self.ground.view.base.schema).unwrap();
                    self.applied.merged(&job, part);
                }
            }
            3 => {
                self.applied.close().unwrap();
                let snapshot = self.written.snapshot(&self.applied, &of(), "e").unwrap();
                snapshot.write(self.dir.path()).unwrap();
            }
            4 => self.crash(),
            _ => {}
        }
    }

    /// Merges whatever is there, whether it is worth it or not.
    fn begin_merge(&mut self) {
        self.applied.close().unwrap();
        let parts: Vec<&Part> = self.applied.parts.iter().collect();
        if !parts.is_empty() {
            let job = Job::new(self.applied.next_part, &parts);
            self.applied.next_part += 1;
            self.merging = Some(job);
        }
    }

    /// All that is in memory is gone; begins from the checkpoint.
    fn crash(&mut self) {
        self.merging = None;
        let read = checkpoint::read(self.dir.path(), &of(), &self.ground, &self.config).unwrap();
        (self.applied, self.written) = match read {
            Some(read) => (read.applied, read.written),
            None => (bed::empty(&self.ground, &self.config), Written::default()),
        };
    }
}

fn run(seed: u64, ordering: Ordering) {
    let dice = Dice::seeded(seed);
    let documents: Vec<(Json, u64)> = (0..6)
        .map(|n| {
            let fields =
                json!({ "url": key(n), "title": format!("base {n}"), "anchors": ["old"], "lang": "en" });
            (fields, if ordering == Ordering::Producer { dice.below(30) } else { 0 })
        })
        .collect();
    let mut real = Real::new(&documents, ordering);
    let mut reference = Reference::base(&documents);
    let (mut log, mut next): (Vec<Incoming>, BTreeMap<u32, u64>) = Default::default();
    for round in 0..12 {
        let lines: Vec<Json> = (0..=dice.below(12)).map(|_| line(&dice, ordering)).collect();
        let records = bed::incoming(&lines, ordering, &mut next);
        for (line, record) in lines.iter().zip(&records) {
            reference.apply(line, stamp(ordering, record));
        }
        log.extend(records);
        real.happens(&dice);
        // Everything that it has not seen, and some that it has.
        let again = dice.below(4) == 0;
        let offsets = real.applied.offsets().clone();
        let wanted = |record: &&Incoming| {
            again || record.offset >= offsets.get(&record.partition).copied().unwrap_or(0)
        };
        let records: Vec<Incoming> = log.iter().filter(wanted).cloned().collect();
        real.applied.apply(&records, &next, SMALL, &mut Vec::new()).unwrap();
        real.happens(&dice);
        let behind = real.applied.offsets() != &next && !next.is_empty();
        if !behind {
            real.applied.close().unwrap();
            let view = real.applied.view();
            assert_eq!(bed::shown(&view), reference.shown(), "{ordering:?}, seed {seed}, round {round}");
        }
    }
}

#[test]
fn what_is_shown_is_what_the_reference_has_in_the_order_of_the_log() {
    (0..40).for_each(|seed| run(seed, Ordering::Log));
}

#[test]
fn what_is_shown_is_what_the_reference_has_in_the_order_of_producers() {
    (100..140).for_each(|seed| run(seed, Ordering::Producer));
}

/// A merge that copies documents while they are deleted and replaced brings none back.
#[test]
fn a_merge_brings_no_deleted_document_back() {
    for seed in 0..60 {
        let dice = Dice::seeded(seed);
        let mut real = Real::new(&[], Ordering::Log);
        let mut reference: BTreeMap<String, String> = BTreeMap::new();
        for round in 0..8 {
            let mut batch = |real: &mut Real| {
                let lines: Vec<Json> = (0..6)
                    .map(|n| {
                        let (key, title) = (key(dice.below(8)), format!("{round} {n}"));
                        if dice.below(3) == 0 {
                            reference.remove(&key);
                            return bed::delete(&key);
                        }
                        reference.insert(key.clone(), title.clone());
                        bed::put(&key, &title)
                    })
                    .collect();
                assert!(bed::write(&mut real.applied, &lines).is_empty());
            };
            batch(&mut real);
            real.begin_merge();
            batch(&mut real);
            let Some(job) = real.merging.take() else { continue };
            let part = job.run(&real.ground.view.shard, &real.ground.view.base.schema).unwrap();
            batch(&mut real);
            real.applied.merged(&job, part);
            assert_eq!(bed::titles(&real.applied.view()), reference, "seed {seed}, round {round}");
        }
    }
}

/// A document whose language nobody says keeps the one that was detected when it was taken.
#[test]
fn a_document_reads_back_as_it_was_taken() {
    let ground = bed::ground(&[], Ordering::Log, true);
    let mut applied = bed::empty(&ground, &OverlayConfig::default());
    let fields = json!({ "title": "Der schnelle braune Fuchs springt über den faulen Hund", "topic": ["a", "b"],
        "anchors": ["x"], "static_rank": 0.25, "published": "2024-02-29", "attributes": { "color": "red" } });
    let line = json!({ "op": "put", "key": key(1), "document": fields });
    assert!(bed::write(&mut applied, std::slice::from_ref(&line)).is_empty());
    let given = Given::from_line(line.to_string().as_bytes()).unwrap();
    let Action::Put(document) = given.check(&Schema::web(), Ordering::Log).unwrap().action else {
        panic!("a put")
    };
    let read = Document::from_whole(&Schema::web(), bed::shown(&applied.view())[&key(1)].clone()).unwrap();
    assert_eq!((read.language.as_str(), &read), ("de", &document));
}
