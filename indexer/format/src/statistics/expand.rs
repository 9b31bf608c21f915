//! The walk over words as written. It descends to the pattern's literal beginning at once, then visits what is below
//! depth first, drops every branch that cannot match, and asks whether to stop after every [`STEPS_PER_POLL`] steps,
//! matching or not. What matches goes to whoever asked, who says how many steps that took; [`Best`] keeps the terms.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fst::raw::{Fst, Node, Output};

use super::{
    Expansion, Found, Pattern,
    pattern::{Any, Fuzzy, Matcher, Wildcard},
};

/// Steps between two looks at the clock: some 20 microseconds. A step is an arc of the map.
pub(super) const STEPS_PER_POLL: u32 = 256;
/// Steps that making a term and looking up its frequency is worth.
pub(super) const STEPS_OF_A_TERM: u32 = 8;

/// Takes a matching word, its value and its edits; how many steps that took.
type Each<'a> = dyn FnMut(&str, u64, u8) -> u32 + 'a;

/// Passes the words behind `start` that match to `each`; whether it was stopped before the end.
pub(super) fn walk<D: AsRef<[u8]>>(
    words: &Fst<D>,
    start: &[u8],
    pattern: &Pattern,
    stop: impl FnMut() -> bool,
    each: &mut Each<'_>,
) -> bool {
    let mut walk = Walk { each, stop, steps: 0, stopped: false };
    let literal = match pattern {
        Pattern::Prefix(prefix) => prefix.as_str(),
        Pattern::Wildcard(pattern) => &pattern[..pattern.find(['*', '?']).unwrap_or(pattern.len())],
        Pattern::Fuzzy { word, .. } if Fuzzy::new(word, 0).is_none() => word,
        Pattern::Fuzzy { .. } => "",
    };
    let Some((node, output)) = descend(words, &[start, literal.as_bytes()].concat()) else { return false };
    let below = (words, node, output);
    match pattern {
        Pattern::Prefix(_) => walk.run(below, literal, &Any),
        Pattern::Wildcard(pattern) => {
            if let Some(rest) = Wildcard::new(&pattern[literal.len()..]) {
                walk.run(below, literal, &rest);
            }
        }
        Pattern::Fuzzy { word, distance } => match Fuzzy::new(word, *distance) {
            Some(near) => walk.run(below, literal, &near),
            None if node.is_final() => {
                (walk.each)(literal, output.cat(node.final_output()).value(), 0);
            }
            None => {}
        },
    }
    walk.stopped
}

/// The node that a key leads to, and the part of the value on the way.
fn descend<'f, D: AsRef<[u8]>>(terms: &'f Fst<D>, key: &[u8]) -> Option<(Node<'f>, Output)> {
    let (mut node, mut output) = (terms.root(), Output::zero());
    for byte in key {
        let arc = node.transition(node.find_input(*byte)?);
        output = output.cat(arc.out);
        node = terms.node(arc.addr);
    }
    Some((node, output))
}

/// A node on the way down.
struct Step<'f, S> {
    node: Node<'f>,
    output: Output,
    /// Next arc to try.
    arc: usize,
    state: S,
    /// Where the character begins that the next byte belongs to.
    character: usize,
}

struct Walk<'e, F> {
    each: &'e mut Each<'e>,
    stop: F,
    /// Until the next look at the clock.
    steps: u32,
    stopped: bool,
}

impl<F: FnMut() -> bool> Walk<'_, F> {
    fn run<M: Matcher, D: AsRef<[u8]>>(
        &mut self,
        (terms, node, output): (&Fst<D>, Node<'_>, Output),
        literal: &str,
        matcher: &M,
    ) {
        let mut term = literal.as_bytes().to_vec();
        let first = Step { node, output, arc: 0, state: matcher.start(), character: term.len() };
        self.visit(&first, &term, matcher);
        let mut path = vec![first];
        while let Some(step) = path.last_mut() {
            if self.poll() {
                return;
            }
            if step.arc == step.node.len() {
                path.pop();
                term.pop();
                continue;
            }
            let arc = step.node.transition(step.arc);
            step.arc += 1;
            term.push(arc.inp);
            let Some((state, character)) = advance(matcher, step, &term) else {
                term.pop();
                continue;
            };
            let next = Step {
                node: terms.node(arc.addr),
                output: step.output.cat(arc.out),
                arc: 0,
                state,
                character,
            };
            self.visit(&next, &term, matcher);
            path.push(next);
        }
    }

    fn visit<M: Matcher>(&mut self, step: &Step<'_, M::State>, word: &[u8], matcher: &M) {
        if !step.node.is_final() || step.character != word.len() {
            return;
        }
        if let (Some(edits), Ok(word)) = (matcher.accepts(&step.state), str::from_utf8(word)) {
            let value = step.output.cat(step.node.final_output()).value();
            self.steps = self.steps.saturating_sub((self.each)(word, value, edits));
        }
    }

    fn poll(&mut self) -> bool {
        if self.steps == 0 {
            self.steps = STEPS_PER_POLL;
            self.stopped = self.stopped || (self.stop)();
        }
        self.steps -= 1;
        self.stopped
    }
}

/// The state after the last byte of `term`, and where the character after it begins; `None` when it cannot match.
fn advance<M: Matcher>(matcher: &M, step: &Step<'_, M::State>, term: &[u8]) -> Option<(M::State, usize)> {
    let bytes = &term[step.character..];
    let width = match bytes[0] {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    if bytes.len() < width {
        return Some((step.state, step.character));
    }
    let character = std::str::from_utf8(bytes).ok()?.chars().next()?;
    Some((matcher.step(&step.state, character)?, term.len()))
}

/// How close, how frequent, which.
type Rank = (u8, Reverse<u64>, String);

/// The best terms so far.
pub(super) struct Best {
    ranks: BTreeSet<Rank>,
    /// Edits and spelling of each of them.
    known: BTreeMap<String, (u8, u64, String)>,
    limit: usize,
    more: bool,
}

impl Best {
    pub(super) fn new(limit: usize) -> Self {
        Self { ranks: BTreeSet::new(), known: BTreeMap::new(), limit, more: false }
    }

    /// Spellings of a term come in byte order, so the first of equally close ones stays.
    pub(super) fn offer(&mut self, term: &str, documents: u64, edits: u8, spelling: &str) {
        if let Some((before, known, _)) = self.known.get(term) {
            if *before <= edits {
                return;
            }
            self.ranks.remove(&(*before, Reverse(*known), term.to_owned()));
            self.known.remove(term);
        }
        if self.ranks.len() >= self.limit {
            self.more = true;
            let rank = (edits, Reverse(documents), term);
            let worst = self.ranks.last().map(|(edits, documents, term)| (*edits, *documents, term.as_str()));
            if worst.is_none_or(|worst| worst < rank) {
                return;
            }
            if let Some((_, _, term)) = self.ranks.pop_last() {
                self.known.remove(&term);
            }
        }
        self.ranks.insert((edits, Reverse(documents), term.to_owned()));
        self.known.insert(term.to_owned(), (edits, documents, spelling.to_owned()));
    }

    pub(super) fn finish(mut self, stopped: bool) -> Expansion {
        let found = self.ranks.into_iter().map(|(edits, Reverse(documents), term)| {
            let spelling = self.known.remove(&term).map(|(_, _, spelling)| spelling).unwrap_or_default();
            Found { term, documents, edits, spelling }
        });
        Expansion { terms: found.collect(), truncated: self.more || stopped }
    }
}
