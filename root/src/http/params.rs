//! From what a client wrote (a query string or a JSON object) to the one typed request, [`QueryRequest`]. Only
//! names and primitive types are judged here; bounds and meaning are checked once for HTTP and gRPC in
//! [`crate::request`].
//!
//! The failure this prevents: a misspelt `timout_ms` that is silently ignored, so that a client believes in a deadline
//! it never had. Rule: an unknown name is an error that names the nearest known one; a name given twice is an error,
//! save `filter`.

use canopy_common::error::Failure;
use canopy_proto::v1::QueryRequest;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::{
    config::{MAX_K, MAX_OFFSET, MAX_TIMEOUT_MS},
    query::{MAX_TERMS, target::short},
};

/// Every parameter.
pub const NAMES: [&str; 28] = [
    "q",
    "query_json",
    "k",
    "cursor",
    "offset",
    "timeout_ms",
    "min_coverage",
    "completion",
    "total",
    "hedge",
    "min_should_match",
    "freshness",
    "min_offset",
    "filter",
    "sort",
    "facets",
    "collapse",
    "fields",
    "snippet",
    "profile",
    "mode",
    "version",
    "session",
    "explain",
    "trace",
    "priority",
    "lang",
    "tz",
];

/// A value as it was written.
enum Given {
    Text(String),
    Json(Value),
}

/// Reads a query string's decoded pairs.
pub fn from_pairs(corpus: &str, pairs: Vec<(String, String)>) -> Result<QueryRequest, Failure> {
    let given = pairs.into_iter().map(|(name, text)| (name, Given::Text(text)));
    collect(corpus, given)
}

/// Reads a JSON object.
pub fn from_json(corpus: &str, body: &[u8]) -> Result<QueryRequest, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let pairs = (&mut reader)
        .deserialize_map(Pairs)
        .and_then(|pairs| reader.end().map(|()| pairs))
        .map_err(|error| Failure::invalid("body", format!("body is not a JSON object: {error}")))?;
    collect(corpus, pairs.into_iter().map(|(name, value)| (name, Given::Json(value))))
}

/// Keeps duplicates, which a map would swallow.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with the search parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

fn collect(corpus: &str, given: impl Iterator<Item = (String, Given)>) -> Result<QueryRequest, Failure> {
    let mut request = QueryRequest { corpus: corpus.to_owned(), ..Default::default() };
    let mut seen: Vec<String> = Vec::new();
    for (name, value) in given {
        if name != "filter" {
            if seen.contains(&name) {
                return Err(Failure::invalid(&name, format!("{name} is given twice")));
            }
            seen.push(name.clone());
        }
        if matches!(value, Given::Json(Value::Null)) {
            check_known(&name)?;
            continue;
        }
        set(&mut request, &name, value)?;
    }
    Ok(request)
}

fn set(request: &mut QueryRequest, name: &str, value: Given) -> Result<(), Failure> {
    match name {
        "q" => request.q = text(name, value)?,
        "query_json" => request.query_json = json_text(name, value)?,
        "k" => request.k = Some(whole(name, value)?),
        "cursor" => request.cursor = text(name, value)?,
        "offset" => request.offset = whole(name, value)?,
        "timeout_ms" => request.timeout_ms = whole(name, value)?,
        "min_coverage" => request.min_coverage = fraction(name, value)?,
        "completion" => request.completion = text(name, value)?,
        "total" => request.total = text(name, value)?,
        "hedge" => request.hedge = text(name, value)?,
        "min_should_match" => request.min_should_match = whole(name, value)?,
        "freshness" => request.freshness = text(name, value)?,
        "min_offset" => request.min_offset = text(name, value)?,
        "filter" => request.filter.extend(texts(name, value)?),
        "sort" => request.sort = texts(name, value)?.join(","),
        "facets" => request.facets = texts(name, value)?.join(","),
        "collapse" => request.collapse = text(name, value)?,
        "fields" => request.fields = texts(name, value)?.join(","),
        "snippet" => request.snippet = Some(yes_or_no(name, value)?),
        "profile" => request.profile = text(name, value)?,
        "mode" => request.mode = text(name, value)?,
        "version" => request.version = wide(name, value)?,
        "session" => request.session = text(name, value)?,
        "explain" => request.explain = yes_or_no(name, value)?,
        "trace" => request.trace = yes_or_no(name, value)?,
        "priority" => request.priority = text(name, value)?,
        "lang" => request.lang = text(name, value)?,
        "tz" => request.tz = text(name, value)?,
        _ => check_known(name)?,
    }
    Ok(())
}

fn check_known(name: &str) -> Result<(), Failure> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let near = NAMES
        .iter()
        .map(|known| {
            let begins = !shown.is_empty() && known.starts_with(&shown);
            (if begins { 1 } else { distance(&shown.to_lowercase(), known) }, *known)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3));
    let hint = near.map_or_else(
        || "the parameters are listed in the API documentation".to_owned(),
        |(_, known)| format!("did you mean {known}?"),
    );
    Err(Failure::invalid(&shown, format!("there is no parameter {shown:?}; {hint}")))
}

/// Levenshtein distance of two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

fn wrong(name: &str, expected: &str) -> Failure {
    Failure::invalid(name, format!("{name} must be {expected}"))
}

fn text(name: &str, value: Given) -> Result<String, Failure> {
    match value {
        Given::Text(text) | Given::Json(Value::String(text)) => Ok(text),
        Given::Json(_) => Err(wrong(name, "a string")),
    }
}

fn texts(name: &str, value: Given) -> Result<Vec<String>, Failure> {
    match value {
        Given::Text(text) | Given::Json(Value::String(text)) => Ok(vec![text]),
        Given::Json(Value::Array(items)) => {
            items.into_iter().map(|item| text(name, Given::Json(item))).collect()
        }
        Given::Json(_) => Err(wrong(name, "a string or a list of strings")),
    }
}

/// A strict query: an object in a JSON body, its text elsewhere.
fn json_text(name: &str, value: Given) -> Result<String, Failure> {
    match value {
        Given::Text(text) | Given::Json(Value::String(text)) => Ok(text),
        Given::Json(Value::Object(object)) => Ok(Value::Object(object).to_string()),
        Given::Json(_) => Err(wrong(name, "an object")),
    }
}

/// The digits of a whole number of any length.
fn digits(name: &str, value: Given) -> Result<String, Failure> {
    let written = match value {
        Given::Text(text) | Given::Json(Value::String(text)) => text,
        Given::Json(Value::Number(number)) => number.to_string(),
        Given::Json(_) => String::new(),
    };
    let digits = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_digit());
    if digits { Ok(written) } else { Err(wrong(name, "a whole number, 0 or more")) }
}

/// A number beyond its type is above every bound that may be configured: reported as it was written.
fn above(name: &str, written: &str, most: u64) -> Failure {
    let limit = match name {
        "k" => MAX_K.into(),
        "offset" => MAX_OFFSET.into(),
        "timeout_ms" => MAX_TIMEOUT_MS.into(),
        "min_should_match" => MAX_TERMS as u64,
        _ => most,
    };
    let instead =
        if name == "offset" { "; go on with the cursor that each answer gives as next_cursor" } else { "" };
    let message = format!("{name} is {}; the limit is {limit}{instead}", short(written));
    Failure::invalid(name, message).with_limit(limit)
}

fn wide(name: &str, value: Given) -> Result<u64, Failure> {
    let written = digits(name, value)?;
    written.parse().map_err(|_| above(name, &written, u64::MAX))
}

fn whole(name: &str, value: Given) -> Result<u32, Failure> {
    let written = digits(name, value)?;
    written.parse().map_err(|_| above(name, &written, u32::MAX.into()))
}

fn fraction(name: &str, value: Given) -> Result<f64, Failure> {
    let number = match value {
        Given::Text(text) | Given::Json(Value::String(text)) => text.trim().parse().ok(),
        Given::Json(Value::Number(number)) => number.as_f64(),
        Given::Json(_) => None,
    };
    number.filter(|number: &f64| number.is_finite()).ok_or_else(|| wrong(name, "a number"))
}

fn yes_or_no(name: &str, value: Given) -> Result<bool, Failure> {
    match value {
        Given::Json(Value::Bool(yes)) => Ok(yes),
        Given::Text(text) | Given::Json(Value::String(text)) => match text.as_str() {
            "" | "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            _ => Err(wrong(name, "true or false")),
        },
        Given::Json(_) => Err(wrong(name, "true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pairs(list: &[(&str, &str)]) -> Result<QueryRequest, Failure> {
        from_pairs("web", list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
    }

    fn body(value: &Value) -> Result<QueryRequest, Failure> {
        from_json("web", value.to_string().as_bytes())
    }

    #[test]
    fn both_forms_make_the_same_request() {
        let from_url = pairs(&[
            ("q", "rust"),
            ("k", "5"),
            ("filter", "host:a"),
            ("filter", "lang:de"),
            ("facets", "host,lang"),
            ("snippet", "false"),
            ("explain", ""),
            ("min_coverage", "0.5"),
            ("version", "1742"),
            ("tz", "Europe/Berlin"),
        ]);
        let from_body = body(&json!({
            "q": "rust", "k": 5, "filter": ["host:a", "lang:de"], "facets": ["host", "lang"], "snippet": false,
            "explain": true, "min_coverage": 0.5, "version": "1742", "tz": "Europe/Berlin", "cursor": null,
        }));
        assert_eq!(from_url.unwrap(), from_body.unwrap());
    }

    #[test]
    fn an_unknown_name_names_the_nearest() {
        for (name, near) in [
            ("timout_ms", "timeout_ms"),
            ("K", "k"),
            ("snipet", "snippet"),
            ("query", "query_json"),
            ("filters", "filter"),
        ] {
            let failure = pairs(&[(name, "1")]).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some(name));
            assert!(failure.message.ends_with(&format!("did you mean {near}?")), "{}", failure.message);
        }
        assert!(pairs(&[("colour_of_the_sky", "1")]).unwrap_err().message.contains("documentation"));
        assert!(body(&json!({"limit": null})).is_err());
    }

    #[test]
    fn wrong_types_and_repeats_name_the_field() {
        for (name, value) in
            [("k", "ten"), ("k", "-1"), ("k", "1.5"), ("snippet", "maybe"), ("min_coverage", "nan")]
        {
            assert_eq!(pairs(&[(name, value)]).unwrap_err().field.as_deref(), Some(name), "{name}={value}");
        }
        for wrong in [json!({"q": 1}), json!({"k": true}), json!({"filter": {}}), json!({"query_json": []})] {
            assert!(body(&wrong).is_err(), "{wrong}");
        }
        assert!(pairs(&[("q", "a"), ("q", "b")]).unwrap_err().message.contains("twice"));
        assert!(from_json("web", br#"{"k":1,"k":2}"#).unwrap_err().message.contains("twice"));
        for bad in [&b"[]"[..], b"", b"{}x", b"\xff", b"{\"q\":"] {
            assert_eq!(from_json("web", bad).unwrap_err().field.as_deref(), Some("body"));
        }
    }

    #[test]
    fn a_number_beyond_its_type_is_reported_as_written() {
        for (name, written, limit) in [
            ("k", "99999999999999999999999", 1000),
            ("offset", "4294967296", 10_000),
            ("timeout_ms", "5000000000", 60_000),
            ("min_should_match", "18446744073709551616", 1024),
            ("version", "18446744073709551616", u64::MAX),
        ] {
            let failure = pairs(&[(name, written)]).unwrap_err();
            let message = format!("{name} is {written}; the limit is {limit}");
            assert!(failure.message.starts_with(&message), "{}", failure.message);
            assert_eq!((failure.field.as_deref(), failure.limit), (Some(name), Some(limit)));
        }
        assert_eq!(pairs(&[("k", "4294967295")]).unwrap().k, Some(u32::MAX), "its bound is checked later");
        assert_eq!(body(&json!({"version": u64::MAX})).unwrap().version, u64::MAX);
        let text = from_json("web", br#"{"k": 123456789012345678901}"#).unwrap_err();
        assert_eq!(text.field.as_deref(), Some("k"));
    }

    #[test]
    fn every_name_is_known_to_the_setter() {
        for name in NAMES {
            let request = pairs(&[(name, "1")]).unwrap();
            assert_ne!(request, QueryRequest { corpus: "web".into(), ..Default::default() }, "{name}");
        }
    }
}
