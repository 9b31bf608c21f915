//! The work of a build between the claim and the store: read, validate, partition; sort, analyse, write; statistics;
//! check. Blocking, on threads of its own; everything it writes lies in the build's working directory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use canopy_common::ids::{KeyHash, ShardId};
use canopy_format::{
    analysis::Analyzer,
    manifest::{BuildCounts, FileEntry, StatisticsEntry},
    schema::SEARCH_FIELD,
    statistics,
};
use parking_lot::Mutex;

use super::{
    check, keys,
    partition::{Bucket, Partition},
    plan::{Memory, Plan},
    progress::{Amount, Stage},
    read::{Input, Reader},
    reject::{RejectLine, Rejects},
    request::BuildRequest,
    row::Codec,
    shard::{self, ShardTools, Written},
    stop::Stop,
    terms::{self, Terms},
    timing::Timing,
    validate::Validator,
};
use crate::error::{Error, Result};

/// What a build made, not yet in the store.
pub(crate) struct Made {
    pub(crate) shards: Vec<Written>,
    pub(crate) statistics: StatisticsEntry,
    pub(crate) statistics_file: PathBuf,
    pub(crate) counts: BuildCounts,
    pub(crate) rejects: Vec<RejectLine>,
    pub(crate) spilled_bytes: u64,
    pub(crate) timing: Timing,
}

/// Input of a build, and what only tests set otherwise.
pub(crate) struct Feed {
    pub(crate) inputs: Vec<Input>,
    /// Hash of a key: one that collides.
    pub(crate) key_hash: fn(&str) -> KeyHash,
    /// Shares of memory: ones that a small input exceeds.
    pub(crate) memory: Option<Memory>,
}

impl Feed {
    pub(crate) fn new(inputs: Vec<Input>) -> Self {
        Self { inputs, key_hash: KeyHash::of, memory: None }
    }
}

/// Makes shards and statistics of the input in `work`.
pub(crate) fn make(request: &BuildRequest, plan: &Plan, feed: &Feed, work: &Path) -> Result<Made> {
    let mut timing = Timing::new(request.progress.clone());
    let memory =
        feed.memory.unwrap_or_else(|| Memory::share(request.memory, request.threads, plan.layout.shards));
    let codec = Codec::new(&plan.schema);
    let (buckets, mut counts, rejects) = read(request, plan, feed, &codec, (work, memory), &mut timing)?;
    let spilled_bytes = buckets.iter().map(|bucket| bucket.spill.bytes()).sum();
    let records = counts.read - counts.rejected;
    let shards = write(request, plan, &codec, (buckets, records), (work, memory), &mut timing)?;
    counts.superseded = shards.iter().map(|shard| shard.sort.superseded).sum();
    counts.long_tokens = shards.iter().map(|shard| shard.counts.long_tokens).sum();
    judge_size(request, plan, shards.iter().map(|shard| shard.documents).sum(), &counts)?;
    finish(request, plan, work, Made { counts, rejects, spilled_bytes, ..Made::of(shards, work, timing) })
}

impl Made {
    /// Shards that were written, without their statistics.
    pub(crate) fn of(shards: Vec<Written>, work: &Path, timing: Timing) -> Self {
        let nothing = FileEntry { path: String::new(), bytes: 0, blake3: String::new() };
        let statistics = StatisticsEntry {
            id: String::new(),
            file: nothing,
            documents: 0,
            tokens: BTreeMap::new(),
            terms: 0,
            spellings: None,
        };
        Self {
            shards,
            statistics,
            statistics_file: work.join("statistics"),
            counts: BuildCounts::default(),
            rejects: vec![],
            spilled_bytes: 0,
            timing,
        }
    }
}

/// Checks the shards, and makes their statistics.
pub(crate) fn finish(request: &BuildRequest, plan: &Plan, work: &Path, mut made: Made) -> Result<Made> {
    check_keys(plan, &made.shards, work)?;
    let path = made.statistics_file.clone();
    made.statistics = merge_statistics(request, &made.shards, work, &path, &mut made.timing)?;
    for (number, shard) in made.shards.iter().enumerate() {
        request.cancel.check()?;
        check::shard(&shard.directory, &plan.index_schema, shard.documents, &name(plan, number))?;
    }
    Ok(made)
}

fn name(plan: &Plan, shard: usize) -> String {
    ShardId::new(&plan.layout.group, shard as u32).to_string()
}

/// Reads, validates and partitions all input.
fn read(
    request: &BuildRequest,
    plan: &Plan,
    feed: &Feed,
    codec: &Codec,
    (work, memory): (&Path, Memory),
    timing: &mut Timing,
) -> Result<(Vec<Bucket>, BuildCounts, Vec<RejectLine>)> {
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let total = Amount { documents: 0, bytes: request.inputs.iter().map(size).sum() };
    timing.begin(Stage::Read, total);
    let rejects = Rejects::create(request.reject_file.clone())?;
    let partition = Partition::new(plan.layout.shards, memory.rows, work);
    let stop = Stop::new(&request.cancel);
    let reader = Reader::new(&feed.inputs, &*request.progress, &stop)?;
    let ends = (&partition, &rejects);
    let validator =
        Validator::new((&plan.schema, plan.ordering), &plan.layout, codec, feed.key_hash, ends, &stop);
    let (send, receive) = crossbeam_channel::bounded(request.threads * 2);
    let panicked = std::thread::scope(|scope| {
        let mut threads = vec![];
        for _ in 0..request.threads.min(feed.inputs.len()) {
            let (send, reader, stop) = (send.clone(), &reader, &stop);
            threads.push(scope.spawn(move || stop.run(|| reader.run(&send))));
        }
        drop(send);
        for _ in 0..request.threads {
            let (receive, validator, stop) = (receive.clone(), &validator, &stop);
            threads.push(scope.spawn(move || stop.run(|| validator.run(&receive))));
        }
        drop(receive);
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).any(|end| end.is_err())
    });
    let seen = validator.counts();
    let counts = BuildCounts {
        read: seen.read.load(Ordering::Relaxed),
        rejected: seen.rejected.load(Ordering::Relaxed),
        dropped_fields: seen.dropped_fields.load(Ordering::Relaxed),
        ..BuildCounts::default()
    };
    let damaged = seen.damaged.load(Ordering::Relaxed);
    if panicked {
        return Err(Error::Panicked);
    }
    stop.result()?;
    let samples = rejects.finish()?;
    rejects.judge(counts.read, counts.rejected, request.max_rejects, samples.first())?;
    judge_files(request, damaged, &samples)?;
    judge_size(request, plan, counts.read - counts.rejected, &counts)?;
    let buckets = partition.close(memory.keep)?;
    timing.end(Stage::Read);
    Ok((buckets, counts, samples))
}

/// Writes all shards, the fullest first, a few at a time.
pub(crate) fn write(
    request: &BuildRequest,
    plan: &Plan,
    codec: &Codec,
    (buckets, documents): (Vec<Bucket>, u64),
    (work, memory): (&Path, Memory),
    timing: &mut Timing,
) -> Result<Vec<Written>> {
    timing.begin(Stage::Write, Amount { documents, bytes: 0 });
    let analyzer = Analyzer::new();
    let tools = ShardTools {
        schema: &plan.index_schema,
        codec,
        analyzer: &analyzer,
        budget: memory.writer,
        helpers: (request.threads / memory.writers).saturating_sub(1),
        progress: &*request.progress,
        cancel: &request.cancel,
    };
    let mut order: Vec<usize> = (0..buckets.len()).collect();
    let size = |bucket: &Bucket| bucket.spill.bytes() + bucket.rows.len() as u64;
    order.sort_by_key(|shard| std::cmp::Reverse(buckets.get(*shard).map(size)));
    let write = |shard: usize, bucket| shard::write(&tools, bucket, &work.join(format!("shard-{shard:04}")));
    let written = each(request, memory.writers, order, buckets, &write)?;
    timing.end(Stage::Write);
    Ok(written)
}

/// Does `one` with each item on `threads` threads, beginning in `order`; the results stand as the items did.
pub(crate) fn each<A: Send, B: Send>(
    request: &BuildRequest,
    threads: usize,
    order: Vec<usize>,
    items: Vec<A>,
    one: &(dyn Fn(usize, A) -> Result<B> + Sync),
) -> Result<Vec<B>> {
    let tasks: Vec<Mutex<(Option<A>, Option<B>)>> =
        items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    let next = AtomicUsize::new(0);
    let stop = Stop::new(&request.cancel);
    let work_through = || {
        while let Some(&number) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            stop.check()?;
            let Some(task) = tasks.get(number) else { continue };
            let Some(item) = task.lock().0.take() else { continue };
            let done = one(number, item)?;
            task.lock().1 = Some(done);
        }
        Ok(())
    };
    let panicked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| stop.run(work_through))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).any(|end| end.is_err())
    });
    if !panicked {
        stop.result()?;
    }
    let done: Option<Vec<_>> = tasks.into_iter().map(|task| task.into_inner().1).collect();
    done.filter(|_| !panicked).ok_or(Error::Panicked)
}

/// Refuses input that is not all there: one line of the rejects, but any number of documents.
fn judge_files(request: &BuildRequest, files: u64, samples: &[RejectLine]) -> Result<()> {
    if files == 0 || request.force {
        return Ok(());
    }
    let first = samples.iter().find(|line| line.field == "file" && !line.kept).map(ToString::to_string);
    Err(Error::DamagedInput { files, first: first.unwrap_or_default() })
}

/// Refuses an empty version and one far smaller than its parent.
fn judge_size(request: &BuildRequest, plan: &Plan, documents: u64, counts: &BuildCounts) -> Result<()> {
    if request.force {
        return Ok(());
    }
    if documents == 0 {
        return Err(Error::Empty { read: counts.read, rejected: counts.rejected });
    }
    match plan.parent {
        Some(parent) if documents.saturating_mul(2) < parent.documents => {
            Err(Error::Shrunken { documents, before: parent.documents, parent: parent.version })
        }
        _ => Ok(()),
    }
}

fn check_keys(plan: &Plan, shards: &[Written], work: &Path) -> Result<()> {
    let files = shards.iter().flat_map(|shard| shard.keys.iter().cloned()).collect();
    let Some(double) = keys::find_double(files, work)? else { return Ok(()) };
    let mut names = vec![];
    for (number, shard) in shards.iter().enumerate() {
        names.extend(check::key_of(&shard.directory, &plan.index_schema, double, &name(plan, number))?);
    }
    let mut names = names.into_iter();
    let mut next = || names.next().unwrap_or_else(|| format!("{double:?}"));
    Err(Error::KeyCollision { first: next(), second: next() })
}

fn merge_statistics(
    request: &BuildRequest,
    shards: &[Written],
    work: &Path,
    path: &Path,
    timing: &mut Timing,
) -> Result<StatisticsEntry> {
    timing.begin(Stage::Statistics, Amount::default());
    request.cancel.check()?;
    let documents = shards.iter().map(|shard| shard.documents).sum();
    let mut tokens = BTreeMap::from([(SEARCH_FIELD.to_owned(), 0)]);
    for (field, count) in shards.iter().flat_map(|shard| &shard.counts.tokens) {
        *tokens.entry(field.clone()).or_insert(0) += count;
    }
    let streams = |files: Vec<PathBuf>, name| -> Result<Vec<statistics::Counts>> {
        let files = terms::reduce(files, work, name)?;
        files.iter().map(|file| Ok(Box::new(Terms::open(file)?) as statistics::Counts)).collect()
    };
    let terms = streams(shards.iter().flat_map(|shard| shard.terms.iter().cloned()).collect(), "terms")?;
    let spellings = shards.iter().flat_map(|shard| shard.spellings.iter().cloned()).collect();
    let entry = statistics::write(path, documents, tokens, terms, streams(spellings, "spellings")?)?;
    timing.end(Stage::Statistics);
    Ok(entry)
}
