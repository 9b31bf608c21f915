//! The strict form, for programs: JSON that says exactly what must match. Every unknown name, wrong type or number out
//! of bounds is an error that names its place, `query.bool.must[2].term.field`; nothing is guessed.
//!
//! | node | keys (required first) |
//! |---|---|
//! | `bool` | any of `must`, `should`, `filter`, `must_not` (lists of nodes); `min_should_match`, `boost` |
//! | `match` | `text`; `field`, `operator` (`or`, `and`), `min_should_match`, `boost`: analysed words |
//! | `term` | `value`; `field`, `boost`: one word of a text field, or one value of another field |
//! | `phrase` | `text`; `field`, `slop`, `boost` |
//! | `terms` | `field`, `values`: any of these values of a field that is not text |
//! | `range` | `field`, one or two of `gt`, `gte`, `lt`, `lte` |
//! | `prefix`, `wildcard` | `value`; `field`, `boost` |
//! | `fuzzy` | `value`; `field`, `distance` (1, 2), `boost` |
//! | `match_all`, `match_none` | none |
//!
//! A node is an object with one key, its kind. `field` is the search field unless named. Size is checked before the
//! text is read, depth before each step down: reading goes at most [`MAX_TREE_DEPTH`] calls deep.

use canopy_common::error::Failure;
use canopy_proto::v1::{BoolQuery, MatchAll, MatchNone, Query, query::Node};
use serde_json::Value;

use super::{
    MAX_JSON_BYTES, MAX_TREE_DEPTH, check_length,
    clauses::{Built, Group, finish_strict, join, scale},
    lexer::MAX_SLOP,
    target::short,
    words::Words,
};

mod object;

use object::Object;

/// Most levels of JSON; the reader's own limit is one more.
const MAX_JSON_DEPTH: usize = 127;
/// Name of the parameter, in errors.
const FIELD: &str = "query";

/// Reads a strict query from text.
pub fn parse_text(text: &str, narrowed: Group, words: &mut Words<'_>) -> Result<Query, Failure> {
    check_length(FIELD, text, MAX_JSON_BYTES)?;
    if nesting(text) > MAX_JSON_DEPTH {
        return Err(too_deep(FIELD));
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Failure::invalid(FIELD, format!("not valid JSON: {error}")))?;
    parse(&value, narrowed, words)
}

/// Reads a strict query.
pub fn parse(value: &Value, narrowed: Group, words: &mut Words<'_>) -> Result<Query, Failure> {
    let mut reader = Reader { words };
    let query = reader.node(value, FIELD, 1)?;
    words.check_room(FIELD)?;
    Ok(finish_strict(Built::new(query), narrowed, &mut words.warnings))
}

/// Deepest nesting of brackets outside strings.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn too_deep(path: &str) -> Failure {
    let message = format!("the query nests deeper than {MAX_TREE_DEPTH}; flatten it");
    Failure::invalid(path, message).with_limit(MAX_TREE_DEPTH as u64)
}

struct Reader<'w, 'c> {
    words: &'w mut Words<'c>,
}

impl Reader<'_, '_> {
    fn node(&mut self, value: &Value, path: &str, depth: usize) -> Result<Query, Failure> {
        // a leaf may become a node of two levels, and filters add one
        if depth + 2 > MAX_TREE_DEPTH {
            return Err(too_deep(path));
        }
        let (kind, body, path) = object::only_key(value, path)?;
        match kind {
            "bool" => self.bool(&Object::new(body, &path, BOOL)?, depth),
            "match" => self.matching(&Object::new(
                body,
                &path,
                &["text", "field", "operator", "min_should_match", "boost"],
            )?),
            "term" => self.term(&Object::new(body, &path, &["value", "field", "boost"])?),
            "phrase" => self.phrase(&Object::new(body, &path, &["text", "field", "slop", "boost"])?),
            "terms" => self.terms(&Object::new(body, &path, &["field", "values"])?),
            "range" => self.range(&Object::new(body, &path, &["field", "gt", "gte", "lt", "lte"])?),
            "prefix" | "wildcard" => {
                self.pattern(&Object::new(body, &path, &["value", "field", "boost"])?, kind == "prefix")
            }
            "fuzzy" => self.fuzzy(&Object::new(body, &path, &["value", "field", "distance", "boost"])?),
            "match_all" => {
                Object::new(body, &path, &[])?;
                self.fits(&path, 1)?;
                Ok(Query { node: Some(Node::All(MatchAll {})) })
            }
            "match_none" => {
                Object::new(body, &path, &[])?;
                self.nothing(&path)
            }
            _ => Err(object::unknown_kind(kind, &path)),
        }
    }

    fn fits(&mut self, path: &str, tokens: usize) -> Result<(), Failure> {
        if self.words.charge(tokens) { Ok(()) } else { self.words.check_room(path) }
    }

    fn nothing(&mut self, path: &str) -> Result<Query, Failure> {
        self.fits(path, 1)?;
        Ok(Query { node: Some(Node::None(MatchNone {})) })
    }

    /// A clause, or the match of nothing where the words module found none.
    fn or_nothing(&mut self, found: Option<Query>, path: &str) -> Result<Query, Failure> {
        self.words.check_room(path)?;
        found.map_or_else(|| self.nothing(path), Ok)
    }

    fn bool(&mut self, object: &Object<'_>, depth: usize) -> Result<Query, Failure> {
        self.fits(object.path(), 1)?;
        let mut lists: [Vec<Query>; 4] = Default::default();
        for (key, list) in ["must", "should", "must_not", "filter"].into_iter().zip(&mut lists) {
            for (at, value) in object.list(key)?.iter().enumerate() {
                list.push(self.node(value, &format!("{}.{key}[{at}]", object.path()), depth + 1)?);
            }
        }
        let [must, should, must_not, filter] = lists;
        if must.is_empty() && should.is_empty() && filter.is_empty() {
            let message =
                "finds nothing: give it must, should or filter; {\"match_all\":{}} finds every document";
            return Err(Failure::invalid(object.path(), message));
        }
        let min_should_match = object.whole("min_should_match", 0, should.len() as u64)?.unwrap_or(0) as u32;
        let boost = object.boost()?;
        let node = BoolQuery { must, should, must_not, filter, min_should_match };
        let mut query = Query { node: Some(Node::Bool(node)) };
        scale(&mut query, boost);
        Ok(query)
    }

    fn matching(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let (target, text) = (object.text_field(self.words.context.schema)?, object.required_text("text")?);
        let all = match object.text("operator")? {
            None | Some("or") => false,
            Some("and") => true,
            Some(_) => return Err(object.bad("operator", "must be \"or\" or \"and\"")),
        };
        let should = self.words.plain(&target.name, text, object.boost()?);
        self.words.check_room(object.path())?;
        let most = should.len() as u64;
        let wanted = object.whole("min_should_match", 0, u64::from(u32::MAX))?.unwrap_or(0).min(most) as u32;
        let wanted = if all { most as u32 } else { wanted };
        match join(should, wanted, &mut self.words.warnings) {
            Some(query) => Ok(query),
            None => self.nothing(object.path()),
        }
    }

    fn term(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let target = object.field(self.words.context.schema)?;
        if !target.is_text() {
            object.refuse_boost(&target)?;
            let value = object.value("value", &target)?;
            return self
                .words
                .one_of(&target, &[&value])
                .map_err(|refusal| object.bad("value", refusal.reason()));
        }
        let text = object.required_text("value")?;
        let words = self.words.whole_words(text);
        match words.as_slice() {
            [] => self.nothing(object.path()),
            [word] => {
                let found = self.words.term(&target.name, word, object.boost()?);
                self.or_nothing(found, object.path())
            }
            _ => Err(object.bad("value", &format!("is {} words; use match or phrase", words.len()))),
        }
    }

    fn phrase(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let (target, text) = (object.text_field(self.words.context.schema)?, object.required_text("text")?);
        let slop = object.whole("slop", 0, u64::from(MAX_SLOP))?.unwrap_or(0) as u32;
        let found = self.words.phrase(&target.name, text, slop, object.boost()?);
        self.or_nothing(found, object.path())
    }

    fn terms(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let target = object.field(self.words.context.schema)?;
        if target.is_text() {
            return Err(object.bad("field", "is text; use match with several words"));
        }
        let values = object.values("values", &target)?;
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.words.one_of(&target, &values).map_err(|refusal| object.bad("values", refusal.reason()))
    }

    fn range(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let target = object.field(self.words.context.schema)?;
        let lower = object.bound(&target, "gt", "gte")?;
        let upper = object.bound(&target, "lt", "lte")?;
        if lower.is_none() && upper.is_none() {
            return Err(Failure::invalid(object.path(), "a range needs gt, gte, lt or lte"));
        }
        let end = |bound: &'_ Option<(String, bool)>| bound.as_ref().is_some_and(|(_, inclusive)| *inclusive);
        let text = |bound| Option::as_ref(bound).map(|(text, _): &(String, bool)| text.as_str());
        let found = self.words.between(&target, (text(&lower), end(&lower)), (text(&upper), end(&upper)));
        found.map_err(|refusal| Failure::invalid(object.path(), refusal.reason()))
    }

    fn pattern(&mut self, object: &Object<'_>, prefix: bool) -> Result<Query, Failure> {
        let target = object.field(self.words.context.schema)?;
        let value = object.required_text("value")?;
        if !value.contains(char::is_alphanumeric) {
            return Err(object.bad("value", "needs a letter or digit"));
        }
        if prefix && value.contains(['*', '?']) {
            return Err(object.bad("value", "is a prefix; use wildcard for * and ?"));
        }
        if target.is_text() {
            let typed = if prefix { format!("{value}*") } else { value.to_owned() };
            let boost = object.boost()?;
            let found = self.words.pattern(&target.name, &typed, boost);
            let found = found.or_else(|| self.words.or_newer(&target.name, &typed, boost, None));
            return self.or_nothing(found, object.path());
        }
        object.refuse_boost(&target)?;
        let start = if prefix { Some(value) } else { value.strip_suffix('*') };
        let start = start.filter(|start| !start.contains(['*', '?'])).ok_or_else(|| {
            object.bad("value", &format!("{} takes a pattern with one star, at its end", short(&target.name)))
        })?;
        self.words.beginning(&target, start).map_err(|refusal| object.bad("value", refusal.reason()))
    }

    fn fuzzy(&mut self, object: &Object<'_>) -> Result<Query, Failure> {
        let target = object.text_field(self.words.context.schema)?;
        let value = object.required_text("value")?;
        let distance = object.whole("distance", 1, 2)?.unwrap_or(0) as u8;
        let words = self.words.whole_words(value).len();
        if words > 1 {
            return Err(object.bad("value", &format!("is {words} words; a fuzzy node is one")));
        }
        let found = self.words.fuzzy(&target.name, value, distance, object.boost()?);
        self.or_nothing(found, object.path())
    }
}

const BOOL: &[&str] = &["must", "should", "must_not", "filter", "min_should_match", "boost"];
