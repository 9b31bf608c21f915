//! The words of a corpus as documents write them (folded, not stemmed), and for each the terms that it is indexed as.
//!
//! Why: documents are indexed by stems, and nobody types stems. Held against stems, `replication*` finds nothing in a
//! corpus that is full of `replication` (`replic`). So patterns walk the spellings, and what they find are the terms.
//!
//! Layout: one finite-state map, spelling -> number of a list of rules, and the lists behind it. A rule says how a
//! spelling becomes a term: leave out so many bytes in front and at the end, put this behind. Words that are stemmed
//! alike share a list (`cut "ation"`), so a corpus of a million spellings has some thousand lists, and the map shares
//! its branches as if it held words only. Spellings belong to the corpus, not to a field: a field has the terms that
//! its frequencies say.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use fst::{Streamer, raw::Fst};

/// How a spelling becomes a term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    /// Bytes left out in front.
    skip: u8,
    /// Bytes left out at the end.
    cut: u8,
    /// What comes behind.
    add: String,
}

impl Rule {
    /// The rule that keeps most of the spelling. `None` when one of the two is longer than any term.
    fn between(spelling: &str, term: &str) -> Option<Self> {
        u8::try_from(spelling.len()).ok()?;
        u8::try_from(term.len()).ok()?;
        let common = |from: usize| {
            let pairs = spelling[from..].char_indices().zip(term.chars());
            pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last().unwrap_or(0)
        };
        let (mut skip, mut kept) = (0, common(0));
        if kept * 2 < term.len() {
            let from = spelling.char_indices().map(|(at, _)| at);
            (skip, kept) =
                from.map(|at| (at, common(at))).max_by_key(|&(at, kept)| (kept, usize::MAX - at))?;
        }
        let cut = spelling.len() - skip - kept;
        Some(Self { skip: skip as u8, cut: cut as u8, add: term[kept..].to_owned() })
    }

    fn apply(&self, spelling: &str, out: &mut String) {
        let end = spelling.len().saturating_sub(self.cut.into());
        out.clear();
        out.push_str(spelling.get(self.skip.into()..end).unwrap_or(""));
        out.push_str(&self.add);
    }
}

/// The map and its rules, opened.
pub(super) struct Spellings {
    map: fst::Map<Vec<u8>>,
    lists: Vec<Vec<Rule>>,
}

impl Spellings {
    /// From the bytes of the map and those of the lists; else why not.
    pub(super) fn open(map: Vec<u8>, lists: &[u8]) -> Result<Self, String> {
        let map = fst::Map::new(map).map_err(|error| error.to_string())?;
        let lists = read_lists(lists).ok_or("its lists of rules end too early")?;
        Ok(Self { map, lists })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// What patterns walk over.
    pub(super) fn as_fst(&self) -> &Fst<Vec<u8>> {
        self.map.as_fst()
    }

    /// Passes every spelling with each of its terms to `each`.
    pub(super) fn each<E>(&self, each: &mut dyn FnMut(&str, &str) -> Result<(), E>) -> Result<(), E> {
        let mut all = self.map.stream();
        while let Some((spelling, list)) = all.next() {
            // Words are text; others could not have been written.
            let Ok(spelling) = str::from_utf8(spelling) else { continue };
            let mut first = Ok(());
            self.terms(spelling, list, &mut |term| {
                if first.is_ok() {
                    first = each(spelling, term);
                }
            });
            first?;
        }
        Ok(())
    }

    /// Passes each term of a spelling, whose value in the map is `list`, to `each`.
    pub(super) fn terms(&self, spelling: &str, list: u64, each: &mut dyn FnMut(&str)) {
        let mut term = String::new();
        let rules = usize::try_from(list).ok().and_then(|list| self.lists.get(list));
        for rule in rules.into_iter().flatten() {
            rule.apply(spelling, &mut term);
            each(&term);
        }
    }
}

fn read_lists(mut bytes: &[u8]) -> Option<Vec<Vec<Rule>>> {
    let mut lists = Vec::new();
    while let Some((rules, mut rest)) = bytes.split_first() {
        let mut list = Vec::with_capacity((*rules).into());
        for _ in 0..*rules {
            let ([skip, cut, length], after) = rest.split_first_chunk::<3>()?;
            let (add, after) = after.split_at_checked((*length).into())?;
            list.push(Rule { skip: *skip, cut: *cut, add: str::from_utf8(add).ok()?.to_owned() });
            rest = after;
        }
        lists.push(list);
        bytes = rest;
    }
    Some(lists)
}

/// Writes the map while spellings come in byte order, then the lists.
pub(super) struct SpellingWriter<W: Write> {
    builder: fst::MapBuilder<W>,
    lists: BTreeMap<Vec<Rule>, u64>,
    /// The spelling whose terms are coming.
    open: Option<(String, Vec<Rule>)>,
    count: u64,
}

impl<W: Write> SpellingWriter<W> {
    pub(super) fn new(writer: W) -> fst::Result<Self> {
        let builder = fst::MapBuilder::new(writer)?;
        Ok(Self { builder, lists: BTreeMap::new(), open: None, count: 0 })
    }

    /// Adds a term of a spelling; those of one spelling come together.
    pub(super) fn add(&mut self, spelling: &str, term: &str) -> fst::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| open != spelling) {
            self.close()?;
            self.open = Some((spelling.to_owned(), Vec::new()));
        }
        if let (Some(rule), Some((_, rules))) = (Rule::between(spelling, term), &mut self.open)
            && rules.len() < usize::from(u8::MAX)
        {
            rules.push(rule);
        }
        Ok(())
    }

    fn close(&mut self) -> fst::Result<()> {
        let Some((spelling, rules)) = self.open.take().filter(|(_, rules)| !rules.is_empty()) else {
            return Ok(());
        };
        let next = self.lists.len() as u64;
        let list = *self.lists.entry(rules).or_insert(next);
        self.count += 1;
        self.builder.insert(spelling, list)
    }

    /// Ends the map; the writer behind it, the bytes of the lists and the number of spellings.
    pub(super) fn finish(mut self) -> fst::Result<(W, Vec<u8>, u64)> {
        self.close()?;
        let mut lists: Vec<_> = self.lists.into_iter().collect();
        lists.sort_by_key(|(_, number)| *number);
        let mut bytes = Vec::new();
        for (rules, _) in &lists {
            bytes.push(rules.len() as u8);
            for rule in rules {
                bytes.extend([rule.skip, rule.cut, rule.add.len() as u8]);
                bytes.extend(rule.add.as_bytes());
            }
        }
        Ok((self.builder.into_inner()?, bytes, self.count))
    }
}

/// Counts what goes through, to know where a part of a file begins.
pub(super) struct Counting<W> {
    pub(super) inner: W,
    pub(super) bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(pairs: &[(&str, &str)]) -> Spellings {
        let mut writer = SpellingWriter::new(Vec::new()).unwrap();
        for (spelling, term) in pairs {
            writer.add(spelling, term).unwrap();
        }
        let (map, lists, count) = writer.finish().unwrap();
        let spellings = Spellings::open(map, &lists).unwrap();
        assert_eq!(spellings.len() as u64, count);
        spellings
    }

    fn terms(spellings: &Spellings, spelling: &str) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(list) = spellings.map.get(spelling) {
            spellings.terms(spelling, list, &mut |term| found.push(term.to_owned()));
        }
        found
    }

    #[test]
    fn words_that_are_stemmed_alike_share_a_list() {
        let spellings = written(&[
            ("duplication", "duplic"),
            ("memory", "memori"),
            ("replication", "replic"),
            ("replication", "replication"),
            ("книга", "книг"),
            ("книги", "книг"),
            ("والكتاب", "كتاب"),
        ]);
        assert_eq!(terms(&spellings, "duplication"), ["duplic"]);
        assert_eq!(terms(&spellings, "replication"), ["replic", "replication"]);
        assert_eq!(terms(&spellings, "memory"), ["memori"]);
        assert_eq!(terms(&spellings, "книги"), ["книг"]);
        assert_eq!(terms(&spellings, "والكتاب"), ["كتاب"]);
        assert_eq!(terms(&spellings, "none"), [""; 0]);
        assert_eq!((spellings.len(), spellings.lists.len()), (6, 5));
        let mut all = Vec::new();
        let each = &mut |spelling: &str, term: &str| {
            all.push(format!("{spelling} {term}"));
            if all.len() == 4 { Err("enough") } else { Ok(()) }
        };
        assert_eq!(spellings.each(each), Err("enough"));
        let first = ["duplication duplic", "memory memori", "replication replic", "replication replication"];
        assert_eq!(all, first);
    }

    #[test]
    fn lists_that_end_too_early_are_refused() {
        let good = [1, 0, 5, 0, 2, 0, 1, 1, b'i', 0, 0, 0];
        assert_eq!(read_lists(&good).unwrap().len(), 2);
        for end in [2, 3, 5, 8, 11] {
            assert!(read_lists(&good[..end]).is_none(), "{end}");
        }
        assert!(read_lists(&[1, 0, 0, 1, 0xff]).is_none());
        let map = fst::MapBuilder::memory().into_inner().unwrap();
        assert!(Spellings::open(map.clone(), &[1]).is_err());
        assert!(Spellings::open(map[1..].to_vec(), &[]).is_err());
        let wrong = written(&[("a", "b")]);
        wrong.terms("a", 7, &mut |_| panic!("there is no such list"));
    }

    proptest! {
        #[test]
        fn a_rule_gives_back_its_term(spelling in "[abé日]{1,8}", term in "[abé日]{1,8}") {
            let rule = Rule::between(&spelling, &term).unwrap();
            let mut found = String::new();
            rule.apply(&spelling, &mut found);
            prop_assert_eq!(found, term);
        }
    }
}
