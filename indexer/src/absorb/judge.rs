//! Whether the last version can be brought up to date from the log, decided before anything is claimed or written: what can't
//! is refused by name, with what to do. A wrong decision here is a version that lacks updates for good.

use std::collections::BTreeMap;

use canopy_format::{
    analysis::Analyzer,
    manifest::Manifest,
    store::{Corpus, Found},
    token::Token,
};

use super::{AbsorbRequest, Ends};
use crate::{
    build::{
        BuildRequest,
        plan::{self, Parent, Plan},
    },
    error::{Error, Result},
    index_schema::IndexSchema,
};

/// Why a version can't absorb the log. Each is cured by a build from the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Fields that are not shown are not there.
    #[error("it does not keep documents whole; build once from the source")]
    NotWhole,
    /// The corpus has another schema by now.
    #[error("it has schema {version}, the corpus {corpus}; build from the source")]
    OtherSchema {
        /// Schema id of the version.
        version: String,
        /// Of the corpus.
        corpus: String,
    },
    /// It was analysed by other rules.
    #[error("it was analysed by rules {version}, this program has {program}; build from the source")]
    OtherAnalysis {
        /// Id of the version's rules.
        version: String,
        /// Of ours.
        program: String,
    },
    /// It is not divided into shards of one group.
    #[error("it has {0} groups of shards, an absorb knows one; build from the source")]
    Groups(usize),
    /// The log is not the one of its cut.
    #[error(
        "its cut is of log {version:?}, this one is {log:?}; build from the source with a token of this log"
    )]
    OtherLog {
        /// Epoch in the version; empty: it was built without a token.
        version: String,
        /// Epoch of the log.
        log: String,
    },
    /// The log does not reach back to its cut.
    #[error(
        "the log has lost offsets {wanted} to {first} of partition {partition}; build from the source with a token \
         of this log"
    )]
    Lost {
        /// Partition.
        partition: u32,
        /// Where the version ends.
        wanted: u64,
        /// Where the log begins.
        first: u64,
    },
    /// The wanted place is beyond the log, or before the cut.
    #[error(
        "offset {wanted} of partition {partition} is not within {from} to {end}, the cut and the end of the log"
    )]
    Beyond {
        /// Partition.
        partition: u32,
        /// The wanted offset.
        wanted: u64,
        /// The cut.
        from: u64,
        /// The end.
        end: u64,
    },
}

/// What is to be done.
pub(super) struct Task {
    /// The last version.
    pub(super) base: Manifest,
    /// Where the new one ends.
    pub(super) until: Token,
    /// As of a build.
    pub(super) plan: Plan,
}

/// Reads the last version and the ends of the log. `None`: nothing is to be done.
pub(super) async fn plan(request: &AbsorbRequest, build: &BuildRequest) -> Result<Option<Task>> {
    let corpus = request.store.corpus(&request.corpus).await?;
    let Found { manifest: base, passed_over } = request.store.to_build_on(&request.corpus).await?;
    let unfit = |reason| Error::Unfit { version: base.version, reason };
    version(&base, &corpus).map_err(unfit)?;
    let ends = request.operations.ends().await?;
    let until = until(&base, &ends, request.until.as_ref()).map_err(unfit)?;
    let layout = plan::layout(build.shards, Some(&base))?;
    let news = until.offsets.iter().any(|(partition, offset)| *offset > at(&base.cut, *partition));
    if !news && base.layouts.contains(&layout) {
        return Ok(None);
    }
    let plan = Plan {
        index_schema: IndexSchema::of(&base.schema, true)?,
        schema: base.schema.clone(),
        ordering: corpus.ordering,
        layout,
        parent: Some(Parent { version: base.version, documents: base.documents() }),
        warmup: base.warmup.clone(),
        passed_over,
    };
    Ok(Some(Task { base, until, plan }))
}

/// Whether a version is one that can absorb.
fn version(base: &Manifest, corpus: &Corpus) -> std::result::Result<(), Unfit> {
    if base.analysis_id != Analyzer::id() {
        let (version, program) = (base.analysis_id.clone(), Analyzer::id().to_owned());
        return Err(Unfit::OtherAnalysis { version, program });
    }
    let schema = corpus.schema.id();
    if base.schema_id != schema {
        return Err(Unfit::OtherSchema { version: base.schema_id.clone(), corpus: schema });
    }
    if base.layouts.len() != 1 {
        return Err(Unfit::Groups(base.layouts.len()));
    }
    if base.whole { Ok(()) } else { Err(Unfit::NotWhole) }
}

fn at(cut: &BTreeMap<u32, u64>, partition: u32) -> u64 {
    cut.get(&partition).copied().unwrap_or(0)
}

/// Where the new version ends. A version that was built without a token holds nothing of any log: it fits a log whose
/// records are all still there.
fn until(base: &Manifest, ends: &Ends, wanted: Option<&Token>) -> std::result::Result<Token, Unfit> {
    let other = |version: &str| Unfit::OtherLog { version: version.to_owned(), log: ends.epoch.clone() };
    let anew = base.log.is_empty() && base.cut.values().all(|offset| *offset == 0);
    if base.log != ends.epoch && !anew {
        return Err(other(&base.log));
    }
    if let Some(wanted) = wanted.filter(|wanted| wanted.epoch != ends.epoch) {
        return Err(other(&wanted.epoch));
    }
    let mut until = Token { epoch: ends.epoch.clone(), offsets: BTreeMap::new() };
    for (&partition, range) in &ends.ranges {
        let from = at(&base.cut, partition);
        if from < range.first {
            return Err(Unfit::Lost { partition, wanted: from, first: range.first });
        }
        let wanted = wanted.map_or(range.end, |wanted| at(&wanted.offsets, partition));
        if wanted < from || wanted > range.end {
            return Err(Unfit::Beyond { partition, wanted, from, end: range.end });
        }
        until.offsets.insert(partition, wanted);
    }
    let known = |partition: &u32| ends.ranges.contains_key(partition);
    if let Some((&partition, &from)) = base.cut.iter().find(|(partition, _)| !known(partition)) {
        return Err(Unfit::Beyond { partition, wanted: from, from, end: 0 });
    }
    Ok(until)
}
