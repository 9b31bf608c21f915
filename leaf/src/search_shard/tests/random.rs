//! Random requests over the test schema.

use canopy_common::rng::Dice;
use canopy_proto::v1::{self, query::Node, value};

use crate::testing::{Row, draw, word};

pub fn node(node: Node) -> v1::Query {
    v1::Query { node: Some(node) }
}

pub fn term(field: &str, tokens: &[String], boost: f32) -> v1::Query {
    node(Node::Term(v1::TermQuery { field: field.into(), tokens: tokens.to_vec(), boost }))
}

pub fn should(should: Vec<v1::Query>) -> v1::Query {
    node(Node::Bool(v1::BoolQuery { should, ..Default::default() }))
}

pub fn must(must: Vec<v1::Query>) -> v1::Query {
    node(Node::Bool(v1::BoolQuery { must, ..Default::default() }))
}

pub fn value(kind: value::Kind) -> v1::Value {
    v1::Value { kind: Some(kind) }
}

/// Random numbers with which no shard's own agree: more documents, other lengths (`stretch` times), other frequencies.
pub fn statistics(dice: &Dice, rows: &[Row], vocabulary: u64, stretch: f64) -> v1::Statistics {
    let times = 1 + dice.below(3);
    let documents = (rows.len() as u64 * times).max(1);
    let mut terms = vec![];
    let mut fields = vec![];
    for field in ["text", "title"] {
        let tokens: usize = rows.iter().map(|row| row.text.get(field).map_or(0, Vec::len)).sum();
        fields.push(v1::FieldStatistics {
            field: field.into(),
            tokens: (tokens as f64 * times as f64 * stretch) as u64,
        });
        // The last words stay unknown.
        for n in 0..vocabulary.saturating_sub(3) {
            let documents = dice.below(documents + 5);
            terms.push(v1::TermStatistics { field: field.into(), token: word(n), documents });
        }
    }
    v1::Statistics { id: "random".into(), documents, fields, terms }
}

fn boost(dice: &Dice) -> f32 {
    [0.0, 0.0, 1.0, 0.5, 2.0, 3.7][dice.below(6) as usize]
}

fn field(dice: &Dice) -> &'static str {
    if dice.below(4) == 0 { "title" } else { "text" }
}

fn some(dice: &Dice, least: u64, most: u64) -> std::ops::Range<u64> {
    0..least + dice.below(most - least + 1)
}

pub fn one_term(dice: &Dice, vocabulary: u64, forms: u64) -> v1::Query {
    let tokens: Vec<String> = some(dice, 1, forms).map(|_| word(draw(dice, vocabulary))).collect();
    term(field(dice), &tokens, boost(dice))
}

/// A flat union or intersection of terms, or one term.
pub fn flat(dice: &Dice, vocabulary: u64) -> v1::Query {
    let terms = |most| some(dice, 2, most).map(|_| one_term(dice, vocabulary, 1)).collect();
    match dice.below(5) {
        0 => one_term(dice, vocabulary, 3),
        1 => must(terms(3)),
        2 => must(terms(2)),
        _ => should(terms(6)),
    }
}

fn phrase(dice: &Dice, vocabulary: u64) -> v1::Query {
    let form = |_| {
        let count = 1 + dice.below(3);
        let tokens: Vec<String> = (0..count).map(|_| word(draw(dice, vocabulary.min(12)))).collect();
        let mut position = dice.below(3) as u32;
        let positions = tokens.iter().map(|_| {
            position += 1 + u32::from(dice.below(6) == 0);
            position
        });
        v1::PhraseTokens { positions: positions.collect(), tokens }
    };
    let alternatives = some(dice, 1, 2).map(form).collect();
    let slop = [0, 0, 1, 2, 5][dice.below(5) as usize];
    node(Node::Phrase(v1::PhraseQuery { field: field(dice).into(), alternatives, slop, boost: boost(dice) }))
}

/// A typed value of one of the fields.
fn typed(dice: &Dice, field: &str) -> v1::Value {
    use value::Kind::{Bool, DateUs, F64, I64, Text, U64};
    value(match field {
        "host" => Text(format!("h{}", dice.below(45))),
        "topic" => Text(format!("t{}", dice.below(8))),
        "price" if dice.below(3) == 0 => F64((dice.below(400) as f64 - 200.0) / 2.0),
        "price" => I64(dice.below(220) as i64 - 110),
        "size" if dice.below(4) == 0 => I64(5),
        "size" => U64(u64::MAX - dice.below(55)),
        "ratio" if dice.below(3) == 0 => I64(dice.below(12) as i64 - 6),
        "ratio" => F64((dice.below(50) as f64 - 25.0) / 4.0),
        "static_rank" => F64(dice.below(100) as f64 / 100.0),
        "flag" => Bool(dice.below(2) == 0),
        "published" => DateUs((dice.below(400) as i64 - 200) * 1_000_000_000_000_000),
        _ => match dice.below(4) {
            0 => I64(dice.below(6) as i64),
            1 => Bool(dice.below(2) == 0),
            _ => Text(["red", "blue", "3", "true", "2"][dice.below(5) as usize].into()),
        },
    })
}

pub const VALUES: [&str; 8] =
    ["host", "topic", "price", "size", "ratio", "flag", "published", "attributes.color"];

fn filter(dice: &Dice) -> v1::Query {
    let field = VALUES[dice.below(8) as usize].to_owned();
    if dice.below(2) == 0 {
        let values = some(dice, 1, 4).map(|_| typed(dice, &field)).collect();
        return node(Node::Keyword(v1::KeywordQuery { field, values }));
    }
    let field = if dice.below(9) == 0 { "static_rank".to_owned() } else { field };
    let bound = |value| Some(v1::Bound { value: Some(value), inclusive: dice.below(2) == 0 });
    let lower = typed(dice, &field);
    let family = |value: &v1::Value| match value.kind {
        Some(value::Kind::Text(_)) => 0,
        Some(value::Kind::Bool(_)) => 1,
        _ => 2,
    };
    let upper = std::iter::repeat_with(|| typed(dice, &field)).find(|upper| family(upper) == family(&lower));
    let (lower, upper) = match dice.below(5) {
        0 => (bound(lower), None),
        1 => (None, upper.and_then(bound)),
        2 if dice.below(4) == 0 => (None, None),
        _ => (bound(lower), upper.and_then(bound)),
    };
    node(Node::Range(v1::RangeQuery { field, lower, upper }))
}

/// Any shape, at most `depth` deep.
pub fn any(dice: &Dice, vocabulary: u64, depth: u32) -> v1::Query {
    match dice.below(if depth == 0 { 12 } else { 20 }) {
        0..5 => one_term(dice, vocabulary, 2),
        5 | 6 => phrase(dice, vocabulary),
        7 | 8 => filter(dice),
        9 => {
            let tokens = some(dice, 0, 30).map(|_| word(draw(dice, vocabulary + 5))).collect();
            let field = field(dice).into();
            node(Node::Expanded(v1::ExpandedQuery {
                field,
                tokens,
                boost: boost(dice),
                ..Default::default()
            }))
        }
        10 => node(Node::All(v1::MatchAll {})),
        11 if dice.below(3) == 0 => node(Node::None(v1::MatchNone {})),
        11 => flat(dice, vocabulary),
        _ => {
            let children = |most: u64| -> Vec<v1::Query> {
                some(dice, 0, most).map(|_| any(dice, vocabulary, depth - 1)).collect()
            };
            let (must, should) = (children(2), children(4));
            let must_not = if dice.below(3) == 0 { children(2) } else { vec![] };
            let filter = if dice.below(3) == 0 { vec![filter(dice)] } else { vec![] };
            let min_should_match = if dice.below(3) == 0 { dice.below(4) as u32 } else { 0 };
            node(Node::Bool(v1::BoolQuery { must, should, must_not, filter, min_should_match }))
        }
    }
}
