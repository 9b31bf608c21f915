//! One shard of the next version: the last version's segments without what was replaced or deleted, and a segment of what
//! is new. Postings of documents that stay are copied by the engine's merge, which counts the frequencies of what it
//! copies; only new documents are analysed, and those that go, to know their tokens and words.
//!
//! New documents are merged into the smallest segment that has room, so that segments stay few; a segment that loses
//! nothing and gains nothing is taken over file by file. Documents of a merged segment are not in the order of their keys.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use canopy_common::ids::KeyHash;
use canopy_format::{
    document::Document,
    graves::{self, Graves},
    manifest::ShardEntry,
    store::Ordering,
};
use tantivy::{
    BitSet, Segment,
    directory::OwnedBytes,
    fastfield::{AliveBitSet, write_alive_bitset},
    indexer::merge_filtered_segments,
};

use super::{
    Absorbed,
    base::{At, OneSegment, Shard},
    damaged,
    replay::Replay,
};
use crate::{
    build::{
        Amount, Stage, ahead,
        keys::KeyWriter,
        partition::Bucket,
        row::Written as Write,
        seal::{Sealed, Segmented, seal},
        shard::{MAX_SEGMENT_DOCUMENTS, SPELLINGS_SHARE, STEP, Segments, ShardTools, Written},
        sort::SortCounts,
        spellings::Spellings,
        terms,
    },
    error::{Error, Result},
    index_schema::{Gathering, IndexDocument, IndexSchema, Place, TokenCounts},
};

/// A shard that was made.
pub(super) struct Made {
    /// As a build writes one; `counts.long_tokens` and `languages` are those of new documents only.
    pub(super) written: Written,
    /// Words as written of documents that are no more, sorted runs.
    pub(super) lost: Vec<PathBuf>,
    /// Tokens of documents that are no more.
    pub(super) gone: TokenCounts,
    /// Their languages.
    pub(super) gone_languages: BTreeMap<String, u64>,
    pub(super) absorbed: Absorbed,
}

/// What is analysed of a change.
struct Analysed {
    key: KeyHash,
    old: Option<(At, String, IndexDocument)>,
    new: Option<(String, IndexDocument)>,
    grave: Option<graves::Grave>,
}

/// Makes a shard below `directory`, which does not exist yet, of its last one and the operations of `bucket`.
pub(super) fn write(
    tools: &ShardTools<'_>,
    ordering: Ordering,
    (base, entry): (&Shard, &ShardEntry),
    bucket: Bucket,
    directory: &Path,
) -> Result<Made> {
    fs::create_dir_all(directory).map_err(Error::io(directory))?;
    let lost_directory = directory.join("lost");
    fs::create_dir(&lost_directory).map_err(Error::io(&lost_directory))?;
    let mut replay = Replay::new(bucket, base, ordering)?;
    let mut making = Making {
        tools,
        segments: Segments::new(tools, directory),
        fresh: Spellings::new(directory, tools.budget / SPELLINGS_SHARE),
        lost: Spellings::new(&lost_directory, tools.budget / SPELLINGS_SHARE),
        dead: base.segments.iter().map(|_| vec![]).collect(),
        graves: base.graves.iter().map(|grave| (grave.key, grave)).collect(),
        added: TokenCounts::default(),
        gone: TokenCounts::default(),
        languages: BTreeMap::new(),
        gone_languages: BTreeMap::new(),
        absorbed: Absorbed::default(),
        changes: 0,
    };
    let (fresh, lost) = (Gathering::begin(), Gathering::begin());
    let analyse = |document: &Document, key, write: &Write, gathering| {
        let place = Place { order: write.order, offset: 0 };
        tools.schema.document_of_build(document, (key, place, &write.writes), tools.analyzer, gathering)
    };
    let mut next = || Ok(replay.next()?.map(|change| (change, 1 << 12)));
    let analysed = |change: super::replay::Change| Analysed {
        key: change.key,
        old: change.old.map(|(at, document)| {
            let indexed = analyse(&document, change.key, &Write::default(), lost);
            (at, document.language, indexed)
        }),
        new: change.new.map(|(document, write)| {
            let indexed = analyse(&document, change.key, &write, fresh);
            (document.language, indexed)
        }),
        grave: change.grave,
    };
    ahead::in_order(tools.helpers, &mut next, &analysed, &mut |analysed| making.take(analysed))?;
    making.absorbed.merge(&replay.finish()?);
    making.finish((base, entry), directory)
}

/// A shard in the making.
struct Making<'a> {
    tools: &'a ShardTools<'a>,
    segments: Segments<'a>,
    fresh: Spellings<'a>,
    lost: Spellings<'a>,
    /// Documents of each segment that are no more.
    dead: Vec<Vec<u32>>,
    graves: BTreeMap<KeyHash, graves::Grave>,
    added: TokenCounts,
    gone: TokenCounts,
    languages: BTreeMap<String, u64>,
    gone_languages: BTreeMap<String, u64>,
    absorbed: Absorbed,
    /// Keys so far.
    changes: u64,
}

impl Making<'_> {
    fn take(&mut self, analysed: Analysed) -> Result<()> {
        let Analysed { key, old, new, grave } = analysed;
        self.graves.remove(&key);
        self.graves.extend(grave.map(|grave| (key, grave)));
        if let Some(((segment, document), language, mut indexed)) = old {
            if let Some(dead) = self.dead.get_mut(segment) {
                dead.push(document);
            }
            self.gone.merge(&indexed.counts);
            self.lost.add(std::mem::take(&mut indexed.spellings))?;
            *self.gone_languages.entry(language).or_default() += 1;
            self.absorbed.removed += 1;
        }
        if let Some((language, mut indexed)) = new {
            self.added.merge(&indexed.counts);
            self.fresh.add(std::mem::take(&mut indexed.spellings))?;
            *self.languages.entry(language).or_default() += 1;
            self.segments.add(indexed)?;
            self.absorbed.documents += 1;
        }
        self.changes += 1;
        if self.changes.is_multiple_of(STEP) {
            self.tools.cancel.check()?;
            self.segments.look()?;
            self.tools.progress.advance(Stage::Write, Amount { documents: STEP, bytes: 0 });
        }
        Ok(())
    }

    fn finish(mut self, (base, entry): (&Shard, &ShardEntry), directory: &Path) -> Result<Made> {
        let new = self.segments.close()?;
        let segments = new.len();
        let mut sealed = self.merge(base, new, directory)?;
        if !self.graves.is_empty() {
            let graves: Graves = std::mem::take(&mut self.graves).into_values().collect();
            add_graves(&mut sealed, &graves)?;
        }
        let mut counts = TokenCounts { tokens: entry.tokens.clone(), long_tokens: self.gone.long_tokens };
        counts.subtract(&self.gone);
        counts.merge(&self.added);
        let schema = self.tools.schema;
        self.absorbed.analysed = self.absorbed.documents + self.absorbed.removed;
        let written = Written {
            documents: entry.documents + self.absorbed.documents - self.absorbed.removed,
            counts,
            sort: SortCounts::default(),
            languages: self.languages,
            terms: terms::write_all(&sealed.directory, schema, directory)?,
            spellings: self.fresh.finish()?,
            segments,
            keys: keys(&sealed.directory, schema, directory)?,
            directory: sealed.directory,
            files: sealed.files,
        };
        let (lost, gone, gone_languages) = (self.lost.finish()?, self.gone, self.gone_languages);
        Ok(Made { written, lost, gone, gone_languages, absorbed: self.absorbed })
    }

    /// The segments of the shard.
    fn merge(&mut self, base: &Shard, new: Vec<Segmented>, directory: &Path) -> Result<Sealed> {
        let fresh = self.absorbed.documents;
        let all_dead = std::mem::take(&mut self.dead);
        let live =
            |(segment, dead): (&OneSegment, &Vec<u32>)| u64::from(segment.documents()) - dead.len() as u64;
        let lives: Vec<u64> = base.segments.iter().zip(&all_dead).map(live).collect();
        let room = |live: u64| live > 0 && live + fresh <= u64::from(MAX_SEGMENT_DOCUMENTS);
        let host = lives.iter().enumerate().filter(|(_, live)| room(**live)).min_by_key(|(_, live)| **live);
        let host = host.map(|(number, _)| number).filter(|_| !new.is_empty());
        let (mut indexes, mut kept) = (vec![], vec![]);
        for (number, ((segment, dead), live)) in base.segments.iter().zip(&all_dead).zip(&lives).enumerate() {
            if *live == 0 {
                continue;
            }
            if dead.is_empty() && host != Some(number) {
                let path = directory.join(format!("kept-{number:04}"));
                copy(base, segment, &path)?;
                kept.push((path, segment.meta.clone()));
                continue;
            }
            let mut group = vec![(segment.segment.clone(), alive(segment, dead)?)];
            if host == Some(number) {
                for index in &new {
                    let segments =
                        index.index.searchable_segments().map_err(Error::engine("open segments"))?;
                    group.extend(segments.into_iter().map(|segment| (segment, None)));
                }
            }
            indexes.push(self.merged(group)?);
        }
        if host.is_none() {
            indexes.extend(new);
        }
        let template = self.tools.schema.builder().create_in_ram().map_err(Error::engine("lay out index"))?;
        seal(&template, &indexes, &kept, &directory.join("index"))
    }

    fn merged(&mut self, group: Vec<(Segment, Option<AliveBitSet>)>) -> Result<Segmented> {
        self.tools.cancel.check()?;
        let (segments, alive): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let (path, directory) = self.segments.next_directory()?;
        let index = merge_filtered_segments(&segments, IndexSchema::settings(), alive, directory);
        Ok(Segmented { path, index: index.map_err(Error::engine("merge segments"))? })
    }
}

fn alive(segment: &OneSegment, dead: &[u32]) -> Result<Option<AliveBitSet>> {
    if dead.is_empty() {
        return Ok(None);
    }
    let mut alive = BitSet::with_max_value_and_full(segment.documents());
    for document in dead {
        alive.remove(*document);
    }
    let mut bytes = vec![];
    write_alive_bitset(&alive, &mut bytes).map_err(Error::io("documents that stay"))?;
    Ok(Some(AliveBitSet::open(OwnedBytes::new(bytes))))
}

/// Copies the files of a segment into a directory of their own: they are moved from there into the version.
fn copy(base: &Shard, segment: &OneSegment, to: &Path) -> Result<()> {
    fs::create_dir(to).map_err(Error::io(to))?;
    let prefix = format!("{}.", segment.meta.id().uuid_string());
    for entry in fs::read_dir(&base.directory).map_err(Error::io(&base.directory))? {
        let path = entry.map_err(Error::io(&base.directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&prefix) {
            fs::copy(&path, to.join(name)).map_err(Error::io(&path))?;
        }
    }
    Ok(())
}

/// Puts the deletes that a shard remembers beside its other files.
pub(super) fn add_graves(sealed: &mut Sealed, graves: &Graves) -> Result<()> {
    let path = sealed.directory.join(graves::FILE);
    fs::write(&path, graves.to_bytes()).map_err(Error::io(&path))?;
    sealed.files.push(graves::FILE.to_owned());
    sealed.files.sort_unstable();
    Ok(())
}

/// The key hashes of each segment, sorted, as its dictionary has them.
fn keys(index: &Path, schema: &IndexSchema, directory: &Path) -> Result<Vec<PathBuf>> {
    let shard = Shard::open(index, schema, "shard")?;
    let mut files = vec![];
    for (number, segment) in shard.segments.iter().enumerate() {
        let mut keys = KeyWriter::create(directory.join(format!("keys-{number:04}")))?;
        let terms = segment.reader.inverted_index(schema.key).map_err(Error::engine("read keys"))?;
        let mut terms = terms.terms().stream().map_err(Error::io("keys"))?;
        while let Some((key, info)) = terms.next() {
            let key = key.try_into().ok().filter(|_| info.doc_freq == 1).map(u128::from_be_bytes);
            keys.add(KeyHash(key.ok_or_else(|| damaged("shard", "a key is no hash of one document"))?))?;
        }
        files.push(keys.finish()?);
    }
    Ok(files)
}
