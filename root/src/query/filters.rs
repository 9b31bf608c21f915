//! The `filter` parameters: `host:example.org`, `lang:en,de`, `price:[1 TO 5}`, `published:>=2024-01`,
//! `-topic:"a,b"`, `title:"rust book"`. Each narrows the answer and scores nothing; several must all hold.
//!
//! Rules: the first colon ends the field's name; commas part alternatives, double quotes keep a comma (or a bracket)
//! inside a value; `-` in front excludes; a keyword ending in `*` is a prefix. Unlike the user's text a filter comes
//! from a program: what cannot be read is an error that names the field and what would be right.

use canopy_common::error::Failure;
use canopy_format::schema::Schema;
use canopy_proto::v1::{BoolQuery, Query, query::Node};

use super::{
    MAX_TEXT_BYTES, check_length,
    clauses::{Built, Group},
    lexer::{Comparison, End},
    target::{self, Target, short},
    values::language,
    words::Words,
};

/// Most `filter` parameters of a request.
pub const MAX_FILTERS: usize = 64;
/// Name of the parameter, in errors.
const FIELD: &str = "filter";

enum Body<'a> {
    Between(End<'a>, End<'a>),
    Compare(Comparison, &'a str),
    /// Alternatives; whether each was in quotes.
    OneOf(Vec<(&'a str, bool)>),
}

struct Filter<'a> {
    excluded: bool,
    name: &'a str,
    body: Body<'a>,
}

/// Reads the filters of a request.
pub fn parse(filters: &[String], words: &mut Words<'_>) -> Result<Group, Failure> {
    if filters.len() > MAX_FILTERS {
        let message = format!("there are {} filters; the limit is {MAX_FILTERS}", filters.len());
        return Err(Failure::invalid(FIELD, message).with_limit(MAX_FILTERS as u64));
    }
    let mut group = Group::default();
    for text in filters {
        check_length(FIELD, text, MAX_TEXT_BYTES)?;
        let filter = split(text).ok_or_else(|| {
            let message =
                format!("{:?} is no filter; write field:value, field:[a TO b] or field:>5", short(text));
            Failure::invalid(FIELD, message)
        })?;
        let target = known(words.context.schema, filter.name)?;
        let built = Built::new(clause(&filter, &target, words)?);
        if filter.excluded { &mut group.must_not } else { &mut group.filter }.push(built);
    }
    words.check_room(FIELD)?;
    Ok(group)
}

/// Codes of the languages that the filters ask for.
pub fn languages(filters: &[String], schema: &Schema) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for filter in filters.iter().take(MAX_FILTERS).filter_map(|text| split(text)) {
        let target = target::resolve(schema, filter.name).filter(Target::is_language);
        if let (Body::OneOf(values), Some(_), false) = (&filter.body, target, filter.excluded) {
            let codes = values.iter().filter_map(|(value, _)| language(value));
            found.extend(codes.filter(|code| !found.contains(code)).collect::<Vec<_>>());
        }
    }
    found.truncate(super::languages::MAX_LANGUAGES);
    found
}

fn known(schema: &Schema, name: &str) -> Result<Target, Failure> {
    let found = target::resolve(schema, name).ok_or_else(|| {
        let message = format!("there is no field {:?}; fields: {}", short(name), target::names(schema));
        Failure::invalid(FIELD, message)
    })?;
    if found.kind == canopy_format::schema::Kind::Text && !found.searchable {
        let message = format!("{} has no index of its own; filter by text instead", short(name));
        return Err(Failure::invalid(FIELD, message));
    }
    Ok(found)
}

fn split(text: &str) -> Option<Filter<'_>> {
    let text = text.trim();
    let (excluded, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (name, body) = text.split_once(':')?;
    let body = body.trim();
    let body = match body.as_bytes() {
        [b'[' | b'{', .., b']' | b'}'] => {
            let (lower, upper) = super::lexer::between(&body[1..body.len() - 1])?;
            Body::Between((lower, body.starts_with('[')), (upper, body.ends_with(']')))
        }
        [] | [b'[' | b'{', ..] => return None,
        [b'>', b'=', ..] => Body::Compare(Comparison::AtLeast, body[2..].trim()),
        [b'<', b'=', ..] => Body::Compare(Comparison::AtMost, body[2..].trim()),
        [b'>', ..] => Body::Compare(Comparison::Above, body[1..].trim()),
        [b'<', ..] => Body::Compare(Comparison::Below, body[1..].trim()),
        _ => Body::OneOf(alternatives(body)?),
    };
    Some(Filter { excluded, name: name.trim(), body })
}

/// Values parted by commas outside quotes; `None` when one is empty or a quote has no end.
fn alternatives(body: &str) -> Option<Vec<(&str, bool)>> {
    let mut found = Vec::new();
    let mut rest = body;
    loop {
        let (value, quoted, after) = if let Some(inside) = rest.trim_start().strip_prefix('"') {
            let (value, after) = inside.split_once('"')?;
            (value, true, after.trim_start())
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (rest[..end].trim(), false, &rest[end..])
        };
        if value.is_empty() {
            return None;
        }
        found.push((value, quoted));
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(found),
        }
    }
}

fn clause(filter: &Filter<'_>, target: &Target, words: &mut Words<'_>) -> Result<Query, Failure> {
    let refused = |reason: &str| Failure::invalid(FIELD, reason);
    let found = match &filter.body {
        Body::Between(lower, upper) => words.between(target, *lower, *upper),
        Body::Compare(comparison, text) => words.compared(target, *comparison, text),
        Body::OneOf(values) => return one_of(values, target, words),
    };
    found.map_err(|refusal| refused(refusal.reason()))
}

fn one_of(values: &[(&str, bool)], target: &Target, words: &mut Words<'_>) -> Result<Query, Failure> {
    let mut should = Vec::new();
    let mut exact = Vec::new();
    for &(value, quoted) in values {
        if target.is_text() {
            let found = words.phrase(&target.name, value, 0, 1.0);
            words.check_room(FIELD)?;
            let message = || format!("{}: {:?} holds no word", short(&target.name), short(value));
            should.push(found.ok_or_else(|| Failure::invalid(FIELD, message()))?);
        } else if let Some(prefix) = value.strip_suffix('*').filter(|_| !quoted) {
            let found = words.beginning(target, prefix);
            should.push(found.map_err(|refusal| Failure::invalid(FIELD, refusal.reason()))?);
        } else {
            exact.push(value);
        }
    }
    if !exact.is_empty() {
        let found = words.one_of(target, &exact);
        should.push(found.map_err(|refusal| Failure::invalid(FIELD, refusal.reason()))?);
    }
    if should.len() == 1 {
        return Ok(should.remove(0));
    }
    Ok(Query { node: Some(Node::Bool(BoolQuery { should, ..BoolQuery::default() })) })
}
