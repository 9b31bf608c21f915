//! A part of an overlay: a small immutable segment in memory, and which of its documents are no more.
//!
//! Rule: nothing in a part changes but the set of hidden documents, which a view shares until it changes, so that a view
//! that is published does. What is hidden is found by key, never carried over by position ([`super::merge`]).

use std::{path::PathBuf, sync::Arc};

use canopy_common::ids::ShardId;
use canopy_indexer::index_schema::IndexSchema;
use roaring::RoaringBitmap;
use tantivy::{Directory, Index, SegmentReader, directory::RamDirectory};
use tokio::time::Instant;

use crate::{
    error::{Error, Result},
    view::{self, Segment},
};

/// A part.
pub struct Part {
    /// Its number, never used again in this overlay.
    pub number: u32,
    /// The engine's index; merging needs it.
    pub index: Index,
    /// Its files.
    pub files: RamDirectory,
    /// Opened.
    pub segment: Arc<Segment>,
    /// Documents that are no more.
    pub hidden: Arc<RoaringBitmap>,
    /// Since when some of them are deleted, so that their text should go.
    pub deleted: Option<Instant>,
    /// Memory of its files.
    pub bytes: u64,
}

impl Part {
    /// Opens the one segment of an index; `None`: it has no documents.
    pub fn open(
        number: u32,
        index: Index,
        files: RamDirectory,
        shard: &ShardId,
        schema: &IndexSchema,
    ) -> Result<Option<Self>> {
        let segments = index.searchable_segments().map_err(Error::engine("open overlay"))?;
        let [segment] = segments.as_slice() else { return Ok(None) };
        let reader = SegmentReader::open(segment).map_err(Error::engine("open overlay"))?;
        if reader.max_doc() == 0 {
            return Ok(None);
        }
        let segment = Arc::new(Segment::open(shard, reader, schema, 0)?);
        let bytes = files.total_mem_usage() as u64;
        Ok(Some(Self { number, index, files, segment, hidden: Arc::default(), deleted: None, bytes }))
    }

    /// Documents, hidden ones too.
    pub fn documents(&self) -> u32 {
        self.segment.documents()
    }

    /// Documents that are.
    pub fn live(&self) -> u32 {
        self.documents() - self.hidden.len() as u32
    }

    /// A document is no more; `deleted`: when nothing took its place.
    pub fn hide(&mut self, doc: u32, deleted: Option<Instant>) {
        Arc::make_mut(&mut self.hidden).insert(doc);
        self.deleted = self.deleted.or(deleted);
    }

    /// As queries see it.
    pub fn view(&self, optimised: bool) -> view::Part {
        view::Part { segment: self.segment.clone(), hidden: self.hidden.clone(), optimised }
    }

    /// Its files by name, for a checkpoint.
    pub fn to_files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut names = self.index.directory().list_managed_files();
        names.extend(["meta.json", ".managed.json"].map(PathBuf::from));
        let mut files = Vec::with_capacity(names.len());
        // The engine names files that it may come to have.
        for name in names.into_iter().filter(|name| self.files.exists(name).unwrap_or(false)) {
            let bytes = self.files.atomic_read(&name).map_err(|error| failed(&name, error))?;
            files.push((name.to_string_lossy().into_owned(), bytes));
        }
        files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(files)
    }

    /// From the files of a checkpoint.
    pub fn from_files(
        number: u32,
        files: Vec<(String, Vec<u8>)>,
        shard: &ShardId,
        schema: &IndexSchema,
    ) -> Result<Option<Self>> {
        let ram = RamDirectory::create();
        for (name, bytes) in files {
            let path = PathBuf::from(&name);
            ram.atomic_write(&path, &bytes).map_err(|error| failed(&path, error))?;
        }
        let index = Index::open(ram.clone()).map_err(Error::engine("open overlay"))?;
        if index.schema() != schema.engine {
            let reason = "a part of the checkpoint has another engine schema".to_owned();
            return Err(Error::Damaged { shard: shard.clone(), reason });
        }
        Self::open(number, index, ram, shard, schema)
    }
}

fn failed(path: &std::path::Path, error: impl std::fmt::Display) -> Error {
    Error::Io { path: path.display().to_string(), source: std::io::Error::other(error.to_string()) }
}
