//! The walk over the terms of one field. It descends to the field and the pattern's literal beginning at once, then
//! visits what is below depth first, drops every branch that cannot match, keeps the most frequent in a heap of
//! `limit`, and asks whether to stop after every [`ARCS_PER_POLL`] arcs, matching or not.

use std::{cmp::Reverse, collections::BinaryHeap};

use fst::raw::{Fst, Node, Output};

use super::{
    Expansion, Pattern, key,
    pattern::{Any, Fuzzy, Matcher, Wildcard},
};

/// Arcs between two looks at the clock: about 20 microseconds.
pub(super) const ARCS_PER_POLL: u32 = 256;

/// Terms of `field` that match, most frequent first.
pub(super) fn expand<D: AsRef<[u8]>>(
    terms: &Fst<D>,
    field: &str,
    pattern: &Pattern,
    limit: usize,
    stop: impl FnMut() -> bool,
) -> Expansion {
    let mut walk = Walk { best: Best::new(limit), stop, arcs: 0, stopped: false };
    let literal = match pattern {
        Pattern::Prefix(prefix) => prefix.as_str(),
        Pattern::Wildcard(pattern) => &pattern[..pattern.find(['*', '?']).unwrap_or(pattern.len())],
        Pattern::Fuzzy { word, .. } if Fuzzy::new(word, 0).is_none() => word,
        Pattern::Fuzzy { .. } => "",
    };
    let Some((node, output)) = descend(terms, &key(field, literal)) else { return Expansion::default() };
    let below = (terms, node, output);
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
                walk.best.offer(literal.as_bytes(), output.cat(node.final_output()).value());
            }
            None => {}
        },
    }
    walk.best.finish(walk.stopped)
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

struct Walk<F> {
    best: Best,
    stop: F,
    arcs: u32,
    stopped: bool,
}

impl<F: FnMut() -> bool> Walk<F> {
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

    fn visit<M: Matcher>(&mut self, step: &Step<'_, M::State>, term: &[u8], matcher: &M) {
        if step.node.is_final() && step.character == term.len() && matcher.accepts(&step.state) {
            self.best.offer(term, step.output.cat(step.node.final_output()).value());
        }
    }

    fn poll(&mut self) -> bool {
        if self.arcs.is_multiple_of(ARCS_PER_POLL) && (self.stop)() {
            self.stopped = true;
        }
        self.arcs = self.arcs.wrapping_add(1);
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

/// The most frequent terms so far; the least of them on top of the heap.
struct Best {
    heap: BinaryHeap<Reverse<(u64, Reverse<String>)>>,
    limit: usize,
    more: bool,
}

impl Best {
    fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::new(), limit, more: false }
    }

    fn offer(&mut self, term: &[u8], frequency: u64) {
        let Ok(term) = std::str::from_utf8(term) else { return };
        if self.heap.len() >= self.limit {
            self.more = true;
            match self.heap.peek() {
                Some(Reverse((least, Reverse(last))))
                    if frequency > *least || (frequency == *least && term < last.as_str()) =>
                {
                    self.heap.pop();
                }
                _ => return,
            }
        }
        self.heap.push(Reverse((frequency, Reverse(term.to_owned()))));
    }

    fn finish(self, stopped: bool) -> Expansion {
        let sorted = self.heap.into_sorted_vec();
        let terms = sorted.into_iter().map(|Reverse((frequency, Reverse(term)))| (term, frequency)).collect();
        Expansion { terms, truncated: self.more || stopped }
    }
}
