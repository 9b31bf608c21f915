//! Words that only documents newer than the version may have: they travel, and the version's own matches stay what they were.

use canopy_proto::v1::{ExpandedQuery, Query, query::Node};

use crate::query::{
    Newer, Parsed, QueryContext, Source,
    fixture::{Fixture, codes, show},
    parse,
};

fn read(fixture: &Fixture, newer: Newer, text: &str) -> Parsed {
    let context = QueryContext { newer, ..fixture.context() };
    parse(Source::Text(text), &[], 0, &context).unwrap()
}

fn patterns(query: &Query) -> Vec<ExpandedQuery> {
    match &query.node {
        Some(Node::Bool(b)) => {
            [&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten().flat_map(patterns).collect()
        }
        Some(Node::Expanded(expanded)) => vec![expanded.clone()],
        _ => Vec::new(),
    }
}

#[test]
fn a_word_that_the_version_does_not_have_travels_in_all_its_forms() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    // English stems it to "zugmaschinen", German to "zugmaschin".
    let forms = |newer, text| {
        let mut terms = read(&fixture, newer, text).statistics.terms;
        assert!(terms.iter().all(|term| term.documents == 1), "{text}: unknown is 1");
        terms.retain(|term| fixture.documents("text", &term.token).is_none());
        terms.len()
    };
    for text in ["Zugmaschinen", "\"Zugmaschinen Zugmaschinen\""] {
        assert_eq!(forms(Newer::None, text), 1, "{text}");
        assert!(forms(Newer::May, text) > 1, "{text}");
        assert_eq!(forms(Newer::Are, text), forms(Newer::May, text), "{text}");
    }
    assert!(read(&fixture, Newer::Are, "Zugmaschinen").unknown_word, "a better word may be suggested");
}

#[test]
fn forms_beside_known_ones_travel_where_a_log_is_followed() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    for newer in [Newer::None, Newer::May] {
        assert_eq!(show(&read(&fixture, newer, "Häuser").query), show(&fixture.text("Häuser").query));
    }
    let parsed = read(&fixture, Newer::Are, "Häuser");
    let plain = fixture.text("Häuser");
    assert!(parsed.statistics.terms.len() > plain.statistics.terms.len(), "{}", show(&parsed.query));
    // All forms of a word have the frequency that it had, so that scores of the version stay.
    let documents = plain.statistics.terms[0].documents;
    assert!(parsed.statistics.terms.iter().all(|term| term.documents == documents));
    assert!(!parsed.unknown_word);
}

#[test]
fn a_prefix_that_stands_for_nothing_travels_as_it_was_typed() {
    let fixture = Fixture::new();
    for text in ["xyz*", "+xyz*", "-xyz* rust", "(xyz* rust)"] {
        let parsed = read(&fixture, Newer::May, text);
        let found = patterns(&parsed.query);
        assert_eq!(found.len(), 1, "{text}: {}", show(&parsed.query));
        assert_eq!((found[0].prefix.as_str(), found[0].tokens.len()), ("xyz*", 0));
        assert_eq!(codes(&parsed.warnings), ["no_expansion"], "{text}");
        assert!(patterns(&read(&fixture, Newer::None, text).query).is_empty(), "{text}");
    }
    let strict = |newer| {
        let context = QueryContext { newer, ..fixture.context() };
        parse(Source::Json(r#"{"prefix":{"value":"xyz"}}"#), &[], 0, &context).unwrap()
    };
    assert!(patterns(&strict(Newer::None).query).is_empty());
    assert_eq!(patterns(&strict(Newer::May).query).len(), 1);
    // What stands for something carries its pattern, too; other shapes stand for words of the version only.
    assert_eq!(patterns(&read(&fixture, Newer::May, "ru*").query)[0].prefix, "ru*");
    for text in ["x?z", "*xyz", "xyzzz~"] {
        assert!(patterns(&read(&fixture, Newer::Are, text).query).is_empty(), "{text}");
    }
}

#[test]
fn patterns_of_newer_words_are_bounded() {
    let fixture = Fixture::new();
    let text: Vec<String> = (0..200).map(|at| format!("xyz{at}*")).collect();
    let parsed = read(&fixture, Newer::Are, &text.join(" "));
    assert!(patterns(&parsed.query).len() < crate::query::MAX_PATTERNS);
    assert!(canopy_proto::validate::tree(&parsed.query).is_ok());
}
