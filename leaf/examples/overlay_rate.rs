//! What tombstones and an overlay cost a top-10 search of one shard: the same queries on four views of one base, one
//! thread, CPU time.
//!
//! Views: the base alone; with 5 % of its documents hidden; with the same documents replaced by newer ones in an overlay
//! of some parts, all searchable; the same seen with `freshness=base`. Words are drawn with a long tail. Arms alternate
//! by round; the figure is the median over rounds of the ratio to the base alone.
//!
//! `cargo run --release -p canopy-leaf --example overlay_rate -- [documents] [rounds] [parts]`

use std::sync::Arc;

use canopy_common::{
    ids::{KeyHash, ShardId, Version},
    rng::Dice,
};
use canopy_format::schema::{Field, Kind, Schema};
use canopy_indexer::index_schema::{IndexSchema, tokens::Packed};
use canopy_leaf::{
    search_shard,
    stop::Stop,
    view::{Base, Overlay, Part, ShardView},
};
use canopy_proto::v1;
use roaring::RoaringBitmap;
use tantivy::{TantivyDocument, Term, directory::RamDirectory};

type Failed = Box<dyn std::error::Error>;

const QUERIES: usize = 300;
/// One in so many documents is replaced.
const EVERY: u32 = 20;
const WORDS: usize = 200_000;

/// Draws ranks with probability about rank^-s.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, s: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-s);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, dice: &Dice) -> usize {
        let at = dice.unit() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|sum| *sum < at).min(self.0.len() - 1)
    }
}

fn schema() -> Result<IndexSchema, Failed> {
    let url =
        Field { name: "url".into(), kind: Kind::Keyword, weight: 0, query: false, show: true, multi: false };
    let (name, key, default_language) = ("bench".into(), "url".into(), "en".into());
    Ok(IndexSchema::new(&Schema { name, key, default_language, fields: vec![url] })?)
}

/// One segment with documents of these numbers.
fn build(
    fields: &IndexSchema,
    zipf: &Zipf,
    seed: u64,
    numbers: impl Iterator<Item = u32>,
) -> Result<Base, Failed> {
    let dice = Dice::seeded(seed);
    let directory = RamDirectory::create();
    let mut writer = fields.builder().single_segment_index_writer::<TantivyDocument>(directory, 1 << 30)?;
    for n in numbers {
        let mut packed = Packed::default();
        // Lengths from 10 on with a long tail, 87 on average.
        let length = 10.0 - 77.0 * (1.0 - dice.unit()).ln();
        for position in 0..length as u32 {
            packed.push(&format!("w{}", zipf.draw(&dice)), position);
        }
        let (high, low) = KeyHash::of(&format!("https://{n}.example/")).parts();
        let mut document = TantivyDocument::new();
        document.add_bytes(fields.key, &[high.to_be_bytes(), low.to_be_bytes()].concat());
        document.add_u64(fields.key_high, high);
        document.add_u64(fields.key_low, low);
        document.add_text(fields.search, packed.finish().0);
        writer.add_document(document)?;
    }
    let searcher = writer.finalize()?.reader()?.searcher();
    Ok(Base::open(&ShardId::new("main", 0), searcher, fields.clone())?)
}

fn request(view: &ShardView, words: &[String], all: bool) -> Result<v1::SearchRequest, Failed> {
    let search = view.base.schema.search;
    let mut terms = Vec::new();
    let mut clauses = Vec::new();
    for token in words {
        let documents = view.base.searcher.doc_freq(&Term::from_field_text(search, token))?.max(1);
        terms.push(v1::TermStatistics { field: "text".into(), token: token.clone(), documents });
        let term = v1::TermQuery { field: "text".into(), tokens: vec![token.clone()], boost: 1.0 };
        clauses.push(v1::Query { node: Some(v1::query::Node::Term(term)) });
    }
    let tokens = view.base.searcher.segment_reader(0).inverted_index(search)?.total_num_tokens();
    let (must, should) = if all { (clauses, vec![]) } else { (vec![], clauses) };
    let bool = v1::BoolQuery { must, should, ..Default::default() };
    let fields = vec![v1::FieldStatistics { field: "text".into(), tokens }];
    let documents = view.documents();
    Ok(v1::SearchRequest {
        shards: vec![v1::ShardRequest { shard: "main/0".into(), k: 10, documents, after: None }],
        statistics: Some(v1::Statistics { id: "bench".into(), documents, fields, terms }),
        query: Some(v1::Query { node: Some(v1::query::Node::Bool(bool)) }),
        ..Default::default()
    })
}

/// CPU time of this thread, microseconds.
fn cpu_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call that fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU microseconds a query.
fn pass(view: &ShardView, requests: &[v1::SearchRequest]) -> Result<f64, Failed> {
    let begun = cpu_us();
    for request in requests {
        if let Some(failure) = search_shard::search(view, request, 0, &Stop::never()).failure {
            return Err(failure.message.into());
        }
    }
    Ok((cpu_us() - begun) / requests.len().max(1) as f64)
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let documents = arguments.next().transpose()?.unwrap_or(200_000);
    let rounds = arguments.next().transpose()?.unwrap_or(9);
    let parts = arguments.next().transpose()?.unwrap_or(3).max(1);
    let (fields, zipf) = (schema()?, Zipf::new(WORDS, 1.05));
    let base = build(&fields, &zipf, 1, 0..documents)?;
    let plain = ShardView::new(ShardId::new("main", 0), Version(1), Arc::new(base));
    let replaced = || (0..documents).step_by(EVERY as usize);
    let hidden = plain.with_tombstones(replaced().collect());
    let mut overlay = Overlay::default();
    for part in 0..parts {
        let numbers = replaced().enumerate().filter(|(at, _)| *at as u32 % parts == part).map(|(_, n)| n);
        let mut base = build(&fields, &zipf, 2 + u64::from(part), numbers)?;
        let segment = Arc::new(base.segments.remove(0));
        let part = Part { segment, hidden: Arc::new(RoaringBitmap::new()), optimised: true };
        overlay.documents += part.live();
        overlay.parts.push(part);
    }
    println!(
        "{documents} documents, {} newer ones in {parts} parts, {rounds} rounds; CPU",
        overlay.documents
    );
    let newer = plain.with_overlay(overlay, replaced().collect(), std::collections::BTreeMap::new());
    let words = Zipf::new(20_000, 0.7);
    println!("{:6} {:>10} {:>12} {:>12} {:>12}", "query", "base us", "tombstones", "overlay", "base only");
    for (name, count, all) in
        [("term", 1, false), ("or2", 2, false), ("or4", 4, false), ("and2", 2, true), ("and3", 3, true)]
    {
        let dice = Dice::seeded(2).stream(name);
        let mut requests = Vec::with_capacity(QUERIES);
        for _ in 0..QUERIES {
            let words: Vec<String> = (0..count).map(|_| format!("w{}", words.draw(&dice))).collect();
            requests.push(request(&plain, &words, all)?);
        }
        let mut old = requests.clone();
        for request in &mut old {
            request.freshness = v1::Freshness::Base as i32;
        }
        let mut alone = Vec::new();
        let mut ratios = [vec![], vec![], vec![]];
        for _ in 0..rounds {
            let first = pass(&plain, &requests)?;
            let others = [pass(&hidden, &requests)?, pass(&newer, &requests)?, pass(&newer, &old)?];
            alone.push(first);
            ratios.iter_mut().zip(others).for_each(|(ratios, other)| ratios.push(other / first));
        }
        let [tombstones, overlay, base] = ratios.map(|mut ratios| median(&mut ratios));
        println!("{name:6} {:>10.1} {tombstones:>12.3} {overlay:>12.3} {base:>12.3}", median(&mut alone));
    }
    Ok(())
}
