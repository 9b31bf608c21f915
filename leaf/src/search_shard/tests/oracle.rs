//! What a search must return, by looking at every row: no index, no engine, no code of the searcher's.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::topk::{Order, SortKey, SortValue};
use canopy_proto::v1::{self, query::Node, value::Kind};
use tantivy::{fieldnorm::FieldNormReader, schema::OwnedValue};

use crate::testing::Row;

pub struct Oracle<'a> {
    rows: &'a [Row],
    statistics: &'a v1::Statistics,
    prior_weight: f32,
    /// By field and token.
    frequencies: BTreeMap<(&'a str, &'a str), u64>,
}

#[derive(Debug, PartialEq)]
pub struct Expected {
    /// (key, score bits, sort values, collapse value)
    pub hits: Vec<(u128, u32, Vec<SortValue>, String)>,
    pub total: u64,
    pub facets: Vec<BTreeMap<String, u64>>,
}

impl<'a> Oracle<'a> {
    pub fn new(rows: &'a [Row], statistics: &'a v1::Statistics, prior_weight: f32) -> Self {
        let terms = statistics.terms.iter();
        let frequencies = terms.map(|t| ((t.field.as_str(), t.token.as_str()), t.documents)).collect();
        Self { rows, statistics, prior_weight, frequencies }
    }

    /// All matches among the visible rows.
    pub fn matches<'b>(&'b self, query: &v1::Query, hidden: &BTreeSet<usize>) -> Vec<(&'b Row, f32)> {
        let visible = self.rows.iter().enumerate().filter(|(at, _)| !hidden.contains(at));
        visible.filter_map(|(_, row)| Some((row, self.score(row, &self.parts(query, row)?)))).collect()
    }

    fn score(&self, row: &Row, parts: &[f64]) -> f32 {
        let mut sum = 0.0;
        for part in parts {
            sum += part;
        }
        (sum + f64::from(self.prior_weight) * row.rank) as f32
    }

    pub fn answer(&self, request: &v1::SearchRequest, hidden: &BTreeSet<usize>) -> Expected {
        let matches = self.matches(request.query.as_ref().expect("query"), hidden);
        let order = Order { descending: request.sort.iter().map(|by| by.descending).collect() };
        let mut keyed: Vec<(SortKey, &Row)> = matches
            .iter()
            .map(|(row, score)| {
                let values = request.sort.iter().map(|by| sort_value(row, by, *score)).collect();
                (SortKey { stage: 0, values, score: *score, key: row.hash() }, *row)
            })
            .collect();
        keyed.sort_by(|a, b| order.cmp(&a.0, &b.0));
        let shard = &request.shards[0];
        if let Some(after) = &shard.after {
            let after = SortKey {
                stage: 0,
                values: after.sort.iter().map(canopy_proto::convert::sort_value).collect(),
                score: after.score,
                key: canopy_common::ids::KeyHash::from_parts(after.key_high, after.key_low),
            };
            keyed.retain(|(key, _)| order.cmp(key, &after).is_gt());
        }
        let mut seen = BTreeSet::new();
        let mut hits = Vec::new();
        for (key, row) in keyed {
            let group = row.words.get(request.collapse.as_str()).and_then(|values| values.first());
            let group = group.cloned().unwrap_or_default();
            if !group.is_empty() && !seen.insert(group.clone()) {
                continue;
            }
            if hits.len() < shard.k as usize {
                hits.push((key.key.0, key.score.to_bits(), key.values, group));
            }
        }
        let facets = request.facets.iter().map(|facet| counts(&matches, &facet.field)).collect();
        Expected { hits, total: matches.len() as u64, facets }
    }

    /// The summands of a row's score; `None`: it does not match.
    pub fn parts(&self, query: &v1::Query, row: &Row) -> Option<Vec<f64>> {
        match query.node.as_ref().expect("node") {
            Node::All(_) => Some(vec![]),
            Node::None(_) => None,
            Node::Term(term) => {
                let counts = row.counts.get(term.field.as_str())?;
                let found =
                    term.tokens.iter().filter_map(|token| Some((token, *counts.get(token)? as usize)));
                let parts: Vec<f64> = found
                    .map(|(token, count)| self.bm25(row, &term.field, &[token], count, term.boost))
                    .collect();
                (!parts.is_empty()).then_some(parts)
            }
            Node::Phrase(phrase) => {
                let words = row.text.get(phrase.field.as_str())?;
                let counts = &row.counts[phrase.field.as_str()];
                let mut parts = vec![];
                let whole =
                    |form: &&v1::PhraseTokens| form.tokens.iter().all(|token| counts.contains_key(token));
                for form in phrase.alternatives.iter().filter(whole) {
                    let count = occurrences(words, form, phrase.slop);
                    if count > 0 {
                        let tokens: Vec<&String> = form.tokens.iter().collect();
                        parts.push(self.bm25(row, &phrase.field, &tokens, count, phrase.boost));
                    }
                }
                (!parts.is_empty()).then_some(parts)
            }
            Node::Expanded(expanded) => {
                let counts = row.counts.get(expanded.field.as_str())?;
                let any = expanded.tokens.iter().any(|token| counts.contains_key(token));
                let boost = if expanded.boost == 0.0 { 1.0 } else { expanded.boost };
                any.then(|| vec![f64::from(boost)])
            }
            Node::Keyword(keyword) => {
                let values = values(row, &keyword.field);
                let equal =
                    |wanted: &v1::Value| values.iter().any(|value| equals(value, wanted, &keyword.field));
                keyword.values.iter().any(equal).then(Vec::new)
            }
            Node::Range(range) => {
                values(row, &range.field).iter().any(|value| within(value, range)).then(Vec::new)
            }
            Node::Bool(bool) => self.bool(bool, row),
        }
    }

    fn bool(&self, bool: &v1::BoolQuery, row: &Row) -> Option<Vec<f64>> {
        let mut parts = vec![];
        for child in &bool.must {
            parts.extend(self.parts(child, row)?);
        }
        if !bool.filter.iter().all(|child| self.parts(child, row).is_some())
            || bool.must_not.iter().any(|child| self.parts(child, row).is_some())
        {
            return None;
        }
        let matched: Vec<Vec<f64>> = bool.should.iter().filter_map(|child| self.parts(child, row)).collect();
        let least = match bool.min_should_match {
            0 => usize::from(bool.must.is_empty() && bool.filter.is_empty()),
            n => n as usize,
        };
        (matched.len() >= least).then(|| {
            parts.extend(matched.into_iter().flatten());
            parts
        })
    }

    fn bm25(&self, row: &Row, field: &str, tokens: &[&String], count: usize, boost: f32) -> f64 {
        let all = self.statistics.documents as f64;
        let mut idf = 0.0;
        for token in tokens {
            let known = self.frequencies.get(&(field, token.as_str())).copied();
            let df = known.unwrap_or(1).clamp(1, self.statistics.documents) as f64;
            idf += (1.0 + (all - df + 0.5) / (df + 0.5)).ln();
        }
        let tokens_of = self.statistics.fields.iter().find(|f| f.field == field).expect("field").tokens;
        let average = tokens_of as f64 / all;
        let length = row.text[field].len() as u32;
        let length = f64::from(FieldNormReader::id_to_fieldnorm(FieldNormReader::fieldnorm_to_id(length)));
        let boost = if boost == 0.0 { 1.0 } else { f64::from(boost) };
        let tf = count as f64;
        boost * idf * (1.2 + 1.0) * tf / (tf + 1.2 * (1.0 - 0.75 + 0.75 * length / average))
    }
}

/// Occurrences of the first token that belong to a choice of occurrences within `slop`.
fn occurrences(words: &[(String, u32)], form: &v1::PhraseTokens, slop: u32) -> usize {
    let mut chosen: Vec<(usize, i64)> = vec![];
    fn extend(
        words: &[(String, u32)],
        form: &v1::PhraseTokens,
        slop: i64,
        chosen: &mut Vec<(usize, i64)>,
    ) -> bool {
        let next = chosen.len();
        if next == form.tokens.len() {
            return true;
        }
        for (at, (word, position)) in words.iter().enumerate() {
            let d = i64::from(*position) - i64::from(form.positions[next]);
            let near = chosen.iter().all(|(other, e)| *other != at && (d - e).abs() <= slop);
            if *word == form.tokens[next] && near {
                chosen.push((at, d));
                let found = extend(words, form, slop, chosen);
                chosen.pop();
                if found {
                    return true;
                }
            }
        }
        false
    }
    let firsts = words.iter().enumerate().filter(|(_, (word, _))| *word == form.tokens[0]);
    firsts
        .filter(|(at, (_, position))| {
            chosen.clear();
            chosen.push((*at, i64::from(*position) - i64::from(form.positions[0])));
            extend(words, form, slop.into(), &mut chosen)
        })
        .count()
}

fn values(row: &Row, field: &str) -> Vec<SortValue> {
    if let Some(attribute) = field.strip_prefix("attributes.") {
        let mine = row.attributes.iter().filter(|(name, _)| name == attribute);
        return mine
            .map(|(_, value)| match value {
                OwnedValue::Str(text) => SortValue::Text(text.clone()),
                OwnedValue::I64(n) => SortValue::I64(*n),
                OwnedValue::Bool(b) => SortValue::Bool(*b),
                other => panic!("{other:?}"),
            })
            .collect();
    }
    if field == "static_rank" {
        return vec![SortValue::F64(row.rank)];
    }
    let mut all = vec![];
    all.extend(row.words.get(field).into_iter().flatten().cloned().map(SortValue::Text));
    all.extend(row.i64s.get(field).into_iter().flatten().copied().map(SortValue::I64));
    all.extend(row.u64s.get(field).into_iter().flatten().copied().map(SortValue::U64));
    all.extend(row.f64s.get(field).into_iter().flatten().copied().map(SortValue::F64));
    all.extend(row.bools.get(field).into_iter().flatten().copied().map(SortValue::Bool));
    all
}

fn number(value: &SortValue) -> Option<f64> {
    match value {
        SortValue::I64(n) => Some(*n as f64),
        SortValue::U64(n) => Some(*n as f64),
        SortValue::F64(x) => Some(*x),
        _ => None,
    }
}

/// How a row's value compares with a request's; `None`: not comparable. Numbers exactly.
fn compare(value: &SortValue, wanted: &v1::Value) -> Option<std::cmp::Ordering> {
    let whole = |value: &SortValue| match value {
        SortValue::I64(n) => Some(i128::from(*n)),
        SortValue::U64(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (value, wanted.kind.as_ref()?) {
        (SortValue::Text(a), Kind::Text(b)) => Some(a.cmp(b)),
        (SortValue::Bool(a), Kind::Bool(b)) => Some(a.cmp(b)),
        (a, Kind::I64(b) | Kind::DateUs(b)) => match whole(a) {
            Some(a) => Some(a.cmp(&i128::from(*b))),
            None => number(a)?.partial_cmp(&(*b as f64)),
        },
        (a, Kind::U64(b)) => match whole(a) {
            Some(a) => Some(a.cmp(&i128::from(*b))),
            None => number(a)?.partial_cmp(&(*b as f64)),
        },
        (a, Kind::F64(b)) => number(a)?.partial_cmp(b),
        _ => None,
    }
}

fn equals(value: &SortValue, wanted: &v1::Value, field: &str) -> bool {
    if compare(value, wanted).is_some_and(std::cmp::Ordering::is_eq) {
        return true;
    }
    // Text matches attributes of other types by what it reads as.
    let Some(Kind::Text(text)) = &wanted.kind else { return false };
    field.starts_with("attributes.")
        && match value {
            SortValue::Bool(b) => *text == b.to_string(),
            SortValue::I64(n) => *text == n.to_string(),
            _ => false,
        }
}

fn within(value: &SortValue, range: &v1::RangeQuery) -> bool {
    let holds = |bound: &Option<v1::Bound>, upper: bool| {
        let Some(bound) = bound else { return true };
        let order = compare(value, bound.value.as_ref().expect("value"));
        order.is_some_and(|order| {
            let order = if upper { order } else { order.reverse() };
            order.is_lt() || (bound.inclusive && order.is_eq())
        })
    };
    holds(&range.lower, false) && holds(&range.upper, true)
}

fn sort_value(row: &Row, by: &v1::SortBy, score: f32) -> SortValue {
    if by.field == "_score" {
        return SortValue::F64(score.into());
    }
    let mixed = by.field.starts_with("attributes.");
    let values = values(row, &by.field).into_iter().map(|value| match value {
        SortValue::I64(n) if mixed => SortValue::F64(n as f64),
        other => other,
    });
    values.min_by(|a, b| a.cmp_directed(b, by.descending)).unwrap_or(SortValue::Missing)
}

fn counts(matches: &[(&Row, f32)], field: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (row, _) in matches {
        let shown: BTreeSet<String> = values(row, field)
            .into_iter()
            .map(|value| match value {
                SortValue::Text(text) => text,
                SortValue::I64(n) => n.to_string(),
                SortValue::U64(n) => n.to_string(),
                SortValue::Bool(b) => b.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        for value in shown {
            *counts.entry(value).or_insert(0) += 1;
        }
    }
    counts
}
