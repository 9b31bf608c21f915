//! The strict form.

use canopy_proto::v1::SearchRequest;
use prost::Message;
use serde_json::json;

use crate::query::{
    Source,
    fixture::{Fixture, codes, show},
    parse,
};

#[test]
fn every_node_has_its_message() {
    let fixture = Fixture::new();
    let table = [
        (json!({"match": {"text": "the rust search"}}), "(rust search)"),
        (json!({"match": {"text": "rust book web", "min_should_match": 2}}), "(rust book web ~2)"),
        (json!({"match": {"text": "rust book", "operator": "and"}}), "(+[rust book])"),
        (json!({"match": {"text": "rust", "field": "title", "boost": 2}}), "title:rust^2"),
        (json!({"match": {"text": "!!!"}}), "NONE"),
        (json!({"term": {"value": "engines"}}), "engin"),
        (json!({"term": {"field": "host", "value": "a.example"}}), "host=a.example"),
        (json!({"term": {"field": "level", "value": -3}}), "level=-3"),
        (json!({"term": {"field": "stock", "value": "18446744073709551615"}}), "stock=18446744073709551615u"),
        (json!({"term": {"field": "open", "value": true}}), "open=true"),
        (json!({"term": {"field": "attributes.size", "value": 5}}), "attributes.size=5"),
        (json!({"term": {"field": "published", "value": "2024-03"}}), "published>=@1709251200<@1711929600"),
        (json!({"phrase": {"text": "rust book", "slop": 2, "boost": 1.5}}), "\"rust book\"~2^1.5"),
        (json!({"terms": {"field": "lang", "values": ["en", "de-AT"]}}), "lang=en|de"),
        (json!({"range": {"field": "price", "gte": 1, "lt": 2.5}}), "price>=1f<2.5f"),
        (json!({"range": {"field": "published", "gt": "2024-03-30"}}), "published>=@1711843200"),
        (json!({"range": {"field": "host", "lte": "b"}}), "host<=b"),
        (json!({"prefix": {"value": "ru"}}), "<run|rust>"),
        (json!({"prefix": {"field": "host", "value": "exam"}}), "host>=exam<exan"),
        (json!({"wildcard": {"value": "w?o", "boost": 2}}), "<who>^2"),
        (json!({"wildcard": {"field": "host", "value": "exam*"}}), "host>=exam<exan"),
        (json!({"wildcard": {"value": "zzz*"}}), "NONE"),
        (json!({"fuzzy": {"value": "serch", "distance": 1}}), "<search>^0.5"),
        (json!({"match_all": {}}), "ALL"),
        (json!({"match_none": {}}), "NONE"),
        (
            json!({"bool": {"must": [{"term": {"value": "rust"}}], "should": [{"term": {"value": "book"}}, {"match_all": {}}],
                "must_not": [{"term": {"value": "web"}}], "filter": [{"terms": {"field": "lang", "values": ["en"]}}],
                "min_should_match": 1, "boost": 3}}),
            "(+[rust^3] book^3 ALL -[web] #[lang=en] ~1)",
        ),
    ];
    for (query, message) in table {
        let parsed = fixture.json(&query.to_string()).unwrap_or_else(|e| panic!("{query}: {e}"));
        assert_eq!(show(&parsed.query), message, "{query}");
        let read = parse(Source::Value(&query), &[], 0, &fixture.context()).unwrap();
        assert_eq!(read, parsed, "{query}");
    }
}

#[test]
fn filters_narrow_a_strict_query() {
    let fixture = Fixture::new();
    let query = json!({"match": {"text": "rust book"}});
    let filters = ["lang:en".to_owned(), "-host:a.example".to_owned()];
    let parsed = parse(Source::Value(&query), &filters, 0, &fixture.context()).unwrap();
    assert_eq!(show(&parsed.query), "(+[(rust book)] -[host=a.example] #[lang=en])");
}

fn refused(table: &[(serde_json::Value, &str, &str)]) {
    let fixture = Fixture::new();
    for (query, place, words) in table {
        let failure = fixture.json(&query.to_string()).expect_err(&query.to_string());
        assert_eq!(failure.field.as_deref(), Some(*place), "{query}: {}", failure.message);
        assert!(failure.message.contains(words), "{query}: {}", failure.message);
    }
}

#[test]
fn wrong_nodes_names_and_values_are_named_by_their_place() {
    refused(&[
        (json!([]), "query", "one key"),
        (json!("rust"), "query", "one key"),
        (json!({}), "query", "one key"),
        (json!({"term": {"value": "a"}, "match": {"text": "b"}}), "query", "one key"),
        (json!({"query": {}}), "query.query", "no node \"query\""),
        (json!({"term": []}), "query.term", "must be an object"),
        (json!({"term": {}}), "query.term.value", "is missing"),
        (
            json!({"term": {"value": "a", "oops": 1}}),
            "query.term.oops",
            "no such key; there are: value, field, boost",
        ),
        (json!({"term": {"value": 5}}), "query.term.value", "must be a string"),
        (json!({"term": {"value": "two words"}}), "query.term.value", "use match or phrase"),
        (json!({"term": {"value": "a", "field": "nosuch"}}), "query.term.field", "no field \"nosuch\""),
        (json!({"term": {"value": "a", "field": "body"}}), "query.term.field", "no index of its own"),
        (json!({"term": {"value": "a", "field": "site"}}), "query.term.field", "no field \"site\""),
        (json!({"term": {"value": "a", "field": 5}}), "query.term.field", "must be a string"),
        (json!({"term": {"value": "a", "boost": 0}}), "query.term.boost", "0.001 to 1000"),
        (json!({"term": {"value": "a", "boost": "2"}}), "query.term.boost", "0.001 to 1000"),
        (json!({"term": {"field": "host", "value": "a", "boost": 2}}), "query.term.boost", "does not score"),
        (json!({"term": {"field": "host", "value": 5}}), "query.term.value", "must be a string"),
        (json!({"term": {"field": "level", "value": 1.5}}), "query.term.value", "whole number"),
        (json!({"term": {"field": "level", "value": true}}), "query.term.value", "i64"),
        (json!({"term": {"field": "open", "value": "true"}}), "query.term.value", "bool"),
        (json!({"term": {"field": "published", "value": "soon"}}), "query.term.value", "is no date"),
    ]);
}

#[test]
fn wrong_options_are_named_by_their_place() {
    refused(&[
        (json!({"match": {"text": "a", "operator": "xor"}}), "query.match.operator", "\"or\" or \"and\""),
        (
            json!({"match": {"text": "a", "min_should_match": -1}}),
            "query.match.min_should_match",
            "whole number",
        ),
        (json!({"match": {"text": "a", "field": "host"}}), "query.match.field", "is a keyword field"),
        (json!({"phrase": {"text": "a b", "slop": 65}}), "query.phrase.slop", "from 0 to 64"),
        (json!({"terms": {"field": "lang", "values": []}}), "query.terms.values", "at least one"),
        (
            json!({"terms": {"field": "lang", "values": ["en", 5]}}),
            "query.terms.values[1]",
            "must be a string",
        ),
        (json!({"terms": {"field": "title", "values": ["en"]}}), "query.terms.field", "is text"),
        (json!({"range": {"field": "price"}}), "query.range", "needs gt, gte, lt or lte"),
        (json!({"range": {"field": "price", "gt": 1, "gte": 1}}), "query.range.gte", "contradicts"),
        (json!({"range": {"field": "price", "gt": 5, "lt": 1}}), "query.range", "ends before it begins"),
        (json!({"range": {"field": "title", "gt": "a"}}), "query.range", "text field"),
        (json!({"range": {"field": "price", "gt": null}}), "query.range.gt", "f64"),
        (json!({"prefix": {"value": "*"}}), "query.prefix.value", "needs a letter"),
        (json!({"prefix": {"value": "a*"}}), "query.prefix.value", "use wildcard"),
        (
            json!({"wildcard": {"field": "host", "value": "a*b"}}),
            "query.wildcard.value",
            "one star, at its end",
        ),
        (json!({"fuzzy": {"value": "a b"}}), "query.fuzzy.value", "2 words"),
        (json!({"fuzzy": {"value": "rust", "distance": 3}}), "query.fuzzy.distance", "from 1 to 2"),
        (json!({"match_all": {"boost": 2}}), "query.match_all.boost", "there are: none"),
        (json!({"bool": {}}), "query.bool", "finds nothing"),
        (json!({"bool": {"must_not": [{"match_all": {}}]}}), "query.bool", "finds nothing"),
        (json!({"bool": {"must": {"match_all": {}}}}), "query.bool.must", "must be a list"),
        (
            json!({"bool": {"should": [{"match_all": {}}], "min_should_match": 2}}),
            "query.bool.min_should_match",
            "0 to 1",
        ),
        (
            json!({"bool": {"must": [{"match_all": {}}, {"bool": {"should": [{"term": {"feld": "a"}}]}}]}}),
            "query.bool.must[1].bool.should[0].term.feld",
            "no such key",
        ),
    ]);
}

fn nested(depth: usize) -> String {
    let (open, close) = (r#"{"bool":{"must":["#, "]}}");
    format!("{}{{\"match_all\":{{}}}}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn depth_and_size_are_bounded_before_anything_is_read() {
    let fixture = Fixture::new();
    let deepest = (1..60).take_while(|&depth| fixture.json(&nested(depth)).is_ok()).last().unwrap();
    assert_eq!(deepest, 37);
    let query = fixture.json(&nested(deepest)).unwrap().query;
    canopy_proto::validate::tree(&query).unwrap();
    // the decoder has a limit of its own
    let request = SearchRequest { query: Some(query), ..SearchRequest::default() };
    assert_eq!(SearchRequest::decode(request.encode_to_vec().as_slice()), Ok(request));
    for depth in [deepest + 1, 41, 42, 43, 1000, 5000] {
        let failure = fixture.json(&nested(depth)).unwrap_err();
        let expected = if depth < 5000 { Some(40) } else { Some(64 << 10) };
        assert_eq!(failure.limit, expected, "{depth}");
        assert!(failure.message.len() < 600);
    }
    for text in
        ["{".repeat(60_000), "[".repeat(60_000), "\"".to_owned(), "{\"bool\":".to_owned(), "\\".repeat(100)]
    {
        assert_eq!(fixture.json(&text).unwrap_err().field.as_deref(), Some("query"));
    }
    let clauses = vec![r#"{"term":{"value":"x"}}"#; 1025].join(",");
    let failure = fixture.json(&format!(r#"{{"bool":{{"should":[{clauses}]}}}}"#)).unwrap_err();
    assert_eq!(failure.limit, Some(1024));
}

#[test]
fn a_query_that_is_too_large_is_refused_not_cut() {
    let fixture = Fixture::new();
    let words: Vec<String> = (0..1100).map(|i| format!("w{i}")).collect();
    let failure = fixture.json(&json!({"match": {"text": words.join(" ")}}).to_string()).unwrap_err();
    assert_eq!((failure.field.as_deref(), failure.limit), (Some("query.match"), Some(1024)));
    let truncated =
        Fixture { max_expansions: 1, ..Fixture::new() }.json(r#"{"prefix":{"value":"s"}}"#).unwrap();
    assert_eq!(codes(&truncated.warnings), ["expansion_truncated"]);
}

proptest::proptest! {
    #[test]
    fn a_number_is_the_one_that_was_written(number in proptest::num::f64::NORMAL, digits in 0_usize..20) {
        let fixture = Fixture::new();
        for written in [format!("{number:e}"), format!("{number:.digits$e}"), format!("{number:.30e}")] {
            let exact: f64 = written.parse().unwrap();
            let json = format!("{{\"term\": {{\"field\": \"price\", \"value\": {written}}}}}");
            let strict = show(&fixture.json(&json).unwrap().query);
            proptest::prop_assert_eq!(strict, format!("price={exact}f"), "{}", written);
        }
    }
}
