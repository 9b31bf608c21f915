//! Words as written of the next version: those of the last one, less what no document has any more, and those of new
//! documents, which are counted in already.
//!
//! The statistics say of a word only that somebody has it, not how many. The failure this prevents: a word stays for
//! ever after its last document went, and a pattern finds by it documents that do not have it (`replications*` finds
//! `replicated`), which a version built of the same documents would not. So each word of a document that went is looked for
//! in those that stay: a word whose term is in no document is gone without a look; of the others, documents that have
//! the term are analysed until one has the word. The rarest terms come first, each document is analysed at most
//! once, and most words are found in the first ones.
//!
//! When the words to look for are more than memory allows, all documents are analysed once instead.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use canopy_format::statistics::{SEPARATOR, Statistics};
use tantivy::{BitSet, DocSet, TERMINATED, Term, schema::IndexRecordOption};

use super::{
    base::{At, Shard},
    damaged,
};
use crate::{
    build::{
        shard::{STEP, ShardTools, Written},
        spellings::Spellings,
        terms::{Terms, put},
    },
    error::{Error, Result},
    index_schema::{Gathering, Place},
};

/// Memory of a word to look for, beside its bytes.
const ENTRY_BYTES: usize = 64;

/// Sets the spellings of the made shards right. `lost`: words of documents that went, in files; `budget`: memory, bytes. How
/// many documents were analysed for it.
pub(super) fn settle(
    tools: &ShardTools<'_>,
    statistics: &Statistics,
    made: &mut [Written],
    lost: &[PathBuf],
    (work, budget): (&Path, usize),
) -> Result<u64> {
    let open = |written: &Written| Shard::open(&written.directory, tools.schema, "shard");
    let shards: Vec<Shard> = made.iter().map(open).collect::<Result<_>>()?;
    let mut search = Search { tools, shards: &shards, analysed: 0 };
    let runs = if let Some(mut words) = read(lost, budget)? {
        for run in made.iter().flat_map(|written| &written.spellings) {
            for entry in Terms::open(run)? {
                words.remove(&entry?.0);
            }
        }
        let words = search.without(words)?;
        vec![write(statistics, &words, &work.join("spellings"))?]
    } else {
        for written in made.iter_mut() {
            written.spellings.clear();
        }
        search.all(work, budget)?
    };
    if let Some(first) = made.first_mut() {
        first.spellings.extend(runs);
    }
    Ok(search.analysed)
}

/// The words of files; `None`: they are too many.
fn read(files: &[PathBuf], budget: usize) -> Result<Option<BTreeSet<Vec<u8>>>> {
    let (mut words, mut bytes) = (BTreeSet::new(), 0);
    for file in files {
        for entry in Terms::open(file)? {
            let word = entry?.0;
            let more = word.len() + ENTRY_BYTES;
            bytes += if words.insert(word) { more } else { 0 };
            if bytes > budget {
                return Ok(None);
            }
        }
    }
    Ok(Some(words))
}

/// The last version's words but those of `without`, in a file.
fn write(statistics: &Statistics, without: &BTreeSet<Vec<u8>>, path: &Path) -> Result<PathBuf> {
    let mut out = BufWriter::new(File::create(path).map_err(Error::io(path))?);
    let mut key = vec![];
    let known = statistics.each_spelling(&mut |spelling, term| {
        key.clear();
        key.extend_from_slice(spelling.as_bytes());
        key.push(SEPARATOR);
        key.extend_from_slice(term.as_bytes());
        if without.contains(&key) { Ok(()) } else { put(&mut out, &key, 1).map_err(Error::io(path)) }
    })?;
    if !known {
        return Err(damaged("the statistics", "they have no spellings"));
    }
    out.flush().map_err(Error::io(path))?;
    Ok(path.to_owned())
}

/// Looks for words in the documents of the made shards.
struct Search<'a> {
    tools: &'a ShardTools<'a>,
    shards: &'a [Shard],
    analysed: u64,
}

impl Search<'_> {
    /// Those of the words that no document has.
    fn without(&mut self, words: BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>> {
        let mut order = vec![];
        for word in &words {
            let frequency = self.frequency(term(word)?)?;
            // No document, no look.
            if frequency > 0 {
                order.push((frequency, word.clone()));
            }
        }
        order.sort_unstable();
        let mut left = words;
        let sets = |shard: &Shard| -> Vec<BitSet> {
            shard.segments.iter().map(|segment| BitSet::with_max_value(segment.documents())).collect()
        };
        let mut seen: Vec<Vec<BitSet>> = self.shards.iter().map(sets).collect();
        for (_, word) in order {
            if left.contains(&word) {
                self.look(&word, &mut left, &mut seen)?;
            }
        }
        Ok(left)
    }

    fn frequency(&self, term: &str) -> Result<u64> {
        let mut frequency = 0;
        for shard in self.shards {
            for (segment, field) in shard.text() {
                let index = segment.reader.inverted_index(field).map_err(Error::engine("read terms"))?;
                let found = index.doc_freq(&Term::from_field_text(field, term));
                frequency += u64::from(found.map_err(Error::io("read terms"))?);
            }
        }
        Ok(frequency)
    }

    /// Analyses documents with the term of a word until one has the word; what else they have is found too.
    fn look(&mut self, word: &[u8], left: &mut BTreeSet<Vec<u8>>, seen: &mut [Vec<BitSet>]) -> Result<()> {
        let term = term(word)?;
        for (shard, seen) in self.shards.iter().zip(seen) {
            for (number, (segment, seen)) in shard.segments.iter().zip(seen).enumerate() {
                for field in self.tools.schema.text_fields().into_values() {
                    let index = segment.reader.inverted_index(field).map_err(Error::engine("read terms"))?;
                    let term = Term::from_field_text(field, term);
                    let found = index.read_postings(&term, IndexRecordOption::Basic);
                    let Some(mut found) = found.map_err(Error::io("read postings"))? else { continue };
                    while found.doc() != TERMINATED {
                        let document = found.doc();
                        found.advance();
                        if seen.contains(document) {
                            continue;
                        }
                        seen.insert(document);
                        for found in self.analyse(shard, (number, document), Gathering::begin())? {
                            left.remove(&found);
                        }
                        if !left.contains(word) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The words of all documents, in files.
    fn all(&mut self, work: &Path, budget: usize) -> Result<Vec<PathBuf>> {
        let directory = work.join("all-spellings");
        std::fs::create_dir(&directory).map_err(Error::io(&directory))?;
        let mut spellings = Spellings::new(&directory, budget);
        let gathering = Gathering::begin();
        for shard in self.shards {
            for (number, segment) in shard.segments.iter().enumerate() {
                for document in 0..segment.documents() {
                    spellings.add(self.analyse(shard, (number, document), gathering)?)?;
                }
            }
        }
        spellings.finish()
    }

    fn analyse(&mut self, shard: &Shard, at: At, gathering: Gathering) -> Result<Vec<Vec<u8>>> {
        self.analysed += 1;
        if self.analysed.is_multiple_of(STEP) {
            self.tools.cancel.check()?;
        }
        let (document, written) = shard.whole(at)?;
        let write = (document.key_hash(), Place::default(), &written.writes);
        let indexed = self.tools.schema.document_of_build(&document, write, self.tools.analyzer, gathering);
        Ok(indexed.spellings)
    }
}

/// The term of a word, behind its separator.
fn term(word: &[u8]) -> Result<&str> {
    let at = word.iter().position(|byte| *byte == SEPARATOR);
    let term = at.and_then(|at| word.get(at + 1..)).and_then(|term| std::str::from_utf8(term).ok());
    term.ok_or_else(|| damaged("a file of spellings", "an entry is not spelling, 0x1F, term"))
}
