//! The fields of a corpus. A schema is a TOML file; its id (a hash over the normalised schema and the analysis id) is
//! in every manifest, so that a leaf refuses a version it would read differently.
//!
//! One search field, [`SEARCH_FIELD`], holds title, anchors and body with the title counted several times: one clause
//! per query word keeps the pruned path and ranks better than a sum over fields. Every text field marked `query`
//! also has an index of its own for `field:word`.

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The field that plain words search.
pub const SEARCH_FIELD: &str = "text";

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

/// A corpus' schema. Field names `url` (the key), `lang` and `static_rank` have fixed meanings.
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
        todo!()
    }

    /// Reads and checks a schema file; the error names every problem.
    pub fn from_toml(_text: &str) -> Result<Self> {
        todo!()
    }

    /// Hash of the normalised schema and the analysis id, 16 hex digits.
    pub fn id(&self) -> String {
        todo!()
    }

    /// A field by name. `attributes.color` finds the map field `attributes`.
    pub fn field(&self, _name: &str) -> Option<&Field> {
        todo!()
    }

    /// Text fields that count in the search field, in schema order.
    pub fn searched(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.kind == Kind::Text && field.weight > 0)
    }
}
