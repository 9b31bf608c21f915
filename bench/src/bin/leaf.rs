//! The leaf against the engine alone: the same queries on the same index of one segment, one thread.
//!
//! Arm `engine`: the engine's own query objects and top-k collector, which gives document numbers. Arm `leaf`: the whole
//! search of a shard, from the wire's request to the wire's hits with keys, canonical scores and the shard's account.
//! Words are drawn with a long tail, as are those of the queries. Arms alternate by batches of 50 queries; a round is one pass
//! over the queries; the figure is the median over rounds of the ratio of CPU times. Both arms must select the same
//! scores, or the run fails. With an exact total the engine counts too, so nothing is skipped in either arm; with a
//! bounded one only the leaf counts.
//!
//! `cargo run --release -p canopy-bench --bin leaf -- --documents 200000 --rounds 11`

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use canopy_bench::spent::{Spent, median};
use canopy_common::{
    ids::{KeyHash, ShardId, Version},
    rng::Dice,
};
use canopy_format::schema::{Field, Kind, Schema};
use canopy_indexer::index_schema::{IndexSchema, tokens::Packed};
use canopy_leaf::{
    search_shard,
    stop::Stop,
    view::{Base, ShardView},
};
use canopy_proto::v1;
use clap::Parser;
use serde_json::json;
use tantivy::{
    TantivyDocument, Term,
    collector::{Count, TopDocs},
    query::{BooleanQuery, Occur, Query, TermQuery},
    schema::IndexRecordOption,
};

#[derive(Parser)]
struct Options {
    /// Documents of the index.
    #[arg(long, default_value_t = 200_000)]
    documents: u32,
    /// Distinct words.
    #[arg(long, default_value_t = 200_000)]
    words: usize,
    /// Queries of each kind.
    #[arg(long, default_value_t = 500)]
    queries: usize,
    /// Passes over the queries.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Hits.
    #[arg(long, default_value_t = 10)]
    k: u32,
    /// Keep the index here and use it again.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// One JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Draws ranks with probability about rank^-s.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize, s: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-s);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn draw(&self, dice: &Dice) -> usize {
        let at = dice.unit() * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum < at).min(self.sums.len() - 1)
    }
}

fn schema() -> Result<IndexSchema> {
    let url =
        Field { name: "url".into(), kind: Kind::Keyword, weight: 0, query: false, show: true, multi: false };
    let schema =
        Schema { name: "bench".into(), key: "url".into(), default_language: "en".into(), fields: vec![url] };
    Ok(IndexSchema::new(&schema)?)
}

fn build(dir: &Path, fields: &IndexSchema, options: &Options) -> Result<()> {
    let dice = Dice::seeded(1);
    let zipf = Zipf::new(options.words, 1.05);
    let directory = tantivy::directory::MmapDirectory::open(dir)?;
    let mut writer = fields.builder().single_segment_index_writer::<TantivyDocument>(directory, 2 << 30)?;
    for n in 0..options.documents {
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
    writer.finalize()?;
    Ok(())
}

/// A kind of query: name, words, how they combine.
const KINDS: [(&str, usize, Occur); 5] = [
    ("term", 1, Occur::Should),
    ("or2", 2, Occur::Should),
    ("or4", 4, Occur::Should),
    ("and2", 2, Occur::Must),
    ("and3", 3, Occur::Must),
];

struct Case {
    words: Vec<String>,
    occur: Occur,
    request: v1::SearchRequest,
}

fn case(view: &ShardView, words: Vec<String>, occur: Occur, k: u32, total: v1::TotalMode) -> Result<Case> {
    let searcher = &view.base.searcher;
    let search = view.base.schema.search;
    let mut terms = Vec::new();
    for token in &words {
        let documents = searcher.doc_freq(&Term::from_field_text(search, token))?.max(1);
        terms.push(v1::TermStatistics { field: "text".into(), token: token.clone(), documents });
    }
    let tokens = searcher.segment_reader(0).inverted_index(search)?.total_num_tokens();
    let fields = vec![v1::FieldStatistics { field: "text".into(), tokens }];
    let documents = view.documents();
    let clauses: Vec<v1::Query> = words
        .iter()
        .map(|token| {
            let term = v1::TermQuery { field: "text".into(), tokens: vec![token.clone()], boost: 1.0 };
            v1::Query { node: Some(v1::query::Node::Term(term)) }
        })
        .collect();
    let bool = match occur {
        Occur::Must => v1::BoolQuery { must: clauses, ..Default::default() },
        _ => v1::BoolQuery { should: clauses, ..Default::default() },
    };
    let request = v1::SearchRequest {
        shards: vec![v1::ShardRequest { shard: "main/0".into(), k, documents, after: None }],
        statistics: Some(v1::Statistics { id: "bench".into(), documents, fields, terms }),
        query: Some(v1::Query { node: Some(v1::query::Node::Bool(bool)) }),
        total: total as i32,
        ..Default::default()
    };
    Ok(Case { words, occur, request })
}

fn engine(view: &ShardView, case: &Case, k: usize) -> Result<Vec<f32>> {
    let search = view.base.schema.search;
    let term = |word: &String| -> Box<dyn Query> {
        Box::new(TermQuery::new(Term::from_field_text(search, word), IndexRecordOption::WithFreqs))
    };
    let query: Box<dyn Query> = match case.words.as_slice() {
        [only] => term(only),
        words => Box::new(BooleanQuery::new(words.iter().map(|word| (case.occur, term(word))).collect())),
    };
    let top = TopDocs::with_limit(k).order_by_score();
    let hits = if case.request.total() == v1::TotalMode::TotalExact {
        view.base.searcher.search(&query, &(top, Count))?.0
    } else {
        view.base.searcher.search(&query, &top)?
    };
    Ok(hits.into_iter().map(|hit| hit.0).collect())
}

fn leaf(view: &ShardView, case: &Case) -> Result<Vec<f32>> {
    let result = search_shard::search(view, &case.request, 0, &Stop::never());
    ensure!(result.failure.is_none(), "{:?}", result.failure);
    Ok(result.hits.iter().map(|hit| hit.score).collect())
}

/// Both arms select the same scores (the engine's are rounded on the way).
fn agree(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs() + 1e-5)
}

fn main() -> Result<()> {
    let options = Options::parse();
    let fields = schema()?;
    let temporary = tempfile::tempdir()?;
    let dir = options.dir.clone().unwrap_or_else(|| temporary.path().into());
    std::fs::create_dir_all(&dir)?;
    if !dir.join("meta.json").exists() {
        build(&dir, &fields, &options).context("build the index")?;
    }
    let index = tantivy::Index::open_in_dir(&dir)?;
    let id = ShardId::new("main", 0);
    let base = Base::open(&id, index.reader()?.searcher(), fields)?;
    ensure!(base.segments.len() == 1, "the index has several segments");
    let view = ShardView::new(id, Version(1), Arc::new(base));
    let words = Zipf::new(options.words.min(20_000), 0.7);
    let mut rows = Vec::new();
    for total in [v1::TotalMode::TotalNone, v1::TotalMode::TotalBounded, v1::TotalMode::TotalExact] {
        for (name, count, occur) in KINDS {
            let dice = Dice::seeded(2).stream(name);
            let cases = (0..options.queries).map(|_| {
                let words = (0..count).map(|_| format!("w{}", words.draw(&dice))).collect();
                case(&view, words, occur, options.k, total)
            });
            let cases = cases.collect::<Result<Vec<_>>>()?;
            rows.push((name, total.as_str_name(), measure(&view, &cases, &options)?));
        }
    }
    if options.json {
        let rows = rows.iter().map(|(name, total, row)| {
            json!({ "query": name, "total": total, "engine_us": row.engine, "leaf_us": row.leaf, "cpu_ratio": row.ratio,
                    "cpu_ratio_low": row.low, "cpu_ratio_high": row.high, "wall_ratio": row.wall })
        });
        println!(
            "{}",
            json!({ "documents": view.documents(), "rounds": options.rounds, "rows": rows.collect::<Vec<_>>() })
        );
        return Ok(());
    }
    println!(
        "{} documents, top {}, {} queries a kind, {} rounds; CPU us a query",
        view.documents(),
        options.k,
        options.queries,
        options.rounds
    );
    println!(
        "{:6} {:16} {:>10} {:>10} {:>18} {:>10}",
        "query", "total", "engine", "leaf", "cpu ratio", "wall ratio"
    );
    for (name, total, row) in rows {
        let spread = format!("{:.3} ({:.2}-{:.2})", row.ratio, row.low, row.high);
        println!(
            "{name:6} {total:16} {:>10.1} {:>10.1} {spread:>18} {:>10.3}",
            row.engine, row.leaf, row.wall
        );
    }
    Ok(())
}

struct Row {
    engine: f64,
    leaf: f64,
    ratio: f64,
    low: f64,
    high: f64,
    wall: f64,
}

fn measure(view: &ShardView, cases: &[Case], options: &Options) -> Result<Row> {
    let k = options.k as usize;
    for case in cases {
        let (a, b) = (engine(view, case, k)?, leaf(view, case)?);
        ensure!(agree(&a, &b), "{:?}: engine {a:?}, leaf {b:?}", case.words);
    }
    let (mut engine_us, mut leaf_us, mut ratios, mut walls) = (vec![], vec![], vec![], vec![]);
    for round in 0..options.rounds {
        let (mut one, mut two) = (Spent::default(), Spent::default());
        // Reading the thread's clock costs half a microsecond, so it is read per batch.
        for (at, batch) in cases.chunks(50).enumerate() {
            let mut first =
                || one.time(|| batch.iter().try_for_each(|case| engine(view, case, k).map(|_| ())));
            let mut second = || two.time(|| batch.iter().try_for_each(|case| leaf(view, case).map(|_| ())));
            if (at + round) % 2 == 0 {
                first()?;
                second()?;
            } else {
                second()?;
                first()?;
            }
        }
        let each = cases.len() as f64;
        engine_us.push(one.cpu_us() / each);
        leaf_us.push(two.cpu_us() / each);
        ratios.push(two.cpu_us() / one.cpu_us());
        walls.push(two.wall_us() / one.wall_us());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(Row {
        engine: median(&mut engine_us),
        leaf: median(&mut leaf_us),
        low: ratios[0],
        high: ratios[ratios.len() - 1],
        ratio: median(&mut ratios),
        wall: median(&mut walls),
    })
}
