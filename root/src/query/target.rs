//! What a field name in a query stands for. One resolver for text, filters and the strict form, so that a name means
//! the same everywhere.
//!
//! Rule: the schema's own names first, exactly as written, then in lower case (people write `Title:`); `text` is the
//! search field; `site` is the `host` keyword. The part after the dot of a map attribute keeps its case.

use canopy_format::schema::{Field, Kind, SEARCH_FIELD, Schema};

/// A field that a clause may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name in the message: the engine's field, or `attributes.color`.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Text only: it has an index of its own (or is the search field).
    pub searchable: bool,
    /// Written `site:`; values are hosts.
    pub site: bool,
}

impl Target {
    /// The search field.
    pub fn search() -> Self {
        Self { name: SEARCH_FIELD.to_owned(), kind: Kind::Text, searchable: true, site: false }
    }

    /// Whether its words are analysed text that can be searched.
    pub fn is_text(&self) -> bool {
        self.kind == Kind::Text && self.searchable
    }

    /// Whether it is the language keyword, whose values are codes.
    pub fn is_language(&self) -> bool {
        self.name == "lang" && self.kind == Kind::Keyword
    }
}

/// Finds what `name` stands for.
pub fn resolve(schema: &Schema, name: &str) -> Option<Target> {
    if let Some(found) = exactly(schema, name) {
        return Some(found);
    }
    let (head, tail) = name.split_once('.').map_or((name, None), |(head, tail)| (head, Some(tail)));
    let lower = head.to_ascii_lowercase();
    let lower = tail.map_or(lower.clone(), |tail| format!("{lower}.{tail}"));
    if let Some(found) = exactly(schema, &lower) {
        return Some(found);
    }
    let host = schema.field("host").filter(|field| field.kind == Kind::Keyword && lower == "site")?;
    Some(Target { site: true, ..of(host, &host.name) })
}

fn exactly(schema: &Schema, name: &str) -> Option<Target> {
    if name == SEARCH_FIELD {
        return Some(Target::search());
    }
    let field = schema.field(name)?;
    if field.kind == Kind::Map && field.name == name {
        return None; // a map is searched by attribute only
    }
    Some(of(field, name))
}

fn of(field: &Field, name: &str) -> Target {
    Target { name: name.to_owned(), kind: field.kind, searchable: field.query, site: false }
}

/// The names that can be searched, for messages.
pub fn names(schema: &Schema) -> String {
    let fields = schema.fields.iter().filter(|field| field.kind != Kind::Text || field.query);
    let names = fields.map(|field| match field.kind {
        Kind::Map => format!("{}.NAME", field.name),
        _ => field.name.clone(),
    });
    let names: Vec<String> = names.chain([SEARCH_FIELD.to_owned()]).take(40).collect();
    names.join(", ")
}

/// A name from outside, cut for a message.
pub fn short(text: &str) -> String {
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_exactly_then_without_case() {
        let schema = Schema::web();
        let kind = |name: &str| resolve(&schema, name).map(|target| (target.name, target.kind));
        assert_eq!(kind("title"), Some(("title".into(), Kind::Text)));
        assert_eq!(kind("Title"), Some(("title".into(), Kind::Text)));
        assert_eq!(kind("attributes.Color"), Some(("attributes.Color".into(), Kind::Map)));
        assert_eq!(kind("Attributes.Color"), Some(("attributes.Color".into(), Kind::Map)));
        assert_eq!(kind("SITE"), Some(("host".into(), Kind::Keyword)));
        assert_eq!(kind("text"), Some(("text".into(), Kind::Text)));
        for unknown in ["attributes", "attributes.", "http", "", ".", "_key", "titles"] {
            assert_eq!(kind(unknown), None, "{unknown}");
        }
        assert!(!resolve(&schema, "body").unwrap().is_text());
        assert!(resolve(&schema, "title").unwrap().is_text());
        assert!(names(&schema).contains("attributes.NAME"));
        assert!(!names(&schema).contains("body"));
    }
}
