//! Build rate and memory, against the engine alone.
//!
//! `cargo run --release -p canopy-indexer --example build_rate -- build|raw [DOCUMENTS] [MEMORY_MIB] [THREADS] [SHARDS]`
//!
//! Both arms read the same synthetic JSON lines (made once, Zipf-distributed words), check them against the web schema
//! and analyse them the same way. `build` publishes a version; `raw` gives the documents to the engine's own
//! multi-threaded writer and commits, without merging, sorting, statistics, checks or manifest. One arm a process, so
//! that its memory is its own: prints documents per second by wall clock, CPU seconds, and the peak of anonymous
//! memory.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_format::{
    analysis::Analyzer,
    document::Document,
    schema::Schema,
    store::{Corpus, Ordering as Order, VersionStore},
};
use canopy_indexer::{
    build::{self, BuildRequest},
    index_schema::{IndexDocument, IndexSchema, Place},
    source,
};
use crossbeam_channel::RecvTimeoutError;
use tantivy::{IndexWriter, indexer::NoMergePolicy};
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy)]
struct Size {
    documents: u64,
    memory: u64,
    threads: usize,
    shards: u32,
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let size = Size {
        documents: number(1, 200_000)?,
        memory: number(2, 1024)? << 20,
        threads: number(3, 2)? as usize,
        shards: number(4, 4)? as u32,
    };
    let input = synthetic(size.documents)?;
    let directory = tempfile::tempdir()?;
    let peak = Peak::watch();
    let (wall, cpu) = (Instant::now(), cpu_seconds()?);
    let done = match args.first().map(String::as_str) {
        Some("build") => whole(&input, directory.path(), size)?,
        Some("raw") => raw(&input, directory.path(), size)?,
        _ => return Err("say build or raw".into()),
    };
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    println!(
        "{} documents, {wall:.2} s wall, {cpu:.2} s CPU: {:.0} documents/s wall, {:.0} per CPU second, peak {} MiB anonymous",
        done,
        done as f64 / wall,
        done as f64 / cpu,
        peak.stop() >> 20
    );
    Ok(())
}

/// The whole pipeline.
fn whole(input: &Path, directory: &Path, size: Size) -> Result<u64, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let store = VersionStore::open(&directory.to_string_lossy(), true)?;
        let corpus =
            Corpus { name: "web".into(), schema: Schema::web(), partitions: 1, ordering: Order::default() };
        store.create_corpus(&corpus).await?;
        let report = build::run(BuildRequest {
            memory: size.memory,
            threads: size.threads,
            shards: Some(size.shards),
            ..BuildRequest::new(store, "web", vec![input.to_owned()])
        })
        .await?;
        println!(
            "stages {:?}, {} MiB, {} MiB spilled, {} segments",
            report.seconds,
            report.bytes >> 20,
            report.spilled_bytes >> 20,
            report.segments
        );
        Ok(report.documents)
    })
}

/// The engine alone.
fn raw(input: &Path, directory: &Path, size: Size) -> Result<u64, Failure> {
    let schema = Schema::web();
    let index_schema = IndexSchema::new(&schema)?;
    let index = index_schema.builder().create_in_dir(directory)?;
    let mut writer: IndexWriter<IndexDocument> =
        index.writer_with_num_threads(size.threads, size.memory as usize)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    let done = AtomicU64::new(0);
    let (send, receive) = crossbeam_channel::bounded::<Vec<source::Record>>(4);
    std::thread::scope(|scope| {
        let work = || -> Result<(), Failure> {
            let analyzer = Analyzer::new();
            for records in receive.clone() {
                for record in records {
                    let document = Document::from_json(&schema, record.content?)?;
                    writer.add_document(index_schema.document(&document, &analyzer, Place::default()))?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        let workers: Vec<_> = (0..size.threads).map(|_| scope.spawn(work)).collect();
        let mut batch = vec![];
        for record in source::open(input, None)? {
            batch.push(record);
            if batch.len() == 256 {
                send.send(std::mem::take(&mut batch))?;
            }
        }
        send.send(batch)?;
        drop(send);
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker failed")?)
    })?;
    writer.commit()?;
    writer.wait_merging_threads()?;
    Ok(done.into_inner())
}

/// JSON lines of pages whose words follow Zipf's law; made once per size.
fn synthetic(documents: u64) -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("canopy-synthetic-{documents}.jsonl"));
    if path.exists() {
        return Ok(path);
    }
    let mut dice = Dice(42);
    let part = path.with_extension("part");
    let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(&part)?);
    let mut text = String::new();
    for number in 0..documents {
        let host = dice.below(20_000);
        text.clear();
        write!(
            text,
            "{{\"url\":\"https://host{host}.example/pages/{number}\",\"host\":\"host{host}.example\","
        )?;
        write!(text, "\"lang\":\"en\",\"static_rank\":{:.4},", dice.unit() * dice.unit())?;
        write!(
            text,
            "\"published\":\"20{:02}-0{}-1{}T10:00:00Z\",",
            dice.below(25),
            1 + dice.below(9),
            dice.below(10)
        )?;
        text.push_str("\"title\":\"");
        words(&mut text, &mut dice, 3, 8)?;
        text.push_str("\",\"body\":\"");
        words(&mut text, &mut dice, 20, 150)?;
        text.push_str("\"}\n");
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    fs::rename(&part, &path)?;
    Ok(path)
}

/// Between `least` and `most` words.
fn words(text: &mut String, dice: &mut Dice, least: u64, most: u64) -> Result<(), Failure> {
    for count in 0..least + dice.below(most - least) {
        if count > 0 {
            text.push(' ');
        }
        // inverse of the cumulative distribution of 1/rank over 200,000 words
        let rank = (200_000f64).powf(dice.unit()) as u64;
        let mut number = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        for _ in 0..2 + rank % 4 {
            let (consonant, vowel) = (number % 17, number / 17 % 5);
            text.push(char::from(b"bcdfghklmnprstvwz"[consonant as usize]));
            text.push(char::from(b"aeiou"[vowel as usize]));
            number /= 85;
        }
        write!(text, "{}", if rank > 50_000 { "x" } else { "" })?;
    }
    Ok(())
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// CPU seconds of this process, user and system.
fn cpu_seconds() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}

/// Samples anonymous memory.
struct Peak {
    highest: Arc<AtomicU64>,
    stop: crossbeam_channel::Sender<()>,
}

impl Peak {
    fn watch() -> Self {
        let (stop, stopped) = crossbeam_channel::bounded(1);
        let highest = Arc::new(AtomicU64::new(0));
        let seen = highest.clone();
        std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(20)) {
                seen.fetch_max(anonymous(), Ordering::Relaxed);
            }
        });
        Self { highest, stop }
    }

    fn stop(self) -> u64 {
        drop(self.stop);
        self.highest.load(Ordering::Relaxed)
    }
}

/// Anonymous memory of this process, bytes.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
