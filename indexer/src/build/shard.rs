//! Writes one shard: sorted documents in, engine files out. Analysis happens here, on the shard's own thread and its
//! helpers.
//!
//! The engine's writer keeps a segment in memory until it is finished; at the budget the segment is put on disk and
//! the next begins, and at the end the segments of up to [`MAX_SEGMENT_DOCUMENTS`] documents become one. What decides
//! is the writer's own account of its memory, which depends on the documents only: the same input and `--memory` give
//! the same segments, whatever the threads.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use canopy_common::ids::KeyHash;
use canopy_format::{analysis::Analyzer, document::Document};
use tantivy::{
    Segment,
    directory::MmapDirectory,
    indexer::{SingleSegmentIndexWriter, merge_filtered_segments},
};

use super::{
    ahead,
    keys::KeyWriter,
    partition::Bucket,
    progress::{Amount, Progress, Stage},
    request::Cancel,
    row::{Codec, Written as Write},
    seal::{Sealed, Segmented, seal},
    sort::{SortCounts, Sorted},
    spellings::Spellings,
    terms,
};
use crate::{
    error::{Error, Result},
    index_schema::{Gathering, IndexDocument, IndexSchema, Place, TokenCounts},
};

/// Most documents of one segment.
pub(crate) const MAX_SEGMENT_DOCUMENTS: u32 = 2_000_000;
/// Part of a writer's memory that spellings may take beside it.
pub(crate) const SPELLINGS_SHARE: usize = 8;
/// Documents between two looks at memory, cancellation and progress.
pub(crate) const STEP: u64 = 64;

/// What all shard writers share.
pub(crate) struct ShardTools<'a> {
    pub(crate) schema: &'a IndexSchema,
    pub(crate) codec: &'a Codec,
    pub(crate) analyzer: &'a Analyzer,
    /// Memory of one engine writer, bytes.
    pub(crate) budget: usize,
    /// Threads that analyse for each writer, beside its own.
    pub(crate) helpers: usize,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) cancel: &'a Cancel,
}

/// A written shard.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Directory of the engine files.
    pub(crate) directory: PathBuf,
    /// Their names, sorted.
    pub(crate) files: Vec<String>,
    pub(crate) documents: u64,
    pub(crate) counts: TokenCounts,
    pub(crate) sort: SortCounts,
    /// Documents by language.
    pub(crate) languages: BTreeMap<String, u64>,
    /// Sorted terms with their document frequency, one file per segment.
    pub(crate) terms: Vec<PathBuf>,
    /// Words as written with their terms, sorted runs.
    pub(crate) spellings: Vec<PathBuf>,
    /// Segments written before merging.
    pub(crate) segments: usize,
    /// Sorted key hashes, of one or several segments.
    pub(crate) keys: Vec<PathBuf>,
}

/// Writes the shard of `bucket` below `directory`, which does not exist yet.
pub(crate) fn write(tools: &ShardTools<'_>, bucket: Bucket, directory: &Path) -> Result<Written> {
    std::fs::create_dir_all(directory).map_err(Error::io(directory))?;
    let mut sorted = Sorted::new(bucket, tools.codec)?;
    let mut keys = KeyWriter::create(directory.join("keys"))?;
    let mut segments = Segments::new(tools, directory);
    let mut spellings = Spellings::new(directory, tools.budget / SPELLINGS_SHARE);
    let gathering = Gathering::begin();
    let mut counts = TokenCounts::default();
    let mut languages: BTreeMap<String, u64> = BTreeMap::new();
    let mut documents = 0;
    let mut next = || -> Result<_> {
        let Some((hash, (document, written), bytes)) = sorted.next()? else { return Ok(None) };
        keys.add(hash)?;
        Ok(Some(((hash, document, written), bytes)))
    };
    let analyse = |(hash, document, written): (KeyHash, Document, Write)| {
        let write = (hash, Place { order: written.order, offset: 0 }, &written.writes);
        let indexed = tools.schema.document_of_build(&document, write, tools.analyzer, gathering);
        (document.language, indexed)
    };
    let mut take = |(language, mut indexed): (String, IndexDocument)| {
        counts.merge(&indexed.counts);
        spellings.add(std::mem::take(&mut indexed.spellings))?;
        *languages.entry(language).or_default() += 1;
        segments.add(indexed)?;
        documents += 1;
        if documents % STEP == 0 {
            tools.cancel.check()?;
            segments.look()?;
            tools.progress.advance(Stage::Write, Amount { documents: STEP, bytes: 0 });
        }
        Ok(())
    };
    ahead::in_order(tools.helpers, &mut next, &analyse, &mut take)?;
    tools.progress.advance(Stage::Write, Amount { documents: documents % STEP, bytes: 0 });
    let (sealed, segments) = segments.finish()?;
    let terms = terms::write_all(&sealed.directory, tools.schema, directory)?;
    let spellings = spellings.finish()?;
    let (sort, keys) = (sorted.finish()?, vec![keys.finish()?]);
    let Sealed { directory, files } = sealed;
    Ok(Written { directory, files, documents, counts, sort, languages, terms, spellings, segments, keys })
}

/// The segments of one shard.
pub(crate) struct Segments<'a> {
    tools: &'a ShardTools<'a>,
    directory: &'a Path,
    writer: Option<(PathBuf, SingleSegmentIndexWriter<IndexDocument>)>,
    /// Documents in `writer`.
    inside: u32,
    /// Segments on disk that will be one.
    flushed: Vec<Segmented>,
    /// Documents in `flushed`.
    outside: u32,
    finished: Vec<Segmented>,
    /// Directories made so far.
    made: usize,
    /// Segments written so far, merged ones not counted.
    written: usize,
}

impl<'a> Segments<'a> {
    pub(crate) fn new(tools: &'a ShardTools<'a>, directory: &'a Path) -> Self {
        let (flushed, finished) = (vec![], vec![]);
        Self { tools, directory, writer: None, inside: 0, flushed, outside: 0, finished, made: 0, written: 0 }
    }

    /// An empty engine directory.
    pub(crate) fn next_directory(&mut self) -> Result<(PathBuf, MmapDirectory)> {
        let path = self.directory.join(format!("segment-{:04}", self.made));
        self.made += 1;
        std::fs::create_dir(&path).map_err(Error::io(&path))?;
        let directory = MmapDirectory::open(&path);
        let directory = directory.map_err(|error| Error::engine("open segment directory")(error.into()))?;
        Ok((path, directory))
    }

    /// Adds a document.
    pub(crate) fn add(&mut self, document: IndexDocument) -> Result<()> {
        if self.writer.is_none() {
            let (path, directory) = self.next_directory()?;
            let builder = self.tools.schema.builder();
            let writer = builder.single_segment_index_writer(directory, self.tools.budget);
            self.writer = Some((path, writer.map_err(Error::engine("create segment"))?));
        }
        let Some((_, writer)) = &mut self.writer else { return Ok(()) };
        writer.add_document(document).map_err(Error::engine("add document"))?;
        self.inside += 1;
        if self.outside + self.inside >= MAX_SEGMENT_DOCUMENTS {
            self.flush()?;
            self.merge()?;
        }
        Ok(())
    }

    /// Puts the segment on disk when it is at its budget.
    pub(crate) fn look(&mut self) -> Result<()> {
        if self.writer.as_ref().is_some_and(|(_, writer)| writer.mem_usage() >= self.tools.budget) {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Some((path, writer)) = self.writer.take() {
            let index = writer.finalize().map_err(Error::engine("write segment"))?;
            self.flushed.push(Segmented { path, index });
            self.written += 1;
            self.outside += std::mem::take(&mut self.inside);
        }
        Ok(())
    }

    /// Makes the segments on disk one.
    fn merge(&mut self) -> Result<()> {
        self.outside = 0;
        let mut flushed = std::mem::take(&mut self.flushed);
        if flushed.len() < 2 {
            self.finished.append(&mut flushed);
            return Ok(());
        }
        let segments: tantivy::Result<Vec<Vec<Segment>>> =
            flushed.iter().map(|flushed| flushed.index.searchable_segments()).collect();
        let segments = segments.map_err(Error::engine("open segments"))?.concat();
        let none = segments.iter().map(|_| None).collect();
        let (path, directory) = self.next_directory()?;
        let merged = merge_filtered_segments(&segments, IndexSchema::settings(), none, directory);
        let index = merged.map_err(Error::engine("merge segments"))?;
        self.finished.push(Segmented { path, index });
        for Segmented { path, .. } in flushed {
            std::fs::remove_dir_all(&path).map_err(Error::io(&path))?;
        }
        Ok(())
    }

    /// What was written, each segment as it is.
    pub(crate) fn close(&mut self) -> Result<Vec<Segmented>> {
        self.flush()?;
        let mut all = std::mem::take(&mut self.finished);
        all.append(&mut self.flushed);
        Ok(all)
    }

    /// The shard's engine files in a directory of their own.
    fn finish(mut self) -> Result<(Sealed, usize)> {
        self.flush()?;
        self.merge()?;
        let template = self.tools.schema.builder().create_in_ram().map_err(Error::engine("lay out index"))?;
        Ok((seal(&template, &self.finished, &[], &self.directory.join("index"))?, self.written))
    }
}
