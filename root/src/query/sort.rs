//! The `sort` parameter: `-published,title`, `published:desc`, `_score`. A `-` or `:desc` puts the largest first;
//! `_score` alone means the best first. Documents without a value come last in both directions.
//!
//! Only fields with values in a column can order hits: keywords, numbers, booleans, dates and map attributes; text has
//! no order. A document with several values counts by the one that comes first.

use canopy_common::error::Failure;
use canopy_format::schema::{Kind, Schema};
use canopy_proto::v1::SortBy;

use super::target::short;

/// Most keys.
pub const MAX_SORT: usize = 8;
/// Sorts by score.
pub const SCORE: &str = "_score";

/// Reads the parameter; empty when there is none.
pub fn parse(text: &str, schema: &Schema) -> Result<Vec<SortBy>, Failure> {
    let bad = |message: String| Failure::invalid("sort", message);
    let mut keys: Vec<SortBy> = Vec::new();
    if text.trim().is_empty() {
        return Ok(keys);
    }
    for part in text.split(',').map(str::trim) {
        let (name, descending) = direction(part).map_err(bad)?;
        check(name, schema).map_err(bad)?;
        if keys.iter().any(|key| key.field == name) {
            return Err(bad(format!("{} is there twice", short(name))));
        }
        if keys.len() == MAX_SORT {
            return Err(bad(format!("there are more than {MAX_SORT} sort keys")).with_limit(MAX_SORT as u64));
        }
        keys.push(SortBy { field: name.to_owned(), descending });
    }
    Ok(keys)
}

fn direction(part: &str) -> Result<(&str, bool), String> {
    let (name, minus) = part.strip_prefix('-').map_or((part, false), |name| (name, true));
    match name.split_once(':') {
        None => Ok((name, minus || name == SCORE)),
        Some(_) if minus => Err(format!("{:?}: write -field or field:desc, not both", short(part))),
        Some((name, "asc")) => Ok((name, false)),
        Some((name, "desc")) => Ok((name, true)),
        Some(_) => {
            Err(format!("{:?} is no sort key; write field, -field, field:asc or field:desc", short(part)))
        }
    }
}

fn check(name: &str, schema: &Schema) -> Result<(), String> {
    let sortable = || {
        let fields = schema.fields.iter().filter(|field| field.kind != Kind::Text);
        let names = fields.map(|field| match field.kind {
            Kind::Map => format!("{}.NAME", field.name),
            _ => field.name.clone(),
        });
        names.chain([SCORE.to_owned()]).take(40).collect::<Vec<_>>().join(", ")
    };
    if name == SCORE {
        return Ok(());
    }
    let shown = short(name);
    match schema.field(name) {
        None => Err(format!("there is no field {shown:?} to sort by; choose of {}", sortable())),
        Some(field) if field.kind == Kind::Text || (field.kind == Kind::Map && field.name == name) => Err(
            format!("{shown} is a {} field, which has no order; choose of {}", field.kind.name(), sortable()),
        ),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_a_field_and_a_direction() {
        let schema = Schema::web();
        let read = |text: &str| {
            let keys = parse(text, &schema).unwrap();
            keys.into_iter().map(|key| (key.field, key.descending)).collect::<Vec<_>>()
        };
        assert_eq!(read(""), []);
        assert_eq!(
            read("-published, host ,_score"),
            [("published".into(), true), ("host".into(), false), ("_score".into(), true)]
        );
        assert_eq!(read("published:desc,host:asc"), [("published".into(), true), ("host".into(), false)]);
        assert_eq!(
            read("topic,-attributes.price"),
            [("topic".into(), false), ("attributes.price".into(), true)]
        );
        assert_eq!(read("_score:asc,-static_rank"), [("_score".into(), false), ("static_rank".into(), true)]);
    }

    #[test]
    fn what_has_no_order_is_refused_by_name() {
        let schema = Schema::web();
        let table = [
            ("title", "title is a text field"),
            ("attributes", "attributes is a map field"),
            ("nosuch", "no field \"nosuch\""),
            ("host,,lang", "no field \"\""),
            ("host,-host", "host is there twice"),
            ("-host:desc", "not both"),
            ("host:down", "no sort key"),
            ("_key", "no field \"_key\""),
        ];
        for (text, words) in table {
            let failure = parse(text, &schema).expect_err(text);
            assert_eq!(failure.field.as_deref(), Some("sort"), "{text}");
            assert!(failure.message.contains(words), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let mut schema = Schema::web();
        let host = schema.field("host").unwrap().clone();
        schema
            .fields
            .extend((0..9).map(|i| canopy_format::schema::Field { name: format!("k{i}"), ..host.clone() }));
        let text: Vec<String> = (0..9).map(|i| format!("k{i}")).collect();
        assert_eq!(parse(&text.join(","), &schema).unwrap_err().limit, Some(8));
        assert_eq!(parse(&text[..8].join(","), &schema).unwrap().len(), 8);
    }
}
