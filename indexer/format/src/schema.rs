//! The fields of a corpus. A schema is a TOML file; its id (a hash over the normalised schema and the analysis id) is
//! in every manifest, so that a leaf refuses a version it would read differently.
//!
//! One search field, [`SEARCH_FIELD`], holds title, anchors and body with the title counted several times: one clause
//! per query word keeps the pruned path and ranks better than a sum over fields. Every text field marked `query`
//! also has an index of its own for `field:word`; the body of web pages has none, since that would double the index
//! for a rare kind of query.
//!
//! A schema is written by people, so a bad one is answered with all of its problems at once, not the first.

mod parse;

use canopy_common::ids::valid_name;
use serde::{Deserialize, Serialize};

use crate::{
    analysis::Analyzer,
    error::{Error, Result},
};

/// The field that plain words search.
pub const SEARCH_FIELD: &str = "text";
/// Most fields of a schema.
pub const MAX_FIELDS: usize = 128;
/// Highest weight of a text field: its tokens are indexed that often.
pub const MAX_WEIGHT: u32 = 16;
/// Longest field name, bytes.
pub const MAX_FIELD_NAME: usize = 64;

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Analysed text.
    Text,
    /// One exact value.
    Keyword,
    /// Signed integer.
    I64,
    /// Unsigned integer.
    U64,
    /// Float.
    F64,
    /// Boolean.
    Bool,
    /// Instant, microseconds since 1970 UTC.
    Date,
    /// Flat map of attributes: `attributes.color`, each a keyword, number or bool.
    Map,
}

impl Kind {
    /// The name in schema files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Keyword => "keyword",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Date => "date",
            Self::Map => "map",
        }
    }
}

/// One field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Name: `a-z`, digits, `_`.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// Text: how often it counts in the search field; 0 = not in it.
    #[serde(default)]
    pub weight: u32,
    /// Text: has an index of its own for `field:word`.
    #[serde(default)]
    pub query: bool,
    /// Shown in answers.
    #[serde(default = "yes")]
    pub show: bool,
    /// Several values.
    #[serde(default)]
    pub multi: bool,
}

fn yes() -> bool {
    true
}

/// A corpus' schema. Field names `lang` (keyword) and `static_rank` (f64) have fixed meanings; the key is `url` for
/// web pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Name, for people.
    pub name: String,
    /// Field that is the key.
    pub key: String,
    /// Language of documents that neither say nor show theirs.
    pub default_language: String,
    /// Fields, in order.
    pub fields: Vec<Field>,
}

impl Schema {
    /// The default schema for web pages: `url`, `title`, `body`, `anchors`, `host`, `lang`, `topic`, `published`,
    /// `static_rank`, `attributes`.
    pub fn web() -> Self {
        let plain = |name: &str, kind| Field {
            name: name.into(),
            kind,
            weight: 0,
            query: false,
            show: true,
            multi: false,
        };
        Self {
            name: "web".into(),
            key: "url".into(),
            default_language: "en".into(),
            fields: vec![
                plain("url", Kind::Keyword),
                Field { weight: 3, query: true, ..plain("title", Kind::Text) },
                Field { weight: 1, ..plain("body", Kind::Text) },
                Field { weight: 2, query: true, show: false, multi: true, ..plain("anchors", Kind::Text) },
                plain("host", Kind::Keyword),
                plain("lang", Kind::Keyword),
                Field { multi: true, ..plain("topic", Kind::Keyword) },
                plain("published", Kind::Date),
                plain("static_rank", Kind::F64),
                plain("attributes", Kind::Map),
            ],
        }
    }

    /// Reads and checks a schema file; the error names every problem.
    pub fn from_toml(text: &str) -> Result<Self> {
        let (schema, mut problems) = parse::read(text);
        problems.extend(schema.problems());
        if problems.is_empty() { Ok(schema) } else { Err(Error::Schema(problems.join("\n"))) }
    }

    /// Checks a schema that came from elsewhere (a manifest, a program).
    pub fn check(&self) -> Result<()> {
        let problems = self.problems();
        if problems.is_empty() { Ok(()) } else { Err(Error::Schema(problems.join("\n"))) }
    }

    /// Hash of the normalised schema and the analysis id, 16 hex digits.
    pub fn id(&self) -> String {
        self.id_under(Analyzer::id())
    }

    /// The id that this schema has under other analysis rules. The schema's name is not part of it.
    pub fn id_under(&self, analysis_id: &str) -> String {
        let mut lines = vec![format!("schema 1\n{analysis_id}\n{}\n{}\n", self.key, self.default_language)];
        lines.extend(self.fields.iter().map(|Field { name, kind, weight, query, show, multi }| {
            format!("{name} {} {weight} {query} {show} {multi}\n", kind.name())
        }));
        blake3::hash(lines.concat().as_bytes()).to_hex()[..16].to_owned()
    }

    /// A field by name. `attributes.color` finds the map field `attributes`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let exact = self.fields.iter().find(|field| field.name == name);
        exact.or_else(|| {
            let (map, attribute) = name.split_once('.')?;
            let found = self.fields.iter().find(|field| field.name == map && field.kind == Kind::Map)?;
            (!attribute.is_empty()).then_some(found)
        })
    }

    /// Text fields that count in the search field, in schema order.
    pub fn searched(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.kind == Kind::Text && field.weight > 0)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut add = |problem: String| problems.push(problem);
        if !valid_name(&self.name) {
            add(format!("name: {:?} must be 1 to 64 of a-z, 0-9, - and _", short(&self.name)));
        }
        if !(2..=3).contains(&self.default_language.len())
            || !self.default_language.bytes().all(|byte| byte.is_ascii_lowercase())
        {
            add(format!(
                "default_language: {:?} must be a language code of two or three letters, such as en",
                short(&self.default_language)
            ));
        }
        if self.fields.len() > MAX_FIELDS {
            add(format!("fields: {} given, at most {MAX_FIELDS} allowed", self.fields.len()));
        }
        match self.fields.iter().find(|field| field.name == self.key) {
            None => add(format!("key: there is no field {:?}; add it as a keyword", short(&self.key))),
            Some(key) if key.kind != Kind::Keyword || key.multi => {
                add(format!("key: field {:?} must be a keyword with one value", short(&self.key)));
            }
            Some(_) => {}
        }
        if self.searched().next().is_none() {
            add("fields: no text field has a weight above 0, so plain words could find nothing".into());
        }
        for (i, field) in self.fields.iter().enumerate().take(MAX_FIELDS) {
            if self.fields[..i].iter().any(|earlier| earlier.name == field.name) {
                add(format!("field {:?}: given twice", short(&field.name)));
            }
            field.problems(&mut add);
        }
        problems
    }
}

impl Field {
    fn problems(&self, add: &mut impl FnMut(String)) {
        let Self { name, kind, weight, query, show, multi } = self;
        let mut add = |problem: &str| add(format!("field {:?}: {problem}", short(name)));
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.len() > MAX_FIELD_NAME
            || !name.starts_with(|c: char| c.is_ascii_lowercase())
            || !name.bytes().all(letters)
        {
            add("a name is 1 to 64 of a-z, 0-9 and _, beginning with a letter");
        }
        if name == SEARCH_FIELD {
            add("this name belongs to the search field; choose another");
        }
        if *kind != Kind::Text && (*weight > 0 || *query) {
            add("weight and query are for text fields only; other kinds are always searchable");
        }
        if *weight > MAX_WEIGHT {
            add("weight must be 0 to 16");
        }
        if *kind == Kind::Text && *weight == 0 && !query && !show {
            add("neither searched (weight, query) nor shown; remove it");
        }
        if *multi && *kind == Kind::Map {
            add("a map cannot be multi");
        }
        let fixed = match name.as_str() {
            "lang" => Some(Kind::Keyword),
            "static_rank" => Some(Kind::F64),
            _ => None,
        };
        if fixed.is_some_and(|fixed| *kind != fixed || *multi) {
            add("lang is always one keyword and static_rank one f64");
        }
    }
}

/// A name from a file, cut for a message.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
