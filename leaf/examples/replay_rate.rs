//! How fast a leaf replays the log, against building the same documents with the same analysis and nothing else, on one core.
//!
//! `cargo run --release -p canopy-leaf --example replay_rate [DOCUMENTS]` (default 100000). Half of the operations replace documents of
//! a base of that size, the other half is new. "build" analyses documents that are parsed already and adds them to
//! one segment; "read and build" parses them first, as the replay does. The replay decodes records, finds every key in the
//! base, decides, indexes and closes its parts. Operations a second of this thread's CPU time, which other work on the machine
//! disturbs least.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::{
    ids::{ShardId, Version},
    rng::Dice,
};
use canopy_format::{
    analysis::Analyzer,
    document::Document,
    graves::Graves,
    layout::slot,
    operation::{Action, Operation},
    schema::Schema,
    store::Ordering,
};
use canopy_indexer::index_schema::{IndexDocument, IndexSchema, Place};
use canopy_leaf::{
    overlay::{
        OverlayConfig,
        apply::{Applied, Incoming},
        ground::Ground,
        write::LARGE,
    },
    view::{Base, ShardView},
};
use canopy_log::Slots;
use prost::Message;
use tantivy::{Index, directory::RamDirectory};

const PARTITIONS: u32 = 16;
const BATCH: usize = 10_000;

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000_usize);
    let schema = IndexSchema::of(&Schema::web(), true).expect("schema");
    let dice = Dice::seeded(7);
    let base: Vec<Document> = (0..count).map(|n| document(&dice, n)).collect();
    let operations: Vec<Document> =
        (0..count).map(|n| document(&dice, if n % 2 == 0 { n } else { count + n })).collect();
    let whole: Vec<Vec<u8>> = operations.iter().map(|document| document.to_whole(&Schema::web())).collect();
    let bytes: usize = whole.iter().map(Vec::len).sum();
    println!("{count} operations of {} bytes each on a base of {count} documents", bytes / count);

    let (index, _) = timed("base", count, || build(&schema, &base));
    let (_, raw) = timed("build", count, || build(&schema, &operations));
    let (_, read) = timed("read and build", count, || {
        let parsed = whole.iter().map(|json| {
            let fields = serde_json::from_slice(json).expect("an object");
            Document::from_whole(&Schema::web(), fields).expect("a document")
        });
        build(&schema, &parsed.collect::<Vec<_>>())
    });
    let records = records(&operations);
    let shard = ShardId::new("main", 0);
    let searcher = index.reader().expect("reader").searcher();
    let base = Base::open(&shard, searcher, schema).expect("base");
    let view = ShardView::new(shard, Version(1), Arc::new(base));
    let ground = Arc::new(Ground::new(view, Ordering::Log, Slots::all(), Graves::default()).expect("ground"));
    let (applied, replayed) = timed("replay", count, || replay(ground, &records));
    println!("replay is {:.2} of build, {:.2} of read and build", replayed / raw, replayed / read);
    println!(
        "{} parts, {} live documents, {} tombstones, {:.1} MiB",
        applied.view().overlay.parts.len(),
        applied.documents().0,
        applied.tombstones(),
        applied.bytes() as f64 / f64::from(1 << 20),
    );
}

fn document(dice: &Dice, n: usize) -> Document {
    let word = || {
        // Few words are frequent and many are rare.
        let rank = (dice.unit().powi(3) * 20_000.0) as u64;
        format!("w{rank:x}")
    };
    let words = |count| (0..count).map(|_| word()).collect::<Vec<_>>().join(" ");
    let fields = serde_json::json!({
        "url": format!("https://{n}.example.org/page"),
        "title": words(6),
        "body": words(70),
        "lang": "en",
        "host": format!("{}.example.org", n % 1000),
    });
    Document::from_json(&Schema::web(), fields.as_object().expect("object").clone()).expect("document")
}

fn build(schema: &IndexSchema, documents: &[Document]) -> Index {
    let analyzer = Analyzer::new();
    let writer =
        schema.builder().single_segment_index_writer::<IndexDocument>(RamDirectory::create(), 1 << 30);
    let mut writer = writer.expect("writer");
    for document in documents {
        writer.add_document(schema.document(document, &analyzer, Place::default())).expect("add");
    }
    writer.finalize().expect("finalize")
}

fn records(documents: &[Document]) -> Vec<Incoming> {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    let each = documents.iter().map(|document| {
        let partition = u32::from(slot(&document.key)) % PARTITIONS;
        let at = next.entry(partition).or_default();
        *at += 1;
        let operation =
            Operation { key: document.key.clone(), action: Action::Put(document.clone()), order: 0 };
        let record = canopy_log::record::encode(&operation, &Schema::web(), 1).encode_to_vec().into();
        Incoming { partition, offset: *at - 1, record }
    });
    each.collect()
}

fn replay(ground: Arc<Ground>, records: &[Incoming]) -> Applied {
    let mut applied = Applied::new(ground, &OverlayConfig::default(), BTreeMap::new());
    let mut letters = Vec::new();
    for batch in records.chunks(BATCH) {
        applied.apply(batch, &BTreeMap::new(), LARGE, &mut letters).expect("apply");
    }
    applied.close().expect("close");
    assert!(letters.is_empty(), "nothing was refused");
    applied
}

fn timed<T>(what: &str, count: usize, work: impl FnOnce() -> T) -> (T, f64) {
    let before = cpu_seconds();
    let done = work();
    let rate = count as f64 / (cpu_seconds() - before);
    println!("{what:>15}: {rate:>9.0} a second");
    (done, rate)
}

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call with a structure of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
