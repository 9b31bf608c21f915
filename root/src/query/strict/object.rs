//! One JSON object of a strict query: its keys by name and type, and errors that say where they are.

use canopy_common::error::Failure;
use canopy_format::schema::{Kind, Schema};
use serde_json::{Map, Value};

use crate::query::target::{self, Target, short};

/// Longest path shown; deeper ones keep their end.
const MAX_PATH: usize = 200;
/// Most values of one list.
const MAX_LIST: usize = 1024;
const KINDS: &str = "bool, match, term, phrase, terms, range, prefix, wildcard, fuzzy, match_all, match_none";

/// An object whose keys are known.
pub struct Object<'v> {
    map: &'v Map<String, Value>,
    path: String,
}

/// The kind of a node, its body and the body's path.
pub fn only_key<'v>(value: &'v Value, path: &str) -> Result<(&'v str, &'v Value, String), Failure> {
    let found = value.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next());
    let Some((kind, body)) = found else {
        let message = format!("must be an object with one key, the kind of the node: one of {KINDS}");
        return Err(fail(path, message));
    };
    Ok((kind, body, format!("{path}.{}", short(kind))))
}

/// The error for a kind that there is not.
pub fn unknown_kind(kind: &str, path: &str) -> Failure {
    fail(path, format!("there is no node {:?}; there are {KINDS}", short(kind)))
}

fn fail(path: &str, message: impl Into<String>) -> Failure {
    let from = path.len().saturating_sub(MAX_PATH);
    let from = (from..=path.len()).find(|&at| path.is_char_boundary(at)).unwrap_or(0);
    let cut = if from == 0 { path.to_owned() } else { format!("…{}", &path[from..]) };
    let message: String = message.into();
    Failure::invalid(cut.clone(), format!("{cut}: {message}"))
}

impl<'v> Object<'v> {
    /// Checks that it is an object and has no other keys.
    pub fn new(value: &'v Value, path: &str, keys: &[&str]) -> Result<Self, Failure> {
        let Some(map) = value.as_object() else { return Err(fail(path, "must be an object")) };
        if let Some(other) = map.keys().find(|key| !keys.contains(&key.as_str())) {
            let known = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            let place = format!("{path}.{}", short(other));
            return Err(fail(&place, format!("there is no such key; there are: {known}")));
        }
        Ok(Self { map, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// An error at a key.
    pub fn bad(&self, key: &str, message: &str) -> Failure {
        fail(&format!("{}.{key}", self.path), message)
    }

    /// A string.
    pub fn text(&self, key: &str) -> Result<Option<&'v str>, Failure> {
        let value = self.map.get(key);
        value.map(|value| value.as_str().ok_or_else(|| self.bad(key, "must be a string"))).transpose()
    }

    /// A string that must be there.
    pub fn required_text(&self, key: &str) -> Result<&'v str, Failure> {
        self.text(key)?.ok_or_else(|| self.bad(key, "is missing"))
    }

    /// A whole number within bounds.
    pub fn whole(&self, key: &str, low: u64, high: u64) -> Result<Option<u64>, Failure> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let within = value.as_u64().filter(|number| (low..=high).contains(number));
        let bad = || self.bad(key, &format!("must be a whole number from {low} to {high}")).with_limit(high);
        within.map(Some).ok_or_else(bad)
    }

    /// `boost`; 1 when absent.
    pub fn boost(&self) -> Result<f32, Failure> {
        let Some(value) = self.map.get("boost") else { return Ok(1.0) };
        let within = value.as_f64().filter(|number| (0.001..=1000.0).contains(number));
        within
            .map(|number| number as f32)
            .ok_or_else(|| self.bad("boost", "must be a number from 0.001 to 1000"))
    }

    /// An error when there is a `boost` on what does not score.
    pub fn refuse_boost(&self, target: &Target) -> Result<(), Failure> {
        if self.has("boost") {
            return Err(self.bad("boost", &format!("{} does not score; remove it", short(&target.name))));
        }
        Ok(())
    }

    /// A list; empty when absent.
    pub fn list(&self, key: &str) -> Result<&'v [Value], Failure> {
        let Some(value) = self.map.get(key) else { return Ok(&[]) };
        let list = value.as_array().ok_or_else(|| self.bad(key, "must be a list"))?;
        if list.len() > MAX_LIST {
            let message = format!("has {} entries; the limit is {MAX_LIST}", list.len());
            return Err(self.bad(key, &message).with_limit(MAX_LIST as u64));
        }
        Ok(list)
    }

    /// The field named, or the search field.
    pub fn field(&self, schema: &Schema) -> Result<Target, Failure> {
        let Some(name) = self.text("field")? else { return Ok(Target::search()) };
        let found = target::resolve(schema, name).filter(|target| !target.site).ok_or_else(|| {
            let message = format!("there is no field {:?}; fields: {}", short(name), target::names(schema));
            self.bad("field", &message)
        })?;
        if found.kind == Kind::Text && !found.searchable {
            return Err(self.bad("field", "has no index of its own; leave field out to search all text"));
        }
        Ok(found)
    }

    /// The field named, which must be text.
    pub fn text_field(&self, schema: &Schema) -> Result<Target, Failure> {
        let target = self.field(schema)?;
        if target.is_text() {
            return Ok(target);
        }
        let message =
            format!("is a {} field; this node is for text, use term, terms or range", target.kind.name());
        Err(self.bad("field", &message))
    }

    /// A value of the field's type, as text. Whole numbers may be strings, since JSON loses those above 2^53.
    pub fn value(&self, key: &str, target: &Target) -> Result<String, Failure> {
        let value = self.map.get(key).ok_or_else(|| self.bad(key, "is missing"))?;
        scalar(value, target).map_err(|message| self.bad(key, &message))
    }

    /// One end of a range, under the key that leaves it out or the one that includes it, and which it was.
    pub fn bound(&self, target: &Target, above: &str, from: &str) -> Result<Option<(String, bool)>, Failure> {
        match (self.has(above), self.has(from)) {
            (true, true) => Err(self.bad(from, "contradicts the other bound on the same side; give one")),
            (true, false) => Ok(Some((self.value(above, target)?, false))),
            (false, true) => Ok(Some((self.value(from, target)?, true))),
            (false, false) => Ok(None),
        }
    }

    /// A list of such values, at least one.
    pub fn values(&self, key: &str, target: &Target) -> Result<Vec<String>, Failure> {
        let list = self.list(key)?;
        if list.is_empty() {
            return Err(self.bad(key, "needs at least one value"));
        }
        let each = list.iter().enumerate().map(|(at, value)| {
            scalar(value, target).map_err(|message| self.bad(&format!("{key}[{at}]"), &message))
        });
        each.collect()
    }
}

fn scalar(value: &Value, target: &Target) -> Result<String, String> {
    match (target.kind, value) {
        (kind, Value::String(text)) if kind != Kind::Bool => Ok(text.clone()),
        (Kind::I64 | Kind::U64 | Kind::F64 | Kind::Map, Value::Number(number)) => Ok(number.to_string()),
        (Kind::Bool | Kind::Map, Value::Bool(truth)) => Ok(truth.to_string()),
        (Kind::Text | Kind::Keyword | Kind::Date, _) => {
            Err(format!("must be a string, since {} is a {} field", short(&target.name), target.kind.name()))
        }
        (Kind::Map, _) => Err("must be a string, number or boolean".to_owned()),
        (kind, _) => Err(format!("is not of the type of {}, which is {}", short(&target.name), kind.name())),
    }
}
