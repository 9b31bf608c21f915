//! What people paste: marks, addresses, logs, code. Never an error, and the words are found.

use crate::query::{
    MAX_TEXT_BYTES,
    fixture::{Fixture, codes, show},
};

#[test]
fn marks_inside_words_are_part_of_them() {
    let table: &[(&str, &str, &[&str])] = &[
        ("MacBook Pro 16\" M3", "(macbook pro 16 m3)", &["unbalanced_quote"]),
        ("16\" x 20\" frame", "(16 x 20 frame)", &["unbalanced_quote"]),
        ("\"unclosed rust", "(unclos rust)", &["unbalanced_quote"]),
        ("rust \"", "rust", &["unbalanced_quote"]),
        ("\"rust book\" 16\"", "(+[\"rust book\"] 16)", &["unbalanced_quote"]),
        ("東京\"大学\"", "(+[大学] 東京 東 京)", &[]),
        ("C++ rust", "(c++ rust)", &[]),
        ("git --help ++i -", "(git help)", &[]),
        ("rust - search – web", "(rust search web)", &[]),
        ("state-of-the-art", "(state art)", &[]),
        ("+state-of-the-art", "\"state of the art\"", &[]),
        ("search -state-of-the-art", "(search -[\"state of the art\"])", &[]),
        ("a) rust", "rust", &["unbalanced_parenthesis"]),
        ("((rust :)", "rust", &["unbalanced_parenthesis"]),
        ("f(rust) search(web)", "(f rust search web)", &[]),
        ("rust,search;web", "(rust search web)", &[]),
    ];
    let fixture = Fixture::new();
    for (text, message, warnings) in table {
        let parsed = fixture.text(text);
        assert_eq!(
            (show(&parsed.query).as_str(), codes(&parsed.warnings).as_slice()),
            (*message, *warnings),
            "{text}"
        );
    }
}

#[test]
fn addresses_logs_and_code_are_words() {
    let table = [
        "http://a.example/c:80",
        "https://user:pw@example.org:8443/x?y=z&q=1#frag",
        "12:30:59 WARN C:\\temp\\rust.log std::vector<int> re: rust",
        "{\"level\":\"error\",\"msg\":\"connection refused\"} rust",
        "foo=\"a b\" [\"x y\"] {\"k\": [1, 2]}",
        "SELECT * FROM rust WHERE a <> b;",
        "rust/search/../web",
        "rust@example.org",
    ];
    let fixture = Fixture::new();
    for text in table {
        let parsed = fixture.text(text);
        let shown = show(&parsed.query);
        assert!(!shown.contains(['+', '-', '#', '"', '<']), "{text}: {shown}");
        assert!(!codes(&parsed.warnings).contains(&"unknown_field"), "{text}");
    }
}

#[test]
fn every_script_is_found_and_never_everything() {
    let fixture = Fixture::in_languages(&["en", "de", "zh", "ja", "th"]);
    for text in ["认证", "日本", "사람", "🍐", "⭐️", "⭐", "👩‍👩‍👧", "שלום", "مرحبا", "ค้นหา", "Häuser", "HAUSER"]
    {
        let parsed = fixture.text(text);
        let known =
            parsed.statistics.terms.iter().any(|term| fixture.documents("text", &term.token).is_some());
        assert!(known, "{text}: {}", show(&parsed.query));
    }
}

#[test]
fn only_a_text_that_is_too_long_is_refused() {
    let fixture = Fixture::new();
    assert!(fixture.try_filtered(&"a".repeat(MAX_TEXT_BYTES), &[], 0).is_ok());
    let failure = fixture.try_filtered(&"a".repeat(MAX_TEXT_BYTES + 1), &[], 0).unwrap_err();
    assert_eq!((failure.field.as_deref(), failure.limit), (Some("q"), Some(8192)));
}
