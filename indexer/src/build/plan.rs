//! What a build needs to know before it reads: schema, layout and parent; and how it shares its memory.

use canopy_common::ids::Version;
use canopy_format::{
    error::Error as FormatError,
    layout::Layout,
    manifest::Manifest,
    schema::Schema,
    store::{Ordering, PassedOver},
};

use super::{
    request::{BuildRequest, DEFAULT_SHARDS},
    shard::SPELLINGS_SHARE,
};
use crate::{error::Result, index_schema::IndexSchema};

/// Group of a corpus that is not divided into tiers or topics.
pub(crate) const GROUP: &str = "main";

/// The plan.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) schema: Schema,
    pub(crate) index_schema: IndexSchema,
    pub(crate) ordering: Ordering,
    pub(crate) layout: Layout,
    pub(crate) parent: Option<Parent>,
    pub(crate) warmup: Vec<String>,
    /// Newer versions whose manifest can't be read.
    pub(crate) passed_over: Vec<PassedOver>,
}

/// The version before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent {
    pub(crate) version: Version,
    pub(crate) documents: u64,
}

/// Shares of `--memory`, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Rows held while reading.
    pub(crate) rows: u64,
    /// Rows that may stay in memory while shards are written.
    pub(crate) keep: u64,
    /// One engine writer, by its own account.
    pub(crate) writer: usize,
    /// Writers at a time.
    pub(crate) writers: usize,
}

impl Memory {
    /// A writer's segment takes about half as much again while it is put on disk, its spellings some more. Its budget does not
    /// depend on threads, so that the segments do not either.
    pub(crate) fn share(memory: u64, threads: usize, shards: u32) -> Self {
        let keep = memory / 8;
        let writer = (memory / 4).clamp(16 << 20, 512 << 20);
        let fit = (memory - keep) / (writer + writer / 2 + writer / SPELLINGS_SHARE as u64);
        let writers = fit.clamp(1, threads.min(shards as usize) as u64);
        Self { rows: memory / 2, keep, writer: writer as usize, writers: writers as usize }
    }
}

/// Reads the corpus and its newest version that can be read.
pub(crate) async fn plan(request: &BuildRequest) -> Result<Plan> {
    let corpus = request.store.corpus(&request.corpus).await?;
    let schema = request.schema.clone().unwrap_or(corpus.schema);
    schema.check()?;
    let index_schema = IndexSchema::of(&schema, true)?;
    let (parent, passed_over) = match request.store.to_build_on(&request.corpus).await {
        Ok(found) => (Some(found.manifest), found.passed_over),
        Err(FormatError::NoVersionYet(_)) => (None, Vec::new()),
        // None can be read: the first version once more, with the shards that are asked for.
        Err(error) if error.of_the_version() => {
            let newest = request.store.versions(&request.corpus).await?.pop().unwrap_or(Version(0));
            (None, vec![PassedOver { version: newest, reason: error.to_string() }])
        }
        Err(error) => return Err(error.into()),
    };
    let layout = layout(request.shards, parent.as_ref())?;
    let inherited = || parent.as_ref().map(|parent| parent.warmup.clone()).unwrap_or_default();
    let warmup = request.warmup.clone().unwrap_or_else(inherited);
    let parent = parent.map(|parent| Parent { version: parent.version, documents: parent.documents() });
    Ok(Plan { schema, index_schema, ordering: corpus.ordering, layout, parent, warmup, passed_over })
}

/// The layout of the next version.
pub(crate) fn layout(shards: Option<u32>, parent: Option<&Manifest>) -> Result<Layout> {
    let last = parent.and_then(|parent| parent.layouts.iter().find(|layout| layout.group == GROUP));
    Ok(match (last, shards) {
        (Some(last), Some(shards)) if shards != last.shards => last.resize(shards)?,
        (Some(last), _) => last.clone(),
        (None, shards) => Layout::first(GROUP, shards.unwrap_or(DEFAULT_SHARDS))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_fit_into_memory_and_their_budget_does_not_depend_on_threads() {
        for (memory, threads, shards) in
            [(64 << 20, 8, 64), (1 << 30, 2, 4), (1 << 30, 64, 64), (1 << 40, 64, 1024)]
        {
            let share = Memory::share(memory, threads, shards);
            let used = share.keep + share.writers as u64 * share.writer as u64 * 13 / 8;
            assert!(used <= memory, "{share:?}");
            assert!(share.writers <= threads && share.writers >= 1);
            assert_eq!(share.writer, Memory::share(memory, 1, 1).writer);
        }
        assert_eq!(Memory::share(1 << 30, 2, 4).writers, 2);
    }
}
