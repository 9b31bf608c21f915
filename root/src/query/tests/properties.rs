//! For any text: no panic, linear work, a message that every validator and decoder on its way takes.

use canopy_proto::{
    v1::{Query, SearchRequest, query::Node},
    validate,
};
use proptest::{prelude::*, test_runner::TestRunner};
use prost::Message;

use crate::query::{
    MAX_TERMS, MAX_TEXT_BYTES, MAX_TREE_DEPTH, Parsed, clauses::Built, fixture::Fixture, lexer,
    warnings::Warnings,
};

/// Pieces that mean something to the reader, and some that mean trouble.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    " ", " ", " ", "\"", "(", ")", "-", "+", "*", "?", "~", "^", ":", "[", "]", "{", "}", ",", "|", "<",
    ">", "=", "!", "OR", " OR ", " AND ", " NOT ", "NOT ", "TO", " TO ", "title:", "title:(", "site:",
    "lang:", "lang:de ", "price:", "price:[1 TO 5]", "published:", "published:>now-7d ", "attributes.a:",
    "body:", "foo:", "http://", "rust", "the", "ru*", "w?o", "rust~2", "^2", "\"rust book\"", "\"a b\"~3",
    "state-of-the-art", "C++", "16\"", "--", "- ", "+(", "-(", "))", "((", "东京大学", "ค้นหา", "사람", "שלום",
    "مرحبا", "🍐", "⭐️", "👩‍👩‍👧", "e\u{301}", "\u{200d}", "\u{fe0f}", "\0", "\n", "\u{3000}", "ﬁ", "İ", "ß",
    "\u{202e}", "“", "”", "\\", "'", "’", "/", "@", "#", "%", "&", ";", ".", "…", "9999999999999999999999",
    "1e999", "-5", "\u{10ffff}", "a", "b",
];

fn check(text: &str, parsed: &Parsed) {
    let query = &parsed.query;
    validate::tree(query).unwrap_or_else(|failure| panic!("{text:?}: {failure}"));
    let built = Built::new(query.clone());
    assert!(built.depth <= MAX_TREE_DEPTH, "{text:?}");
    assert!(leaves(query) <= MAX_TERMS, "{text:?}");
    let request = SearchRequest { query: Some(query.clone()), ..SearchRequest::default() };
    assert_eq!(SearchRequest::decode(request.encode_to_vec().as_slice()).as_ref(), Ok(&request), "{text:?}");
    assert!(parsed.warnings.len() <= 48);
    assert!(parsed.warnings.iter().all(|warning| !warning.message.is_empty() && warning.message.len() < 400));
    assert!(parsed.statistics.terms.iter().all(|term| term.documents >= 1));
    finds_by_something(query, text);
}

fn leaves(query: &Query) -> usize {
    match &query.node {
        Some(Node::Bool(b)) => {
            [&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten().map(leaves).sum()
        }
        _ => 1,
    }
}

/// Every node is one that a leaf takes, none matches everything, and no group only excludes.
fn finds_by_something(query: &Query, text: &str) {
    match query.node.as_ref().unwrap_or_else(|| panic!("{text:?}: an empty node")) {
        Node::All(_) => panic!("{text:?}: matches everything"),
        Node::Bool(b) => {
            assert!(!(b.must.is_empty() && b.should.is_empty() && b.filter.is_empty()), "{text:?}");
            assert!(b.min_should_match as usize <= b.should.len(), "{text:?}");
            let children = [&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten();
            for child in children {
                finds_by_something(child, text);
            }
        }
        Node::Term(t) => {
            assert!(!t.tokens.is_empty() && t.boost > 0.0 && t.boost <= 1e6, "{text:?}");
            assert!(t.tokens.iter().all(|token| !token.is_empty()), "{text:?}");
        }
        Node::Phrase(p) => {
            assert!(!p.alternatives.is_empty() && p.slop <= 64 && p.boost > 0.0, "{text:?}");
            for form in &p.alternatives {
                assert!(form.tokens.len() > 1 && form.positions.first() == Some(&0), "{text:?}");
                assert_eq!(form.tokens.len(), form.positions.len(), "{text:?}");
            }
        }
        Node::Expanded(e) => assert!(!e.tokens.is_empty() && e.boost > 0.0, "{text:?}"),
        Node::Keyword(k) => assert!(!k.values.is_empty(), "{text:?}"),
        Node::Range(_) | Node::None(_) => {}
    }
}

/// A generator of our own: proptest's is too slow for this many.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn text(&mut self, most: usize) -> String {
        let pieces = self.roll(most);
        (0..pieces).map(|_| PIECES[self.roll(PIECES.len())]).collect()
    }
}

#[test]
fn a_hundred_thousand_texts_give_messages_that_pass() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    let mut dice = Dice(20_240_331);
    for _ in 0..100_000 {
        let text = dice.text(9);
        let wanted = dice.roll(4) as u32;
        check(&text, &fixture.filtered(&text, &[], wanted));
    }
}

#[test]
fn long_texts_of_many_kinds_give_messages_that_pass() {
    let fixture = Fixture::in_languages(&["en", "de", "fr", "zh", "ja", "th", "ru", "he"]);
    let mut dice = Dice(7);
    for _ in 0..60 {
        let mut text = dice.text(4000);
        let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        text.truncate(end);
        check(&text, &fixture.filtered(&text, &["lang:de,en", "price:[1 TO 5]"], dice.roll(9) as u32));
    }
}

fn numbered(before: &str, count: usize, after: &str) -> String {
    (0..count).fold(String::new(), |text, i| text + before + &format!("{i:x}") + after)
}

/// 8 KiB of one piece, and of nests and chains.
fn nasty() -> Vec<String> {
    let fill = |piece: &str| piece.repeat(MAX_TEXT_BYTES / piece.len());
    let mut texts: Vec<String> = PIECES.iter().map(|piece| fill(piece)).collect();
    #[rustfmt::skip]
    let more = [
        "a ", "a OR ", "a AND ", "NOT a ", "-a ", "+a ", "- ", "-*", "-(a ", "+(a -b ", "(a OR (b AND ",
        "(a (b ", "a)", "(\"", "\"(", "\"a", "\"a\" OR ", "\"a b\" OR \"c d\" ", "title:\"", "title:(",
        "title:(a ", "-title:(b ", "price:[", "price:{1 ", "price:[1 TO 2] ", "lang:(", "a* ", "*a* ",
        "a~2 ", "a^2", "(a b)^2 ", "((a b)^2 c)^2 ", "NOT NOT ", "NOT (a NOT (b ", "-(-(a b) c) ",
        "site:a ", "x:y ", "\u{301}", "a\u{301}", "~", "^^^", "东", "ก", "가", "title:a OR host:b AND ",
        "w1 w2 w3 ", "( a OR -b ) AND ", "\"a\"~9^9", "a? ", "?a?b ",
    ];
    texts.extend(more.map(fill));
    let half = |open: &str, close: &str| {
        let pairs = (MAX_TEXT_BYTES - 1) / (open.len() + close.len());
        format!("{}x{}", open.repeat(pairs), close.repeat(pairs))
    };
    texts.push(half("(", ")"));
    texts.push(half("(a ", ")"));
    texts.push(half("(a OR ", " b)"));
    texts.push(half("-(a ", " b)"));
    texts.push(half("(a AND (b OR ", "))"));
    texts.push(half("(a ", "^3)"));
    texts.push(half("+(a -(b ", ") c)"));
    texts.push(half("title:(a ", ")"));
    texts.push(numbered("", 2000, " "));
    texts.push(numbered("q", 1600, "|"));
    texts
}

#[test]
fn nasty_texts_give_messages_that_pass_and_are_read_in_linear_steps() {
    let one = Fixture::new();
    let many = Fixture::in_languages(&["en", "de", "fr", "es", "ru", "it", "nl", "pt"]);
    for text in nasty() {
        assert!(text.len() <= MAX_TEXT_BYTES);
        let lexed = lexer::lex(&text, &one.schema, &mut Warnings::default());
        let characters = text.chars().count();
        // names are looked at up to 64 characters ahead and ranges up to 256, each from its own first character
        assert!(
            lexed.steps <= 70 * characters + 300,
            "{} steps for {:?}",
            lexed.steps,
            &text[..text.len().min(20)]
        );
        assert!(lexed.tokens.len() <= characters + 1);
        check(&text, &one.filtered(&text, &["host:a"], 2));
        check(&text, &many.text(&text));
    }
}

#[test]
fn deep_nests_keep_their_words() {
    let fixture = Fixture::new();
    let depth = 1000;
    let text = format!("{}rust{}", "-(a -(b ".repeat(depth / 2), "))".repeat(depth / 2));
    let parsed = fixture.text(&format!("search {text}"));
    assert!(parsed.warnings.iter().any(|warning| warning.code == "too_deep"));
    let plain = fixture.text(&format!("{}rust{}", "(".repeat(4000), ")".repeat(4000)));
    assert_eq!((plain.query, plain.warnings.len()), (fixture.text("rust").query, 0));
}

#[test]
fn words_over_the_limit_are_left_out_with_a_warning() {
    let fixture = Fixture::new();
    let text = numbered("q", 1600, " ");
    let parsed = fixture.text(&text);
    assert_eq!(leaves(&parsed.query), MAX_TERMS);
    assert_eq!(parsed.warnings[0].code, "too_many_terms");
}

fn run<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(strategy, test).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_text_at_all_is_read() {
    let fixture = Fixture::in_languages(&["en", "zh"]);
    run(&("\\PC{0,200}", "\\PC{0,40}", 0_u32..5), |(text, filter, wanted)| {
        check(&text, &fixture.filtered(&text, &[], wanted));
        for filter in [
            filter.clone(),
            format!("price:{filter}"),
            format!("published:{filter}"),
            format!("host:{filter}"),
        ] {
            match fixture.try_filtered(&text, &[&filter], wanted) {
                Ok(parsed) => check(&text, &parsed),
                Err(failure) => prop_assert_eq!(failure.field.as_deref(), Some("filter")),
            }
        }
        Ok(())
    });
}

#[test]
fn any_json_is_read_or_refused() {
    let fixture = Fixture::new();
    run(&json_like(), |text| {
        match fixture.json(&text) {
            Ok(parsed) => prop_assert!(validate::tree(&parsed.query).is_ok()),
            Err(failure) => prop_assert!(failure.field.is_some()),
        }
        Ok(())
    });
}

/// Nodes with right and wrong keys and values.
fn json_like() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("5".to_owned()),
        Just("\"rust\"".to_owned()),
        Just("\"text\"".to_owned()),
        Just("\"price\"".to_owned()),
        Just("null".to_owned()),
        Just("[1,\"a\"]".to_owned()),
        Just("{\"match_all\":{}}".to_owned()),
        Just("{\"term\":{\"value\":\"rust\"}}".to_owned()),
        Just("{\"fuzzy\":{\"value\":\"ru\"}}".to_owned()),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let key = prop::sample::select(vec![
            "bool",
            "must",
            "should",
            "filter",
            "must_not",
            "match",
            "term",
            "text",
            "value",
            "field",
            "boost",
            "range",
            "gt",
            "lt",
            "prefix",
            "wildcard",
            "min_should_match",
            "terms",
            "values",
            "oops",
        ]);
        prop_oneof![
            (key.clone(), inner.clone()).prop_map(|(key, value)| format!("{{\"{key}\":{value}}}")),
            (key, inner.clone())
                .prop_map(|(key, value)| format!("{{\"bool\":{{\"must\":[{value}],\"{key}\":[{value}]}}}}")),
            prop::collection::vec(inner, 0..4).prop_map(|values| format!("[{}]", values.join(","))),
        ]
    })
}
