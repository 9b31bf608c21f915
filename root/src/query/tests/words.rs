//! Forms, stop words and phrases in the languages of a query.

use crate::query::{
    QueryContext, Source,
    fixture::{Fixture, PAGES, codes, show},
    parse,
};

#[test]
fn stop_words_stay_when_nothing_else_remains() {
    let fixture = Fixture::new();
    let table = [
        ("the", "the"),
        ("the who", "(the who)"),
        ("to be or not to be", "(to^2 be^2 or not)"),
        ("the rust", "rust"),
        ("\"to be or not\"", "\"to be or not\""),
        ("the \"rust book\"", "\"rust book\""),
        ("+the rust", "(+[the] rust)"),
        ("the site:a.example", "(the #[host=a.example|www.a.example] ~1)"),
        ("(the) OR rust", "rust"),
        ("title:(the who)", "(title:the title:who)"),
    ];
    for (text, message) in table {
        assert_eq!(show(&fixture.text(text).query), message, "{text}");
    }
}

#[test]
fn a_stop_word_of_one_language_is_a_word_where_few_documents_have_it() {
    // "die" is a stop word in German; here it is rare, there common
    let rare = Fixture {
        languages: vec!["en".into(), "de".into()],
        ..Fixture::with(&[("hard", 4000), ("die", 40)])
    };
    assert_eq!(show(&rare.text("die hard").query), "(die hard)");
    let common = Fixture {
        languages: vec!["en".into(), "de".into()],
        ..Fixture::with(&[("hard", 4000), ("die", 400)])
    };
    assert_eq!(show(&common.text("die hard").query), "hard");
    let german = Fixture { languages: vec!["de".into()], ..Fixture::with(&[("hard", 4000), ("die", 40)]) };
    assert_eq!(show(&german.text("die hard").query), "hard");
}

#[test]
fn a_word_has_the_forms_that_the_corpus_knows() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    // "sucht" stems to "sucht" in English and "sucht" or "such" in German: only what documents have travels
    let known = |text: &str| {
        let parsed = fixture.text(text);
        parsed.statistics.terms.iter().all(|term| fixture.documents("text", &term.token).is_some())
    };
    for text in ["engines", "Häuser", "Suchmaschine", "running"] {
        assert!(known(text), "{text}: {}", show(&fixture.text(text).query));
    }
    let unknown = fixture.text("zyzzyvas");
    assert_eq!(unknown.statistics.terms.len(), 1);
    assert_eq!(unknown.statistics.terms[0].documents, 1);
}

#[test]
fn a_phrase_has_an_alternative_for_every_language_that_can_match() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    assert_eq!(show(&fixture.text("\"die Häuser\"").query), "\"die haus\"");
    assert_eq!(show(&fixture.text("\"search engines\"").query), "\"search engin\"");
    // no language knows it: the first one's form, so that documents written later are found
    let unknown = show(&fixture.text("\"wandering zyzzyvas\"").query);
    assert!(!unknown.contains('|'), "{unknown}");
}

#[test]
fn a_language_filter_adds_to_how_words_are_read() {
    let fixture = Fixture::new();
    assert_eq!(fixture.text("Häuser").languages, ["en"]);
    assert_eq!(fixture.text("lang:de Häuser").languages, ["de", "en"]);
    assert_eq!(fixture.text("lang:de-AT Häuser").languages, ["de", "en"]);
    assert_eq!(fixture.text("lang:(de fr) Häuser").languages, ["de", "fr", "en"]);
    assert_eq!(fixture.text("Häuser -lang:de").languages, ["en"]);
    assert_eq!(fixture.filtered("lang:fr Häuser", &["lang:de,en"], 0).languages, ["de", "fr", "en"]);
    assert_eq!(fixture.filtered("Häuser", &["-lang:de"], 0).languages, ["en"]);
    assert_eq!(show(&fixture.filtered("engines", &["lang:de"], 0).query), "(engin #[lang=de] ~1)");
    assert_eq!(show(&fixture.text("lang:DE-at").query), "(#[lang=de])");
}

#[test]
fn runs_without_spaces_are_words_plain_and_phrases_when_required() {
    let fixture = Fixture::in_languages(&["zh", "ja", "th"]);
    let table = [
        ("东京大学", "(东京 东 京大 京 大学 大 学)"),
        ("\"东京大学\"", "\"东京 京大 大学\""),
        ("+东京大学", "\"东京 京大 大学\""),
        ("认证 -东京大学", "(认证 认 证 -[\"东京 京大 大学\"])"),
        ("学", "学"),
        ("ค้นหาข้อมูล", "(ค้นหา ข้อมูล)"),
        ("+ค้นหาข้อมูล", "(+[ค้นหา ข้อมูล])"),
        ("认证 -ค้นหาข้อมูล", "(认证 认 证 -[\"ค้นหา ข้อมูล\"])"),
    ];
    for (text, message) in table {
        assert_eq!(show(&fixture.text(text).query), message, "{text}");
    }
}

#[test]
fn every_word_of_every_page_is_found_whatever_its_language() {
    // Arabic and Hebrew are not among the languages: their script brings them
    let fixture = Fixture::in_languages(&["en", "de", "zh", "ja", "ko", "th"]);
    for (language, title, body) in PAGES {
        let parsed = fixture.filtered(&format!("{title} {body}"), &[], 0);
        for term in &parsed.statistics.terms {
            let known = fixture.documents("text", &term.token).is_some();
            assert!(known, "{language} {}: {}", term.token, show(&parsed.query));
        }
        assert!(!parsed.statistics.terms.is_empty());
    }
}

#[test]
fn a_language_that_no_document_is_in_is_said_so() {
    let fixture = Fixture::new();
    let known = "no document is in language \"xx\"; there are: en, de, ar, he, ja, ko, th, zh";
    for parsed in [fixture.text("lang:xx rust"), fixture.filtered("rust", &["lang:xx"], 0)] {
        assert_eq!(codes(&parsed.warnings), ["unknown_language"]);
        assert_eq!(parsed.warnings[0].message, known);
    }
    let hinted = QueryContext { hint: "xx", ..fixture.context() };
    let parsed = parse(Source::Text("rust"), &[], 0, &hinted).unwrap();
    assert_eq!(parsed.warnings[0].message, known);
    assert!(fixture.text("lang:de rust").warnings.is_empty());
}
