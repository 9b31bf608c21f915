//! Clauses to one message. A group gathers what must, should and must not match and what only filters; here it becomes
//! a node, and the whole query the message that goes out.
//!
//! Shape matters: only a flat OR or a flat AND of terms has the fast path at the leaves. So plain words stay in one
//! list, equal words become one with the sum of their weights, a group of one is that one, and when all plain words
//! are wanted they become required terms.
//!
//! Rules: stop words are dropped unless nothing else remains. When only filters stand beside plain words, one word
//! must match; beside a required clause they only rank. What only excludes finds nothing. A tree that would grow above
//! [`MAX_TREE_DEPTH`] is flattened at its deep end: its words stay, its structure goes, with a warning.

use std::collections::BTreeMap;

use canopy_proto::v1::{BoolQuery, MatchNone, Query, query::Node};

use super::{
    MAX_TREE_DEPTH,
    warnings::Warnings,
    words::{Plain, bounded},
};

/// Levels that the frame of the whole query may add.
const FRAME_DEPTH: usize = 2;

/// A clause and how deep it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// The clause.
    pub query: Query,
    /// Levels of its tree, at least 1.
    pub depth: usize,
}

impl Built {
    /// Measures a clause.
    pub fn new(query: Query) -> Self {
        let mut depth = 0;
        let mut open = vec![(&query, 1)];
        while let Some((query, level)) = open.pop() {
            depth = depth.max(level);
            if let Some(Node::Bool(b)) = &query.node {
                let children = [&b.must, &b.should, &b.must_not, &b.filter];
                open.extend(children.into_iter().flatten().map(|child| (child, level + 1)));
            }
        }
        Self { query, depth }
    }
}

/// The clauses of a group.
#[derive(Debug, Default)]
pub struct Group {
    /// Required, scoring.
    pub must: Vec<Built>,
    /// Plain words, scoring.
    pub should: Vec<Plain>,
    /// Excluded.
    pub must_not: Vec<Built>,
    /// Required, not scoring.
    pub filter: Vec<Built>,
}

impl Group {
    /// Whether it is nothing but plain words.
    pub fn is_plain(&self) -> bool {
        self.must.is_empty() && self.must_not.is_empty() && self.filter.is_empty()
    }

    /// Whether something in it can find a document.
    pub fn finds(&self) -> bool {
        !(self.must.is_empty() && self.should.is_empty() && self.filter.is_empty())
    }

    /// Requires a clause; as a filter when nothing in it scores, so that it doesn't make plain words optional.
    pub fn require(&mut self, built: Option<Built>) {
        let Some(built) = built else { return };
        if scores(&built.query) { &mut self.must } else { &mut self.filter }.push(built);
    }

    /// Takes in the clauses of another group.
    pub fn absorb(&mut self, other: Self) {
        self.must.extend(other.must);
        self.should.extend(other.should);
        self.must_not.extend(other.must_not);
        self.filter.extend(other.filter);
    }

    /// Multiplies the weights of all that scores.
    pub fn scale(&mut self, boost: f32) {
        if boost != 1.0 {
            self.must.iter_mut().for_each(|built| scale(&mut built.query, boost));
            self.should.iter_mut().for_each(|plain| scale(&mut plain.query, boost));
        }
    }

    /// The group as one clause; `None` when it finds nothing by itself.
    pub fn into_built(mut self, warnings: &mut Warnings) -> Option<Built> {
        if !self.finds() {
            return None;
        }
        settle(&mut self.should, !self.must.is_empty());
        let clauses = self.must.len() + self.should.len() + self.filter.len();
        if clauses == 1 && self.must_not.is_empty() {
            let should = self.should.pop().map(|plain| Built::new(plain.query));
            return self.must.pop().or(should).or_else(|| self.filter.pop());
        }
        let one = self.must.is_empty() && !self.should.is_empty() && !self.filter.is_empty();
        Some(self.into_bool(u32::from(one), MAX_TREE_DEPTH - FRAME_DEPTH, warnings))
    }

    fn into_bool(self, min_should_match: u32, deepest: usize, warnings: &mut Warnings) -> Built {
        let should: Vec<Built> = self.should.into_iter().map(|plain| Built::new(plain.query)).collect();
        let all = [&self.must, &should, &self.must_not, &self.filter];
        let depth = 1 + all.into_iter().flatten().map(|built| built.depth).max().unwrap_or(0);
        let queries = |list: Vec<Built>| list.into_iter().map(|built| built.query).collect();
        let node = BoolQuery {
            must: queries(self.must),
            should: queries(should),
            must_not: queries(self.must_not),
            filter: queries(self.filter),
            min_should_match,
        };
        let query = Query { node: Some(Node::Bool(node)) };
        if depth <= deepest {
            return Built { query, depth };
        }
        warnings.add(
            "too_deep",
            format!("groups nest deeper than {MAX_TREE_DEPTH}; the inner ones were read as words"),
        );
        flattened(query)
    }
}

/// Any of some clauses as one.
pub fn any(mut clauses: Vec<Built>, warnings: &mut Warnings) -> Option<Built> {
    if clauses.len() < 2 {
        return clauses.pop();
    }
    let plain = |built: Built| Plain::new(built.query);
    let group = Group { should: clauses.into_iter().map(plain).collect(), ..Group::default() };
    Some(group.into_bool(0, MAX_TREE_DEPTH - FRAME_DEPTH, warnings))
}

/// The whole query. `narrowed` are the request's filters; `blank` when no text was sent.
pub fn finish(
    mut group: Group,
    narrowed: Group,
    min_should_match: u32,
    blank: bool,
    warnings: &mut Warnings,
) -> Query {
    let nothing = Query { node: Some(Node::None(MatchNone {})) };
    if !group.finds() && (narrowed.filter.is_empty() || (group.must_not.is_empty() && !blank)) {
        if group.must_not.is_empty() && narrowed.must_not.is_empty() {
            warnings.add("empty_query", "the query holds no word to search for");
        } else {
            warnings.add("only_negatives", "the query only excludes; add a word to search for");
        }
        return nothing;
    }
    settle(&mut group.should, !group.must.is_empty());
    group.absorb(narrowed);
    let wanted = min_should_match as usize;
    if wanted > 1 {
        count_only(&mut group.should);
    }
    let words = group.should.len();
    if wanted > words && words > 0 {
        warnings
            .add("min_should_match", format!("the query has {words} plain words; all of them must match"));
    }
    if words > 0 && wanted >= words {
        group.must.extend(group.should.drain(..).map(|plain| Built::new(plain.query)));
    }
    let at_least = match (group.must.is_empty(), group.filter.is_empty()) {
        _ if group.should.is_empty() => 0,
        (true, false) => wanted.max(1),
        _ if wanted < 2 && group.must.is_empty() => 0,
        _ => wanted,
    };
    let alone = group.must.len() + group.should.len() == 1;
    if alone && group.must_not.is_empty() && group.filter.is_empty() {
        let should = group.should.pop().map(|plain| plain.query);
        return group.must.pop().map(|built| built.query).or(should).unwrap_or(nothing);
    }
    group.into_bool(at_least as u32, MAX_TREE_DEPTH, warnings).query
}

/// A strict query under the request's filters.
pub fn finish_strict(query: Built, narrowed: Group, warnings: &mut Warnings) -> Query {
    if narrowed.filter.is_empty() && narrowed.must_not.is_empty() {
        return query.query;
    }
    let group = Group { must: vec![query], ..narrowed };
    group.into_bool(0, MAX_TREE_DEPTH, warnings).query
}

/// Plain words as one clause, of which `wanted` must match (0: one); `None` when there are none.
pub fn join(mut should: Vec<Plain>, wanted: u32, warnings: &mut Warnings) -> Option<Query> {
    settle(&mut should, false);
    if wanted > 1 {
        count_only(&mut should);
    }
    let words = should.len();
    let mut group = Group { should, ..Group::default() };
    if wanted as usize >= words {
        group.must.extend(group.should.drain(..).map(|plain| Built::new(plain.query)));
    }
    if words < 2 {
        return group.must.pop().map(|built| built.query).or(group.should.pop().map(|plain| plain.query));
    }
    let wanted = if group.should.is_empty() || wanted < 2 { 0 } else { wanted };
    Some(group.into_bool(wanted, MAX_TREE_DEPTH, warnings).query)
}

/// Drops what no count includes, unless nothing else remains: who counts words would count it.
fn count_only(should: &mut Vec<Plain>) {
    if should.iter().any(|plain| !plain.extra) {
        should.retain(|plain| !plain.extra);
    }
}

/// Drops stop words unless nothing else remains, and joins equal words.
fn settle(should: &mut Vec<Plain>, others: bool) {
    if others || should.iter().any(|plain| !plain.stop && !plain.extra) {
        should.retain(|plain| !plain.stop);
    }
    let mut seen: BTreeMap<(String, Vec<String>), usize> = BTreeMap::new();
    let mut kept: Vec<Plain> = Vec::with_capacity(should.len());
    for plain in should.drain(..) {
        if let Some(Node::Term(term)) = &plain.query.node {
            let (key, boost) = ((term.field.clone(), term.tokens.clone()), term.boost);
            if let Some(Plain { query: Query { node: Some(Node::Term(first)) }, .. }) =
                seen.get(&key).and_then(|&at| kept.get_mut(at))
            {
                first.boost = bounded(first.boost + boost);
                continue;
            }
            seen.insert(key, kept.len());
        }
        kept.push(plain);
    }
    *should = kept;
}

/// The scoring leaves of a deep tree as one flat list.
fn flattened(query: Query) -> Built {
    let mut leaves = Vec::new();
    let mut open = vec![query];
    while let Some(query) = open.pop() {
        match query.node {
            Some(Node::Bool(b)) => open.extend(b.must.into_iter().chain(b.should).rev()),
            _ => leaves.push(query),
        }
    }
    let node = match leaves.len() {
        0 => Node::None(MatchNone {}),
        _ => Node::Bool(BoolQuery { should: leaves, ..BoolQuery::default() }),
    };
    Built { query: Query { node: Some(node) }, depth: 2 }
}

/// Whether a word, phrase or pattern stands where it scores.
fn scores(query: &Query) -> bool {
    let mut open = vec![query];
    while let Some(query) = open.pop() {
        match &query.node {
            Some(Node::Bool(b)) => open.extend(b.must.iter().chain(&b.should)),
            Some(Node::Term(_) | Node::Phrase(_) | Node::Expanded(_)) => return true,
            _ => {}
        }
    }
    false
}

/// Multiplies the weights of a tree.
pub fn scale(query: &mut Query, boost: f32) {
    let mut open = vec![query];
    while let Some(query) = open.pop() {
        match &mut query.node {
            Some(Node::Bool(b)) => open.extend(b.must.iter_mut().chain(&mut b.should)),
            Some(Node::Term(term)) => term.boost = bounded(term.boost * boost),
            Some(Node::Phrase(phrase)) => phrase.boost = bounded(phrase.boost * boost),
            Some(Node::Expanded(expanded)) => expanded.boost = bounded(expanded.boost * boost),
            _ => {}
        }
    }
}
