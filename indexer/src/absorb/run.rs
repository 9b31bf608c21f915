//! The steps of an absorb between the decision and the new version: the last version's files, the log, the shards, their
//! statistics; then the build's own checks and publishing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use canopy_format::{
    analysis::Analyzer,
    manifest::{BuildCounts, Manifest},
    statistics::Statistics,
    store::DamagedFile,
};
use tokio::runtime::Handle;

use super::{AbsorbRequest, Absorbed, base::Shard, damaged, gather, judge::Task, rebuild, shard, spellings};
use crate::{
    build::{
        self, Amount, BuildReport, BuildRequest, Stage,
        make::{self, Made},
        partition::{Bucket, Partition},
        plan::{Memory, Plan},
        row::Codec,
        shard::{SPELLINGS_SHARE, ShardTools},
        timing::Timing,
    },
    error::Result,
};

/// Makes the next version and publishes it.
pub(super) async fn publish(
    request: &AbsorbRequest,
    build: &BuildRequest,
    task: Task,
) -> Result<(BuildReport, Absorbed)> {
    // What is copied is not looked at again: damage would go on into every later version.
    let broken = request.store.verify(&task.base, &|_| {}).await?;
    if let Some(DamagedFile { file, reason }) = broken.first() {
        return Err(damaged(&file.path, format!("{reason}; build from the source")));
    }
    let (inner, settings, plan) = (request.clone(), build.clone(), task.plan.clone());
    let make = move |plan: &Plan, work: &Path| make(&inner, &settings, plan, &task, work);
    build::publish_next(build, plan, make).await
}

/// Makes shards and statistics in `work`. Blocking.
fn make(
    request: &AbsorbRequest,
    build: &BuildRequest,
    plan: &Plan,
    task: &Task,
    work: &Path,
) -> Result<(Made, Absorbed)> {
    let base = &task.base;
    let layout = base.layouts.first().ok_or_else(|| damaged("the manifest", "it has no layout"))?;
    let files = files(request, base, work)?;
    let mut timing = Timing::new(request.progress.clone());
    let memory = Memory::share(request.memory, request.threads, layout.shards);
    timing.begin(Stage::Read, Amount::default());
    let partition = Partition::new(layout.shards, memory.rows, work);
    let operations = gather::read(request, task, layout, &partition)?;
    let buckets = partition.close(memory.keep)?;
    let spilled_bytes = buckets.iter().map(|bucket| bucket.spill.bytes()).sum();
    timing.end(Stage::Read);
    let open = |entry: &canopy_format::manifest::ShardEntry| {
        let directory = files.join(Manifest::shard_dir(&entry.shard));
        Shard::open(&directory, &plan.index_schema, &entry.shard.to_string())
    };
    let shards: Vec<Shard> = base.shards.iter().map(open).collect::<Result<_>>()?;
    if shards.iter().zip(&base.shards).any(|(shard, entry)| shard.documents() != entry.documents) {
        return Err(damaged(
            "the last version",
            "its shards do not hold the documents that its manifest says",
        ));
    }
    let (mut made, mut absorbed) = if plan.layout == *layout {
        merge(build, plan, (task, &files), (&shards, buckets), (work, memory, request.words), timing)?
    } else {
        rebuild::make(build, plan, (&shards, buckets), (work, memory), timing)?
    };
    absorbed.operations = operations;
    made.spilled_bytes = spilled_bytes;
    made.counts = BuildCounts {
        read: operations,
        rejected: absorbed.refused,
        superseded: absorbed.stale,
        long_tokens: made.counts.long_tokens,
        dropped_fields: base.counts.dropped_fields,
    };
    Ok((make::finish(build, plan, work, made)?, absorbed))
}

/// Where the files of the last version lie; those of a store that is no directory are brought.
fn files(request: &AbsorbRequest, base: &Manifest, work: &Path) -> Result<PathBuf> {
    if let Some(directory) = request.store.version_dir(&request.corpus, base.version) {
        return Ok(directory);
    }
    let directory = work.join("last");
    for file in base.files() {
        request.cancel.check()?;
        let target = directory.join(&file.path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(crate::error::Error::io(parent))?;
        }
        let bring = request.store.get_file(&request.corpus, base.version, file, &target);
        Handle::current().block_on(bring)?;
    }
    Ok(directory)
}

/// Makes the shards of the same layout.
fn merge(
    build: &BuildRequest,
    plan: &Plan,
    (task, files): (&Task, &Path),
    (bases, buckets): (&[Shard], Vec<Bucket>),
    (work, memory, words): (&Path, Memory, Option<usize>),
    mut timing: Timing,
) -> Result<(Made, Absorbed)> {
    timing.begin(Stage::Write, Amount::default());
    let (analyzer, codec) = (Analyzer::new(), Codec::new(&plan.schema));
    let tools = ShardTools {
        schema: &plan.index_schema,
        codec: &codec,
        analyzer: &analyzer,
        budget: memory.writer,
        helpers: (build.threads / memory.writers).saturating_sub(1),
        progress: &*build.progress,
        cancel: &build.cancel,
    };
    let order = (0..buckets.len()).collect();
    let items: Vec<_> = bases.iter().zip(&task.base.shards).zip(buckets).collect();
    let write = |number: usize, (base, bucket)| {
        shard::write(&tools, plan.ordering, base, bucket, &work.join(format!("shard-{number:04}")))
    };
    let parts = make::each(build, memory.writers, order, items, &write)?;
    let (mut absorbed, mut languages) = (Absorbed::default(), task.base.languages.clone());
    let (mut written, mut lost, mut long) = (vec![], vec![], task.base.counts.long_tokens);
    for mut part in parts {
        absorbed.merge(&part.absorbed);
        count(&mut languages, &part.gone_languages, &std::mem::take(&mut part.written.languages));
        long = long.saturating_add(part.written.counts.long_tokens).saturating_sub(part.gone.long_tokens);
        lost.extend(part.lost);
        written.push(part.written);
    }
    if let Some(first) = written.first_mut() {
        // The manifest has them by corpus.
        first.languages = languages;
    }
    let entry = &task.base.statistics;
    let statistics = Statistics::open(&files.join(&entry.file.path), entry)?;
    let budget = words.unwrap_or(memory.writer / SPELLINGS_SHARE * 2);
    absorbed.analysed += spellings::settle(&tools, &statistics, &mut written, &lost, (work, budget))?;
    timing.end(Stage::Write);
    let mut made = Made::of(written, work, timing);
    made.counts.long_tokens = long;
    Ok((made, absorbed))
}

/// Languages of documents, less some and more others.
fn count(all: &mut BTreeMap<String, u64>, gone: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>) {
    for (language, count) in new {
        *all.entry(language.clone()).or_default() += count;
    }
    for (language, count) in gone {
        if let Some(all) = all.get_mut(language) {
            *all = all.saturating_sub(*count);
        }
    }
    all.retain(|_, count| *count > 0);
}
