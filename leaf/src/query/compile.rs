//! Query message to [`Plan`]: names resolved, bounds checked, weights computed, trivial nodes removed.
//!
//! Depth and size are checked without recursion first (`canopy_proto::validate::tree`), so the recursion here is
//! bounded, whatever the message says. Order of the scoring leaves is that of the message; simplification never changes
//! it.

use canopy_format::{analysis::Analyzer, schema::Kind};
use canopy_indexer::index_schema::IndexSchema;
use canopy_proto::{v1, validate};
use tantivy::{Term, schema::Field};

use super::{
    fields::{text_field, value_field},
    numbers::{K1, Numbers, idf},
    plan::{AnyOf, Bool, Leaf, Node, Phrase, Plan, Range},
};
use crate::error::{Error, Result};

/// Largest boost.
pub const MAX_BOOST: f32 = 1e6;
/// Largest phrase slop. Below the position gap between the parts of a field, so that no phrase joins two parts.
pub const MAX_SLOP: u32 = 64;

/// Compiles a query for the shards of one schema.
pub fn compile(schema: &IndexSchema, numbers: &Numbers<'_>, query: &v1::Query) -> Result<Plan> {
    if let Err(failure) = validate::tree(query) {
        let field = failure.field.unwrap_or_else(|| "query".into());
        return Err(Error::Invalid { field, message: failure.message, limit: failure.limit });
    }
    let mut compiler = Compiler { schema, numbers, plan: Plan { root: Node::Nothing, fields: Vec::new() } };
    let root = compiler.node(query)?;
    Ok(Plan { root, ..compiler.plan })
}

struct Compiler<'a> {
    schema: &'a IndexSchema,
    numbers: &'a Numbers<'a>,
    plan: Plan,
}

impl Compiler<'_> {
    fn node(&mut self, query: &v1::Query) -> Result<Node> {
        use v1::query::Node as Wire;
        match &query.node {
            None => Err(Error::invalid(
                "query",
                "a node of the query is empty; it comes from a newer or a broken sender",
            )),
            Some(Wire::All(_)) => Ok(Node::All),
            Some(Wire::None(_)) => Ok(Node::Nothing),
            Some(Wire::Term(term)) => self.term(term),
            Some(Wire::Phrase(phrase)) => self.phrase(phrase),
            Some(Wire::Range(range)) => {
                let field = value_field(self.schema, &range.field)?;
                let interval = field.interval(range.lower.as_ref(), range.upper.as_ref())?;
                Ok(Node::Range(Range { field, interval }))
            }
            Some(Wire::Expanded(expanded)) => self.expanded(expanded),
            Some(Wire::Keyword(keyword)) => {
                let field = value_field(self.schema, &keyword.field)?;
                if !field.indexed(self.schema) {
                    let message = format!("field {:?} has no index of its values; use a range", field.name);
                    return Err(Error::invalid(&field.name, message));
                }
                let mut terms = Vec::with_capacity(keyword.values.len());
                for value in &keyword.values {
                    terms.extend(field.terms(self.schema, &field.scalar(Some(value))?));
                }
                let (on, name) = (field.field, keyword.field.clone());
                Ok(Node::AnyOf(AnyOf { field: name, on, terms, prefix: String::new(), score: 0.0 }))
            }
            Some(Wire::Bool(bool)) => self.bool(bool),
        }
    }

    /// Index of a text field in the plan.
    fn text(&mut self, name: &str) -> Result<(usize, Field)> {
        if let Some(at) = self.plan.fields.iter().position(|field| field.name == name) {
            return Ok((at, self.plan.fields[at].field));
        }
        let field = text_field(self.schema, name)?;
        self.plan.fields.push(self.numbers.field(name, field)?);
        Ok((self.plan.fields.len() - 1, field))
    }

    fn term(&mut self, query: &v1::TermQuery) -> Result<Node> {
        let (at, field) = self.text(&query.field)?;
        let boost = boost(&query.field, query.boost)?;
        let mut leaves = Vec::with_capacity(query.tokens.len());
        for token in &query.tokens {
            let document_frequency = self.numbers.document_frequency(&query.field, token);
            let idf = idf(document_frequency, self.numbers.documents);
            let weight = f64::from(boost) * idf * (K1 + 1.0);
            let term = Term::from_field_text(field, token);
            leaves.push(Leaf { term, field: at, boost, document_frequency, idf, weight });
        }
        Ok(if leaves.is_empty() { Node::Nothing } else { Node::Terms(leaves) })
    }

    fn phrase(&mut self, query: &v1::PhraseQuery) -> Result<Node> {
        let (at, field) = self.text(&query.field)?;
        let boost = boost(&query.field, query.boost)?;
        if query.slop > MAX_SLOP {
            let message = format!("slop is {}; the limit is {MAX_SLOP}", query.slop);
            return Err(Error::above("slop", message, MAX_SLOP.into()));
        }
        let mut phrases = Vec::with_capacity(query.alternatives.len());
        for form in query.alternatives.iter().filter(|form| !form.tokens.is_empty()) {
            if form.positions.len() != form.tokens.len() {
                let message = format!("{} tokens have {} positions", form.tokens.len(), form.positions.len());
                return Err(Error::invalid(&query.field, message));
            }
            let mut sum = 0.0;
            let mut terms = Vec::with_capacity(form.tokens.len());
            for (token, position) in form.tokens.iter().zip(&form.positions) {
                sum += idf(self.numbers.document_frequency(&query.field, token), self.numbers.documents);
                terms.push((Term::from_field_text(field, token), *position));
            }
            let weight = f64::from(boost) * sum * (K1 + 1.0);
            phrases.push(Phrase { terms, field: at, slop: query.slop, boost, idf: sum, weight });
        }
        Ok(if phrases.is_empty() { Node::Nothing } else { Node::Phrases(phrases) })
    }

    fn expanded(&mut self, query: &v1::ExpandedQuery) -> Result<Node> {
        let score = boost(&query.field, query.boost)?;
        let keyword = self.schema.values.get(&query.field).filter(|(kind, _)| *kind == Kind::Keyword);
        let (field, prefix) = match keyword {
            Some((_, field)) => (*field, String::new()),
            None => (text_field(self.schema, &query.field)?, prefix(&query.prefix)),
        };
        let terms = query.tokens.iter().map(|token| Term::from_field_text(field, token)).collect();
        Ok(Node::AnyOf(AnyOf { field: query.field.clone(), on: field, terms, prefix, score }))
    }

    fn bool(&mut self, query: &v1::BoolQuery) -> Result<Node> {
        let mut compile = |children: &[v1::Query]| -> Result<Vec<Node>> {
            children.iter().map(|child| self.node(child)).collect()
        };
        let must = compile(&query.must)?;
        let should = compile(&query.should)?;
        let must_not = compile(&query.must_not)?;
        let filter = compile(&query.filter)?;
        let default = usize::from(must.is_empty() && filter.is_empty());
        let min = if query.min_should_match == 0 { default } else { query.min_should_match as usize };
        if min > should.len() {
            return Ok(Node::Nothing);
        }
        let mut bool = Bool { must, should, filter, must_not, min };
        if bool.must_not.is_empty() && bool.filter.is_empty() && bool.must.len() + bool.should.len() == 1 {
            let only =
                if bool.must.is_empty() && bool.min == 1 { bool.should.pop() } else { bool.must.pop() };
            if let Some(only) = only {
                return Ok(only);
            }
        }
        Ok(Node::Bool(bool))
    }
}

/// What terms begin with under a pattern as it was typed; empty for patterns of other shapes.
fn prefix(typed: &str) -> String {
    let literal = typed.strip_suffix('*').filter(|literal| !literal.contains(['*', '?']));
    literal.map_or_else(String::new, |literal| Analyzer::new().fold(literal))
}

fn boost(field: &str, boost: f32) -> Result<f32> {
    match boost {
        0.0 => Ok(1.0),
        b if b > 0.0 && b <= MAX_BOOST => Ok(b),
        b => {
            let message =
                format!("the boost of {field:?} is {b}; it must be above 0 and at most {MAX_BOOST}");
            Err(Error::above("boost", message, MAX_BOOST as u64))
        }
    }
}
