//! Tests of `answer`: what its module comment promises.

use serde_json::{Value, json};

use super::*;
use crate::answer::coverage::{Fetch, Report};
use canopy_common::coverage::Coverage;
use canopy_proto::v1;

fn answer() -> Answer {
    Answer {
        query_id: "ab".repeat(16),
        took_ms: 12.4,
        deadline_ms: 350,
        hits: vec![Hit { key: "https://a/".into(), score: 7.21, source: "base", ..Hit::default() }],
        total: Total { value: 1, relation: "eq", lower_bound: false },
        facets: BTreeMap::from([("lang".to_owned(), Facet { values: Vec::new(), lower_bound: true })]),
        next_cursor: None,
        warnings: vec![Warning {
            code: "unbalanced_quote".into(),
            message: "a quote has no end".into(),
            query: String::new(),
        }],
        coverage: Report::of(&Coverage::default(), Fetch::default(), false, "all"),
        degraded: vec!["partial"],
        version: Versions { wanted: 7, min: 7, max: 7 },
        offset: Lag::default(),
        tail: Tail::default(),
        trace: None,
    }
}

#[test]
fn json_has_the_names_of_the_contract_and_no_stray_ones() {
    let value: Value = serde_json::from_slice(&answer().to_json()).unwrap();
    assert_eq!(value["took_ms"], 12.4);
    assert_eq!(value["next_cursor"], Value::Null);
    assert_eq!(value["warnings"], json!([{"code": "unbalanced_quote", "message": "a quote has no end"}]));
    assert_eq!(value["facets"], json!({"lang": {"values": [], "lower_bound": true}}));
    assert_eq!(value["offset"], json!({"min_lag_ms": 0, "max_lag_ms": 0}));
    let hit = value["hits"][0].as_object().unwrap();
    for absent in ["summary_missing", "key_hash", "sort", "collapse", "explain"] {
        assert!(!hit.contains_key(absent), "{absent}");
    }
    // The score reads back to the bit.
    assert_eq!(hit["score"].to_string().parse::<f32>().unwrap().to_bits(), 7.21_f32.to_bits());
    assert!(value.get("trace").is_none());
}

#[test]
fn scores_are_always_numbers() {
    for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let text = serde_json::to_string(&Hit { score, ..Hit::default() }).unwrap();
        assert!(text.contains("\"score\":0.0"), "{text}");
    }
}

#[test]
fn the_message_says_the_same_as_the_json() {
    let answer = answer();
    let value: Value = serde_json::from_slice(&answer.to_json()).unwrap();
    let message = v1::QueryAnswer::from(answer);
    assert_eq!(message.query_id, value["query_id"].as_str().unwrap());
    assert_eq!(message.degraded, ["partial"]);
    assert_eq!(message.hits[0].score, 7.21);
    assert!(message.next_cursor.is_empty() && message.trace_json.is_empty());
    let coverage = message.coverage.unwrap();
    assert!(!coverage.complete);
    assert_eq!(coverage.decision, "all");
}
