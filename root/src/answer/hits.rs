//! The page's hits: places from the search, contents from phase two.
//!
//! Rule: a hit that phase two did not deliver stays on the page, marked `summary_missing`, so that the next page does
//! not skip it; it is never shown as an empty but valid result. Integers of documents are strings and dates RFC 3339.

use canopy_common::ids::{KeyHash, ShardId};
use canopy_format::{
    document::format_date,
    schema::{Kind, Schema},
};
use canopy_proto::v1::{self, sort_value};
use serde_json::{Map, Value, json};

use super::{Hit, coverage::Fetch};

/// Largest integer that every JSON reader keeps.
const SAFE: u64 = 1 << 53;

/// What the hits are made from.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    /// Fields and their types.
    pub schema: &'a Schema,
    /// Shards of the request, by index.
    pub shards: &'a [ShardId],
    /// Their replies.
    pub replies: &'a [v1::ShardReply],
    /// Fields asked to sort by.
    pub sort: &'a [v1::SortBy],
    /// Fields that were asked only to ask for something; not shown.
    pub hidden: Option<&'a str>,
    /// Whether a breakdown was asked for.
    pub explain: bool,
}

impl Page<'_> {
    /// Fills the page; documents are in the order of the hits, fewer when phase two failed.
    pub fn fill(&self, hits: &[v1::Hit], documents: &[v1::FetchedDocument]) -> (Vec<Hit>, Fetch) {
        let missing = v1::FetchedDocument::default();
        let page: Vec<Hit> = hits
            .iter()
            .enumerate()
            .map(|(i, hit)| self.one(hit, documents.get(i).unwrap_or(&missing)))
            .collect();
        let filled = page.iter().filter(|hit| !hit.summary_missing).count() as u32;
        (page, Fetch { wanted: hits.len() as u32, filled })
    }

    fn one(&self, hit: &v1::Hit, document: &v1::FetchedDocument) -> Hit {
        let reply = self.replies.get(hit.shard as usize);
        let shard = self.shards.get(hit.shard as usize).map_or_else(String::new, ToString::to_string);
        let sort = self.sort.iter().zip(&hit.sort).map(|(by, value)| self.sort_value(&by.field, value));
        let mut shown = Hit {
            score: hit.score,
            version: reply.map_or(0, |reply| reply.version),
            source: if hit.overlay { "overlay" } else { "base" },
            sort: sort.collect(),
            collapse: hit.collapse.clone(),
            ..Hit::default()
        };
        if self.explain {
            let mut parts: Map<String, Value> =
                serde_json::from_str(&document.explain_json).unwrap_or_default();
            let provenance = json!({
                "shard": shard, "node": reply.map_or("", |reply| reply.node.as_str()),
                "version": shown.version, "source": shown.source, "stage": hit.stage,
            });
            parts.insert("provenance".to_owned(), provenance);
            shown.explain = Some(Value::Object(parts));
        }
        shown.shard = shard;
        if document.filled {
            self.contents(&mut shown, document);
        } else {
            shown.summary_missing = true;
            shown.key_hash = format!("{:?}", KeyHash::from_parts(hit.key_high, hit.key_low));
        }
        shown
    }

    fn contents(&self, hit: &mut Hit, document: &v1::FetchedDocument) {
        hit.key.clone_from(&document.key);
        hit.title.clone_from(&document.title);
        hit.snippet.clone_from(&document.snippet);
        hit.snippet_text.clone_from(&document.snippet_text);
        let inside = |range: &&v1::SnippetRange| {
            document.snippet_text.get(range.start as usize..range.end as usize).is_some()
        };
        hit.snippet_ranges =
            document.ranges.iter().filter(inside).map(|range| (range.start, range.end)).collect();
        let fields: Map<String, Value> = serde_json::from_str(&document.fields_json).unwrap_or_default();
        let shown = fields.into_iter().filter(|(name, _)| self.hidden != Some(name.as_str()));
        hit.fields = shown.map(|(name, value)| (name.clone(), self.field_value(&name, value))).collect();
    }

    fn field_value(&self, name: &str, value: Value) -> Value {
        let kind = self.schema.field(name).map_or(Kind::Map, |field| field.kind);
        typed(kind, value)
    }

    fn sort_value(&self, field: &str, value: &v1::SortValue) -> Value {
        let kind = self.schema.field(field).map_or(Kind::Map, |field| field.kind);
        match &value.kind {
            Some(sort_value::Kind::Text(text)) => json!(text),
            Some(sort_value::Kind::I64(n)) => typed(kind, json!(n)),
            Some(sort_value::Kind::U64(n)) => typed(kind, json!(n)),
            Some(sort_value::Kind::F64(n)) => json!(n),
            Some(sort_value::Kind::Bool(b)) => json!(b),
            Some(sort_value::Kind::Missing(_)) | None => Value::Null,
        }
    }
}

/// A stored value as the API shows it.
fn typed(kind: Kind, value: Value) -> Value {
    match (kind, value) {
        (kind, Value::Array(items)) => items.into_iter().map(|item| typed(kind, item)).collect(),
        (Kind::I64 | Kind::U64, Value::Number(n)) => Value::String(n.to_string()),
        // Not the calendar library's instants: those end before the last day of the year 9999 does.
        (Kind::Date, Value::Number(n)) => n.as_i64().map_or(Value::Null, |us| Value::String(format_date(us))),
        (Kind::Map, Value::Object(entries)) => {
            entries.into_iter().map(|(name, value)| (name, typed(Kind::Map, value))).collect()
        }
        (Kind::Map, Value::Number(n)) if n.as_u64().is_some_and(|n| n > SAFE) => Value::String(n.to_string()),
        (Kind::Map, Value::Number(n)) if n.as_i64().is_some_and(|n| n.unsigned_abs() > SAFE) => {
            Value::String(n.to_string())
        }
        (_, value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_format::schema::Field;

    fn schema() -> Schema {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
            weight: 0,
            query: false,
            show: true,
            multi: false,
        };
        Schema {
            name: "t".into(),
            key: "url".into(),
            default_language: "en".into(),
            fields: vec![
                field("url", Kind::Keyword),
                field("id", Kind::U64),
                field("published", Kind::Date),
                field("attributes", Kind::Map),
            ],
        }
    }

    fn fill(hits: &[v1::Hit], documents: &[v1::FetchedDocument]) -> (Vec<Hit>, Fetch) {
        let reply = v1::ShardReply { version: 7, node: "leaf-1".into(), ..Default::default() };
        let page = Page {
            schema: &schema(),
            shards: &[ShardId::new("main", 3)],
            replies: &[reply],
            sort: &[v1::SortBy { field: "id".into(), descending: true }],
            hidden: Some("url"),
            explain: true,
        };
        page.fill(hits, documents)
    }

    #[test]
    fn values_keep_every_digit() {
        let fields = r#"{"url":"u","id":1000001001111123111,"published":1700000000000000,
            "attributes":{"small":7,"large":9007199254740993}}"#;
        let document = v1::FetchedDocument {
            filled: true,
            key: "https://a/".into(),
            fields_json: fields.into(),
            explain_json: r#"{"score":1.5,"parts":[]}"#.into(),
            snippet_text: "grüße".into(),
            ranges: vec![v1::SnippetRange { start: 0, end: 3 }, v1::SnippetRange { start: 0, end: 4 }],
            ..Default::default()
        };
        let value = v1::SortValue { kind: Some(sort_value::Kind::U64(u64::MAX)) };
        let hit = v1::Hit { sort: vec![value], ..Default::default() };
        let (page, fetch) = fill(&[hit], &[document]);
        assert_eq!(fetch, Fetch { wanted: 1, filled: 1 });
        let expected = json!({"id": "1000001001111123111", "published": "2023-11-14T22:13:20Z",
            "attributes": {"small": 7, "large": "9007199254740993"}});
        assert_eq!(Value::Object(page[0].fields.clone()), expected);
        assert_eq!(page[0].sort, [json!("18446744073709551615")]);
        // A range that would split a character is dropped.
        assert_eq!(page[0].snippet_ranges, [(0, 4)]);
        let explain = page[0].explain.as_ref().unwrap();
        assert_eq!(explain["score"], 1.5);
        assert_eq!(explain["provenance"]["node"], "leaf-1");
    }

    #[test]
    fn dates_of_any_year_are_shown() {
        let shown = |us: i64| typed(Kind::Date, json!(us));
        assert_eq!(shown(253_402_300_799_000_000), "9999-12-31T23:59:59Z");
        assert_eq!(shown(-62_135_596_800_000_000), "0001-01-01T00:00:00Z");
        assert_eq!(shown(1_700_000_000_000_001), "2023-11-14T22:13:20.000001Z");
    }

    #[test]
    fn a_hit_without_summary_is_marked_not_hidden() {
        let hits = [v1::Hit { key_low: 5, score: f32::NAN, ..Default::default() }, v1::Hit::default()];
        let (page, fetch) = fill(&hits, &[]);
        assert_eq!(fetch, Fetch { wanted: 2, filled: 0 });
        assert!(page[0].summary_missing && page[0].key_hash.ends_with("05"));
        let text = serde_json::to_string(&page[0]).unwrap();
        assert!(text.contains(r#""score":0.0"#) && text.contains(r#""summary_missing":true"#), "{text}");
    }
}
