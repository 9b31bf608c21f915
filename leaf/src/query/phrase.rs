//! Documents with a phrase, under any of its forms.

use serde_json::json;
use tantivy::{
    DocId, DocSet, TERMINATED,
    fieldnorm::FieldNormReader,
    postings::{Postings, SegmentPostings},
    schema::IndexRecordOption,
};

use super::{
    matcher::{Context, Matcher, Part, Walk},
    numbers::TextNumbers,
    plan::Phrase,
    sets::Union,
    slop::{self, Place},
    term::saturate,
};
use crate::{
    error::{Error, Result},
    stop::Ticker,
};

struct PhraseWalk<'a> {
    /// In the order of the phrase.
    words: Vec<Word>,
    /// Indexes of the words, rarest first.
    by_cost: Vec<usize>,
    /// Indexes of the words by (same word, relative position).
    by_word: Vec<usize>,
    phrase: &'a Phrase,
    lengths: FieldNormReader,
    numbers: &'a TextNumbers,
    ticker: &'a Ticker<'a>,
    doc: DocId,
    count: u32,
}

struct Word {
    postings: SegmentPostings,
    relative: u32,
    same: usize,
    positions: Vec<u32>,
}

impl Word {
    fn place(&self) -> Place<'_> {
        Place { positions: &self.positions, relative: self.relative, word: self.same }
    }
}

/// Opens the walk of a phrase.
pub fn open<'a>(context: Context<'a>, phrases: &'a [Phrase]) -> Result<Option<Walk<'a>>> {
    let mut walks: Vec<Walk<'a>> = Vec::with_capacity(phrases.len());
    for phrase in phrases {
        if let Some(walk) = PhraseWalk::open(context, phrase)? {
            walks.push(Box::new(walk));
        }
    }
    Ok(Union::open(context.ticker, walks, 1))
}

impl<'a> PhraseWalk<'a> {
    fn open(context: Context<'a>, phrase: &'a Phrase) -> Result<Option<Self>> {
        let numbers = &context.fields[phrase.field];
        let Some(text) = context.segment.text(numbers.field) else { return Ok(None) };
        let mut words = Vec::with_capacity(phrase.terms.len());
        for (term, relative) in &phrase.terms {
            if !context.ticker.tick(64) {
                return Ok(None);
            }
            let read = text.postings.read_postings(term, IndexRecordOption::WithFreqsAndPositions);
            let Some(postings) = read.map_err(Error::engine("read postings"))? else { return Ok(None) };
            let same = phrase.terms.iter().position(|(other, _)| other == term).unwrap_or(words.len());
            words.push(Word { postings, relative: *relative, same, positions: Vec::new() });
        }
        let mut by_cost: Vec<usize> = (0..words.len()).collect();
        by_cost.sort_by_key(|at| words[*at].postings.doc_freq());
        let mut by_word: Vec<usize> = (0..words.len()).collect();
        by_word.sort_by_key(|at| (words[*at].same, words[*at].relative));
        let Some(first) = by_cost.first().map(|at| words[*at].postings.doc()) else { return Ok(None) };
        let mut walk = Self {
            words,
            by_cost,
            by_word,
            phrase,
            lengths: text.lengths.clone(),
            numbers,
            ticker: context.ticker,
            doc: first,
            count: 0,
        };
        Ok((walk.settle(first) != TERMINATED).then_some(walk))
    }

    /// Goes to the first document with the phrase that is not before `doc`, where the rarest word stands.
    fn settle(&mut self, mut doc: DocId) -> DocId {
        'again: while doc != TERMINATED {
            for at in 1..self.by_cost.len() {
                let postings = &mut self.words[self.by_cost[at]].postings;
                if !self.ticker.tick(4) {
                    doc = TERMINATED;
                    break 'again;
                }
                let found = if postings.doc() < doc { postings.seek(doc) } else { postings.doc() };
                if found > doc {
                    doc = self.lead(found);
                    continue 'again;
                }
            }
            self.count = self.occurrences();
            if self.count > 0 {
                break;
            }
            doc = self.lead(doc + 1);
        }
        self.doc = doc;
        doc
    }

    /// Moves the rarest word.
    fn lead(&mut self, target: DocId) -> DocId {
        if target >= TERMINATED || !self.ticker.tick(4) {
            return TERMINATED;
        }
        let postings = &mut self.words[self.by_cost[0]].postings;
        if postings.doc() < target { postings.seek(target) } else { postings.doc() }
    }

    /// How often the phrase is in the document on which all words stand.
    fn occurrences(&mut self) -> u32 {
        let mut read = 0;
        for word in &mut self.words {
            word.postings.positions(&mut word.positions);
            read += word.positions.len();
        }
        self.ticker.tick(4 + read as u32 / 8);
        let places: Vec<Place<'_>> = self.words.iter().map(Word::place).collect();
        if self.phrase.slop == 0 {
            slop::exact(&places, self.ticker)
        } else {
            slop::sloppy(&places, &self.by_word, self.phrase.slop, self.ticker)
        }
    }

    fn parts(&self) -> (f64, f64) {
        (f64::from(self.count), self.numbers.norm(self.lengths.fieldnorm_id(self.doc)))
    }
}

impl Matcher for PhraseWalk<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        if self.doc == TERMINATED {
            return TERMINATED;
        }
        let next = self.lead(self.doc + 1);
        self.settle(next)
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.lead(target);
        self.settle(next)
    }

    fn cost(&self) -> u64 {
        // Positions are read for every document that has all words.
        let rarest = self.by_cost.first().map_or(0, |at| self.words[*at].postings.doc_freq());
        u64::from(rarest) * 8
    }

    fn score(&mut self, sum: &mut f64) {
        let (tf, norm) = self.parts();
        *sum += saturate(self.phrase.weight, tf, norm);
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        let (tf, norm) = self.parts();
        let value = saturate(self.phrase.weight, tf, norm);
        let tokens: Vec<String> = self
            .phrase
            .terms
            .iter()
            .map(|(term, _)| String::from_utf8_lossy(term.serialized_value_bytes()).into_owned())
            .collect();
        let what = json!({
            "kind": "phrase",
            "field": self.numbers.name,
            "tokens": tokens,
            "slop": self.phrase.slop,
            "boost": self.phrase.boost,
            "documents": self.numbers.documents,
            "idf": self.phrase.idf,
            "tf": tf,
            "length": self.lengths.fieldnorm(self.doc),
            "average_length": self.numbers.average,
            "score": value,
        });
        parts.push(Part { what, value });
    }
}
