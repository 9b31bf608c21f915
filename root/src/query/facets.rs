//! The `facets` parameter: `host,lang:20,topic:5:exact`. A size is how many values are wanted; `exact` counts every
//! value of every shard, else a count may carry an error bound.

use canopy_common::error::Failure;
use canopy_format::schema::{Kind, Schema};
use canopy_proto::v1::FacetBy;

use super::target::short;

/// Most facets of a request.
pub const MAX_FACETS: usize = 16;
/// Most values of a facet.
pub const MAX_FACET_SIZE: u32 = 1000;
/// Name of the parameter, in errors.
const FIELD: &str = "facets";

/// Reads the parameter; `default_size` is for facets that name none.
pub fn parse(text: &str, default_size: u32, schema: &Schema) -> Result<Vec<FacetBy>, Failure> {
    let mut facets: Vec<FacetBy> = Vec::new();
    if text.trim().is_empty() {
        return Ok(facets);
    }
    for part in text.split(',').map(str::trim) {
        let facet = one(part, default_size, schema)?;
        if facets.iter().any(|other| other.field == facet.field) {
            return Err(Failure::invalid(FIELD, format!("{} is there twice", short(&facet.field))));
        }
        if facets.len() == MAX_FACETS {
            let message = format!("there are more than {MAX_FACETS} facets");
            return Err(Failure::invalid(FIELD, message).with_limit(MAX_FACETS as u64));
        }
        facets.push(facet);
    }
    Ok(facets)
}

fn one(part: &str, default_size: u32, schema: &Schema) -> Result<FacetBy, Failure> {
    let bad = |message: String| Failure::invalid(FIELD, message);
    let shown = short(part);
    let mut parts = part.split(':');
    let name = parts.next().unwrap_or("");
    let (mut size, mut exact) = (default_size, false);
    let mut rest = parts.peekable();
    if let Some(number) = rest.next_if(|part| *part != "exact") {
        let within = |size: &u32| (1..=MAX_FACET_SIZE).contains(size);
        size = number.parse().ok().filter(within).ok_or_else(|| {
            let message = format!(
                "{shown:?}: a facet has 1 to {MAX_FACET_SIZE} values; write field:20 or field:20:exact"
            );
            bad(message).with_limit(u64::from(MAX_FACET_SIZE))
        })?;
    }
    exact |= rest.next_if_eq(&"exact").is_some();
    if rest.next().is_some() {
        return Err(bad(format!("{shown:?} is no facet; write field, field:20 or field:20:exact")));
    }
    check(name, schema).map_err(bad)?;
    Ok(FacetBy { field: name.to_owned(), size, exact })
}

fn check(name: &str, schema: &Schema) -> Result<(), String> {
    let counted = |kind| matches!(kind, Kind::Keyword | Kind::Bool | Kind::I64 | Kind::U64 | Kind::Map);
    let choice = || {
        let fields = schema.fields.iter().filter(|field| counted(field.kind));
        let names = fields.map(|field| match field.kind {
            Kind::Map => format!("{}.NAME", field.name),
            _ => field.name.clone(),
        });
        names.take(40).collect::<Vec<_>>().join(", ")
    };
    let shown = short(name);
    match schema.field(name) {
        Some(field) if counted(field.kind) && (field.kind != Kind::Map || field.name != name) => Ok(()),
        Some(field) => {
            let kind = field.kind.name();
            Err(format!("{shown} is a {kind} field, whose values are not counted; choose of {}", choice()))
        }
        None => Err(format!("there is no field {shown:?} to count; choose of {}", choice())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facets_have_a_field_a_size_and_may_be_exact() {
        let schema = Schema::web();
        let read = |text: &str| {
            let facets = parse(text, 10, &schema).unwrap();
            facets.into_iter().map(|facet| (facet.field, facet.size, facet.exact)).collect::<Vec<_>>()
        };
        assert_eq!(read(" "), []);
        let expected = [("host".into(), 10, false), ("lang".into(), 20, false), ("topic".into(), 5, true)];
        assert_eq!(read("host, lang:20,topic:5:exact"), expected);
        assert_eq!(read("attributes.color:3"), [("attributes.color".into(), 3, false)]);
        assert_eq!(read("host:exact"), [("host".into(), 10, true)]);
    }

    #[test]
    fn bad_facets_are_refused_by_name() {
        let schema = Schema::web();
        let table = [
            ("title", "title is a text field"),
            ("published", "published is a date field"),
            ("attributes", "attributes is a map field"),
            ("nosuch", "no field \"nosuch\""),
            ("host:0", "1 to 1000"),
            ("host:1001", "1 to 1000"),
            ("host:-1", "1 to 1000"),
            ("host:5:exact:more", "is no facet"),
            ("host:exact:5", "is no facet"),
            ("host,host:3", "twice"),
            ("host,", "no field \"\""),
        ];
        for (text, words) in table {
            let failure = parse(text, 10, &schema).expect_err(text);
            assert_eq!(failure.field.as_deref(), Some("facets"), "{text}");
            assert!(failure.message.contains(words), "{text}: {}", failure.message);
        }
    }
}
