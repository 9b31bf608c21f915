//! A compiled query: fields resolved, weights computed, shapes simplified. Immutable while it runs.

use canopy_proto::v1;
use tantivy::{Term, schema::Field};

use super::{fields::ValueField, interval::Interval, numbers::TextNumbers};

/// What runs on a shard.
pub struct Plan {
    /// The tree.
    pub root: Node,
    /// Text fields that the leaves name by index.
    pub fields: Vec<TextNumbers>,
}

/// A node of the tree; its depth is bounded (`canopy_proto::validate`).
pub enum Node {
    /// Every document; scores 0.
    All,
    /// No document.
    Nothing,
    /// Documents with any of the terms; scores them.
    Terms(Vec<Leaf>),
    /// Documents with any of the phrases; scores them.
    Phrases(Vec<Phrase>),
    /// Documents with any of the terms; a constant score.
    AnyOf(AnyOf),
    /// Documents with a value in an interval; scores 0.
    Range(Range),
    /// Several of these.
    Bool(Bool),
}

/// One token of a text field, with its weight.
#[derive(Clone)]
pub struct Leaf {
    /// The engine's term.
    pub term: Term,
    /// Index in [`Plan::fields`].
    pub field: usize,
    /// As asked; finite, above 0.
    pub boost: f32,
    /// Over the corpus, clamped.
    pub document_frequency: u64,
    /// From it.
    pub idf: f64,
    /// `boost * idf * (k1 + 1)`.
    pub weight: f64,
}

impl Leaf {
    /// The token.
    pub fn token(&self) -> &str {
        std::str::from_utf8(self.term.serialized_value_bytes()).unwrap_or_default()
    }
}

/// One form of a phrase: tokens at relative positions.
pub struct Phrase {
    /// Terms with their relative positions, in order.
    pub terms: Vec<(Term, u32)>,
    /// Index in [`Plan::fields`].
    pub field: usize,
    /// How far apart they may be.
    pub slop: u32,
    /// As asked.
    pub boost: f32,
    /// Sum over the terms.
    pub idf: f64,
    /// `boost * idf * (k1 + 1)`.
    pub weight: f64,
}

/// Any of many terms.
pub struct AnyOf {
    /// Name of the field, for explanations.
    pub field: String,
    /// The engine's field.
    pub on: Field,
    /// The terms.
    pub terms: Vec<Term>,
    /// In the overlay all terms that begin with it count too: those that the statistics do not know yet. Empty: none.
    pub prefix: String,
    /// Added to the score of a document with any of them.
    pub score: f32,
}

/// An interval of a fast field.
pub struct Range {
    /// The field.
    pub field: ValueField,
    /// The interval.
    pub interval: Interval,
}

/// `must` and `should` score.
pub struct Bool {
    /// All match.
    pub must: Vec<Node>,
    /// At least `min` match.
    pub should: Vec<Node>,
    /// All match.
    pub filter: Vec<Node>,
    /// None matches.
    pub must_not: Vec<Node>,
    /// At most `should.len()`.
    pub min: usize,
}

/// How the leaves of a flat query combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flat {
    /// Any of them.
    Or,
    /// All of them.
    And,
}

impl Plan {
    /// The leaves in scoring order, when the query is a flat union or intersection of terms.
    pub fn flat(&self) -> Option<(Flat, Vec<&Leaf>)> {
        let mut leaves = Vec::with_capacity(8);
        if any(&self.root, &mut leaves) && !leaves.is_empty() {
            return Some((Flat::Or, leaves));
        }
        leaves.clear();
        (all(&self.root, &mut leaves) && !leaves.is_empty()).then_some((Flat::And, leaves))
    }

    /// Whether the message cut an expansion short.
    pub fn truncated(query: &v1::Query) -> bool {
        use v1::query::Node::{Bool, Expanded};
        let mut open = vec![query];
        while let Some(query) = open.pop() {
            match &query.node {
                Some(Expanded(expanded)) if expanded.truncated => return true,
                Some(Bool(b)) => {
                    open.extend([&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten());
                }
                _ => {}
            }
        }
        false
    }
}

/// The leaves in scoring order, when all nodes are unions of terms.
pub fn union_of(nodes: &[Node]) -> Option<Vec<&Leaf>> {
    let mut leaves = Vec::with_capacity(nodes.len());
    nodes.iter().all(|node| any(node, &mut leaves)).then_some(leaves)
}

fn any<'a>(node: &'a Node, leaves: &mut Vec<&'a Leaf>) -> bool {
    match node {
        Node::Terms(terms) => {
            leaves.extend(terms);
            true
        }
        Node::Bool(Bool { must, should, filter, must_not, min: 1 })
            if must.is_empty() && filter.is_empty() && must_not.is_empty() =>
        {
            should.iter().all(|child| any(child, leaves))
        }
        _ => false,
    }
}

fn all<'a>(node: &'a Node, leaves: &mut Vec<&'a Leaf>) -> bool {
    match node {
        Node::Terms(terms) if terms.len() == 1 => {
            leaves.extend(terms);
            true
        }
        Node::Bool(Bool { must, should, filter, must_not, min })
            if *min == should.len() && filter.is_empty() && must_not.is_empty() =>
        {
            must.iter().chain(should).all(|child| all(child, leaves))
        }
        _ => false,
    }
}
