//! A Bool: what must match, what may, what must not.
//!
//! Scoring keeps the order of the message: `must` in order, then `should` in order. Optional parts are looked up only for
//! documents that are scored. When the ticker says stop, a walk that excludes ends too, so the document at hand may be a
//! wrong one: whoever drives the walk looks at the ticker before it takes a document.

use tantivy::{DocId, TERMINATED};

use super::{
    matcher::{Context, Matcher, Part, Walk, open as open_node},
    plan::{Bool, Node, union_of},
    sets::{Intersection, Union},
    window,
};
use crate::error::Result;

/// Documents of `required` that no walk of `excluded` matches; those of `optional` that match score too.
struct Except<'a> {
    required: Walk<'a>,
    optional: Vec<Walk<'a>>,
    excluded: Vec<Walk<'a>>,
    doc: DocId,
}

fn stands_on(walk: &mut Walk<'_>, doc: DocId) -> bool {
    let at = if walk.doc() < doc { walk.seek(doc) } else { walk.doc() };
    at == doc
}

impl Except<'_> {
    fn settle(&mut self, mut doc: DocId) -> DocId {
        while doc != TERMINATED && self.excluded.iter_mut().any(|walk| stands_on(walk, doc)) {
            doc = self.required.advance();
        }
        self.doc = doc;
        doc
    }
}

impl Matcher for Except<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        let next = self.required.advance();
        self.settle(next)
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.required.seek(target);
        self.settle(next)
    }

    fn cost(&self) -> u64 {
        self.required.cost()
    }

    fn score(&mut self, sum: &mut f64) {
        self.required.score(sum);
        let doc = self.doc;
        self.optional
            .iter_mut()
            .filter_map(|walk| stands_on(walk, doc).then_some(walk))
            .for_each(|w| w.score(sum));
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        self.required.explain(parts);
        let doc = self.doc;
        self.optional
            .iter_mut()
            .filter_map(|walk| stands_on(walk, doc).then_some(walk))
            .for_each(|w| w.explain(parts));
    }
}

/// Opens the walks of nodes that all score after what `context` has before it.
fn some<'a>(context: Context<'a>, nodes: &'a [Node]) -> Result<Vec<Walk<'a>>> {
    let mut walks = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let context = if at == 0 { context } else { context.in_parts() };
        walks.extend(open_node(context, node)?);
    }
    Ok(walks)
}

/// Opens the union of `should`.
fn union<'a>(context: Context<'a>, bool: &'a Bool) -> Result<Option<Walk<'a>>> {
    if bool.min == 1
        && bool.should.len() > 1
        && context.in_windows()
        && let Some(leaves) = union_of(&bool.should)
    {
        return window::open(context, &leaves);
    }
    Ok(Union::open(context.ticker, some(context, &bool.should)?, bool.min))
}

/// Opens the walk of a Bool.
pub fn open<'a>(context: Context<'a>, bool: &'a Bool) -> Result<Option<Walk<'a>>> {
    let mut required = some(context, &bool.must)?;
    if required.len() < bool.must.len() {
        return Ok(None);
    }
    let mut optional = Vec::new();
    if bool.min > 0 {
        let context = if bool.must.is_empty() { context } else { context.in_parts() };
        match union(context, bool)? {
            Some(union) => required.push(union),
            None => return Ok(None),
        }
    } else if context.scoring {
        optional = some(context.in_parts(), &bool.should)?;
    }
    let scored = required.len();
    required.extend(some(context.unscored(), &bool.filter)?);
    if required.len() < scored + bool.filter.len() || required.is_empty() {
        return Ok(None);
    }
    let Some(required) = Intersection::open(required, scored) else { return Ok(None) };
    let excluded = some(context.unscored(), &bool.must_not)?;
    if optional.is_empty() && excluded.is_empty() {
        return Ok(Some(required));
    }
    let doc = required.doc();
    let mut except = Except { required, optional, excluded, doc };
    Ok((except.settle(doc) != TERMINATED).then(|| Box::new(except) as Walk<'a>))
}
