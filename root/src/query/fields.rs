//! The `fields` and `collapse` parameters: names checked against the schema, before anything is asked of a leaf.

use canopy_common::error::Failure;
use canopy_format::schema::{Kind, Schema};

use super::target::short;

/// Most names in `fields`.
pub const MAX_FIELDS: usize = 64;

/// Reads `fields`: names of shown fields, parted by commas; empty means all of them.
pub fn parse(text: &str, schema: &Schema) -> Result<Vec<String>, Failure> {
    let bad = |message: String| Failure::invalid("fields", message);
    let mut names: Vec<String> = Vec::new();
    if text.trim().is_empty() {
        return Ok(names);
    }
    for name in text.split(',').map(str::trim) {
        let shown = schema.field(name).filter(|field| field.show);
        if shown.is_none() {
            let fields = schema.fields.iter().filter(|field| field.show).map(|field| field.name.as_str());
            let choice = fields.take(40).collect::<Vec<_>>().join(", ");
            return Err(bad(format!("there is no shown field {:?}; choose of {choice}", short(name))));
        }
        if names.len() == MAX_FIELDS {
            return Err(bad(format!("there are more than {MAX_FIELDS} names")).with_limit(MAX_FIELDS as u64));
        }
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Reads `collapse`: a keyword field of one value; empty means none.
pub fn collapse(text: &str, schema: &Schema) -> Result<String, Failure> {
    let name = text.trim();
    let usable = |field: &&canopy_format::schema::Field| field.kind == Kind::Keyword && !field.multi;
    if name.is_empty() || schema.field(name).as_ref().is_some_and(usable) {
        return Ok(name.to_owned());
    }
    let fields = schema.fields.iter().filter(usable).map(|field| field.name.as_str());
    let choice = fields.take(40).collect::<Vec<_>>().join(", ");
    let message = format!("{:?} is no keyword field of one value; choose of {choice}", short(name));
    Err(Failure::invalid("collapse", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shown_fields_can_be_asked_for() {
        let schema = Schema::web();
        assert_eq!(parse("", &schema).unwrap(), Vec::<String>::new());
        assert_eq!(
            parse("title, url,title,attributes.color", &schema).unwrap(),
            ["title", "url", "attributes.color"]
        );
        for bad in ["anchors", "nosuch", "title,", "_source"] {
            let failure = parse(bad, &schema).expect_err(bad);
            assert_eq!(failure.field.as_deref(), Some("fields"));
        }
        let many: Vec<String> = (0..=MAX_FIELDS).map(|i| format!("attributes.a{i}")).collect();
        assert_eq!(parse(&many.join(","), &schema).unwrap_err().limit, Some(64));
    }

    #[test]
    fn hits_collapse_by_a_keyword_of_one_value() {
        let schema = Schema::web();
        assert_eq!(collapse("", &schema).unwrap(), "");
        assert_eq!(collapse("host", &schema).unwrap(), "host");
        for bad in ["topic", "title", "published", "nosuch", "attributes.color"] {
            assert_eq!(collapse(bad, &schema).expect_err(bad).field.as_deref(), Some("collapse"));
        }
    }
}
