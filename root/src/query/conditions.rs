//! Values and ranges of keyword, number, boolean and date fields as clauses that match without scoring. One place for
//! the lenient text, the filters and the strict form; each decides whether a reason is a warning or an error.

use canopy_format::schema::Kind;
use canopy_proto::v1::{
    BoolQuery, Bound, KeywordQuery, Query, RangeQuery, Value, query::Node, value::Kind as Typed,
};

use super::{
    dates::{self, Interval},
    languages,
    lexer::{Comparison, End},
    target::{Target, short},
    values::{self, value},
    words::Words,
};

/// Why a condition cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The value is not of the field's type.
    Value(String),
    /// The field has no such range, or its ends are the wrong way round.
    Range(String),
    /// The query is full.
    Full,
}

impl Refusal {
    /// In words.
    pub fn reason(&self) -> &str {
        match self {
            Self::Value(reason) | Self::Range(reason) => reason,
            Self::Full => "the query has too many clauses; send fewer",
        }
    }
}

impl Words<'_> {
    /// The field has one of these values; a date is the whole time it names.
    pub fn one_of(&mut self, target: &Target, texts: &[&str]) -> Result<Query, Refusal> {
        if target.kind == Kind::Date {
            return self.one_of_dates(target, texts);
        }
        let mut found: Vec<Value> = Vec::with_capacity(texts.len());
        for text in texts {
            for value in values::exact(target, text).map_err(Refusal::Value)? {
                if !found.contains(&value) {
                    found.push(value);
                }
            }
        }
        if !self.charge(found.len().max(1)) {
            return Err(Refusal::Full);
        }
        for Value { kind } in found.iter().filter(|_| target.is_language()) {
            if let Some(Typed::Text(code)) = kind {
                languages::check(code, self.context.corpus_languages, &mut self.warnings);
            }
        }
        let keyword = KeywordQuery { field: target.name.clone(), values: found };
        Ok(Query { node: Some(Node::Keyword(keyword)) })
    }

    fn one_of_dates(&mut self, target: &Target, texts: &[&str]) -> Result<Query, Refusal> {
        let mut should = Vec::with_capacity(texts.len());
        for text in texts {
            let Interval { start, end } = self.date(target, text)?;
            should.push(self.stretch(target, Some(start), Some(end))?);
        }
        if should.len() == 1 {
            return Ok(should.remove(0));
        }
        Ok(Query { node: Some(Node::Bool(BoolQuery { should, ..BoolQuery::default() })) })
    }

    fn date(&self, target: &Target, text: &str) -> Result<Interval, Refusal> {
        let context = self.context;
        dates::interval(text, &context.time_zone, context.now_us)
            .map_err(|reason| Refusal::Value(format!("{}: {reason}", short(&target.name))))
    }

    /// From `start` on and before `end`, microseconds.
    fn stretch(&mut self, target: &Target, start: Option<i64>, end: Option<i64>) -> Result<Query, Refusal> {
        let bound = |at, inclusive| Bound { value: Some(value(Typed::DateUs(at))), inclusive };
        self.range(target, start.map(|at| bound(at, true)), end.map(|at| bound(at, false)))
    }

    fn range(
        &mut self,
        target: &Target,
        lower: Option<Bound>,
        upper: Option<Bound>,
    ) -> Result<Query, Refusal> {
        if !self.charge(1) {
            return Err(Refusal::Full);
        }
        let range = RangeQuery { field: target.name.clone(), lower, upper };
        Ok(Query { node: Some(Node::Range(range)) })
    }

    /// The field's value stands in this relation to `text`.
    pub fn compared(
        &mut self,
        target: &Target,
        comparison: Comparison,
        text: &str,
    ) -> Result<Query, Refusal> {
        let open = (None, false);
        match comparison {
            Comparison::Equal => self.one_of(target, &[text]),
            Comparison::Above => self.between(target, (Some(text), false), open),
            Comparison::AtLeast => self.between(target, (Some(text), true), open),
            Comparison::Below => self.between(target, open, (Some(text), false)),
            Comparison::AtMost => self.between(target, open, (Some(text), true)),
        }
    }

    /// The field's value lies between two ends.
    pub fn between(&mut self, target: &Target, lower: End<'_>, upper: End<'_>) -> Result<Query, Refusal> {
        match target.kind {
            Kind::Text | Kind::Bool => {
                let (name, kind) = (short(&target.name), target.kind.name());
                return Err(Refusal::Range(format!("{name} is a {kind} field; it has no ranges")));
            }
            Kind::Date => {
                let start = lower.0.map(|text| self.date(target, text)).transpose()?;
                let end = upper.0.map(|text| self.date(target, text)).transpose()?;
                let start = start.map(|found| if lower.1 { found.start } else { found.end });
                let end = end.map(|found| if upper.1 { found.end } else { found.start });
                ordered(target, start, end)?;
                return self.stretch(target, start, end);
            }
            Kind::Map => return self.between_attributes(target, lower, upper),
            _ => {}
        }
        let lower_value =
            lower.0.map(|text| values::bound(target, text)).transpose().map_err(Refusal::Value)?;
        let upper_value =
            upper.0.map(|text| values::bound(target, text)).transpose().map_err(Refusal::Value)?;
        in_order(target, lower_value.as_ref(), upper_value.as_ref())?;
        let bound = |value, inclusive| Bound { value: Some(value), inclusive };
        let lower = lower_value.map(|value| bound(value, lower.1));
        self.range(target, lower, upper_value.map(|value| bound(value, upper.1)))
    }

    /// Ends of a map attribute: whole numbers when both are, else numbers when both are, else words.
    fn between_attributes(
        &mut self,
        target: &Target,
        lower: End<'_>,
        upper: End<'_>,
    ) -> Result<Query, Refusal> {
        let all = |test: &dyn Fn(&str) -> bool| [lower.0, upper.0].into_iter().flatten().all(test);
        let kind = if all(&|text| text.parse::<i64>().is_ok()) {
            Kind::I64
        } else if all(&|text| values::number(text).is_some()) {
            Kind::F64
        } else {
            Kind::Keyword
        };
        self.between(&Target { kind, ..target.clone() }, lower, upper)
    }

    /// Keywords that begin with `prefix`: the range up to the next string that does not.
    pub fn beginning(&mut self, target: &Target, prefix: &str) -> Result<Query, Refusal> {
        if target.kind != Kind::Keyword || target.site || prefix.is_empty() || prefix.contains('*') {
            let name = short(&target.name);
            return Err(Refusal::Value(format!(
                "{name} takes a pattern only as keyword*, with one star at its end"
            )));
        }
        let bound = |text, inclusive| Bound { value: Some(value(Typed::Text(text))), inclusive };
        let upper = after_prefix(prefix).map(|end| bound(end, false));
        self.range(target, Some(bound(prefix.to_owned(), true)), upper)
    }
}

/// The smallest string above all that begin with `prefix`; `None` when there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut kept: Vec<char> = prefix.chars().collect();
    while let Some(last) = kept.pop() {
        let next = (last as u32 + 1..=0x10_FFFF).find_map(char::from_u32);
        if let Some(next) = next {
            kept.push(next);
            return Some(kept.into_iter().collect());
        }
    }
    None
}

fn ordered<T: PartialOrd>(target: &Target, lower: Option<T>, upper: Option<T>) -> Result<(), Refusal> {
    match (lower, upper) {
        (Some(lower), Some(upper)) if lower > upper => {
            Err(Refusal::Range(format!("{}: the range ends before it begins", short(&target.name))))
        }
        _ => Ok(()),
    }
}

fn in_order(target: &Target, lower: Option<&Value>, upper: Option<&Value>) -> Result<(), Refusal> {
    let (Some(lower), Some(upper)) = (lower, upper) else { return Ok(()) };
    match (&lower.kind, &upper.kind) {
        (Some(Typed::I64(a)), Some(Typed::I64(b))) => ordered(target, Some(a), Some(b)),
        (Some(Typed::U64(a)), Some(Typed::U64(b))) => ordered(target, Some(a), Some(b)),
        (Some(Typed::Text(a)), Some(Typed::Text(b))) => ordered(target, Some(a), Some(b)),
        (a, b) => ordered(target, real(a.as_ref()), real(b.as_ref())),
    }
}

fn real(value: Option<&Typed>) -> Option<f64> {
    match value {
        Some(Typed::I64(n)) => Some(*n as f64),
        Some(Typed::U64(n)) => Some(*n as f64),
        Some(Typed::F64(x)) => Some(*x),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::after_prefix;

    #[test]
    fn the_end_of_a_prefix_is_the_next_string_without_it() {
        let table = [
            ("ab", Some("ac")),
            ("a\u{10FFFF}", Some("b")),
            ("\u{D7FF}", Some("\u{E000}")),
            ("\u{10FFFF}", None),
        ];
        for (prefix, expected) in table {
            assert_eq!(after_prefix(prefix).as_deref(), expected, "{prefix:?}");
        }
        assert!(after_prefix("host").unwrap().as_str() > "host\u{10FFFF}zzz");
    }
}
