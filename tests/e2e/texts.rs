//! Whatever is pasted into a search box is answered: quotes, brackets, dashes, stop words, any script, emoji. Each was
//! an error, a crash or an empty page somewhere.

use std::time::Duration;

use canopy_tests::api::Answered;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    cases,
    world::{World, with_world},
};

async fn ask(world: &World, q: &str) -> Answered {
    let answered = world
        .flat
        .root()
        .search("cases", &[("q", q), ("k", "100"), ("timeout_ms", "60000"), ("total", "exact")])
        .await;
    assert_eq!(answered.status, 200, "{q:?}: {}", answered.json);
    answered.adds_up();
    answered
}

fn finds(answered: &Answered, name: &str) -> bool {
    answered.keys().contains(&cases::key(name).as_str())
}

#[test]
fn odd_texts_are_answered_and_never_match_everything() {
    with_world(|world| async {
        let odd = [
            "- *",
            "*",
            "**",
            "?",
            "\"",
            "\"\"",
            "()",
            ")(",
            "(((((",
            "NOT",
            "AND OR NOT",
            "-",
            "+",
            "--",
            "+-",
            "~",
            "^",
            ":",
            "title:",
            "title:*",
            ":x",
            "[",
            "]",
            "[a TO",
            "[* TO *]",
            "published:[",
            "a:b:c",
            "\\",
            "\\\"",
            "{",
            "}",
            "!!!",
            "&&",
            "||",
            "/",
            "//",
            "%",
            "\u{0}",
            "\u{feff}",
            "\u{202e}",
            "\u{200d}",
            "…",
            "¿?",
            "NOT NOT NOT",
            "()()()",
            "\"a",
            "a\"",
            "^5",
            "a^",
            "~2",
            "-(-(-a))",
            "OR",
            "OR OR",
            "AND",
            "*:*",
            "_key:a",
            "text:",
            "site:",
            "lang:",
            "lang:xx",
            "-lang:en",
            "attributes.:1",
            "<script>",
            "';--",
        ];
        world.flat.root().search("cases", &[("q", "")]).await.refused(400, "INVALID_ARGUMENT", "q");
        let blank = ask(world, " \t ").await;
        assert_eq!((&blank.json["total"]["value"], blank.warnings()), (&json!(0), vec!["empty_query"]));
        for text in odd {
            let answered = ask(world, text).await;
            let total = answered.json["total"]["value"].as_u64().unwrap_or(u64::MAX);
            assert!(total < world.cases.documents, "{text:?} found {total}");
            if total == 0 {
                let why = answered.warnings();
                assert!(
                    !why.is_empty() || text.chars().any(char::is_alphanumeric),
                    "{text:?} finds nothing and says nothing"
                );
            }
        }
    });
}

#[test]
fn quotes_that_are_no_phrase_are_words() {
    with_world(|world| async {
        let inch = ask(world, "MacBook Pro 16\" M3").await;
        assert!(finds(&inch, "laptop"));
        assert_eq!(inch.warnings(), ["unbalanced_quote"]);
        let open = ask(world, "\"unclosed wallaby").await;
        assert!(finds(&open, "no-title"));
        assert_eq!(open.warnings(), ["unbalanced_quote"]);
        let log = ask(world, "{\"level\":\"error\",\"message\":\"wallaby: not found\"}").await;
        assert!(finds(&log, "no-title"));
        let phrase = ask(world, "\"be or not\"").await;
        assert_eq!(phrase.keys(), [cases::key("hamlet")]);
    });
}

#[test]
fn nesting_and_long_chains_are_bounded() {
    with_world(|world| async {
        let root = world.flat.root();
        let texts = [
            "(".repeat(8000),
            format!("{}wallaby{}", "(".repeat(4000), ")".repeat(4000)),
            "NOT ".repeat(2000),
            "a OR ".repeat(1600),
            "-(".repeat(4000),
            "\"".repeat(8000),
            "*a* ".repeat(2000),
        ];
        for text in texts {
            let began = Instant::now();
            let answered = root.search_json("cases", &json!({ "q": text, "timeout_ms": 60000 })).await;
            assert_eq!(answered.status, 200, "{:.40}: {}", text, answered.json);
            assert!(began.elapsed() < Duration::from_secs(50), "{:.40} took {:?}", text, began.elapsed());
        }
        // Beyond the limit on length: refused at once.
        let deep = root.search_json("cases", &json!({ "q": "(".repeat(30_000) })).await;
        deep.refused(400, "INVALID_ARGUMENT", "q");
        let body = root.post("/v1/cases/search", format!("{{\"q\":\"{}\"}}", "(".repeat(100_000))).await;
        body.refused(413, "INVALID_ARGUMENT", "body");
        let mut strict = json!({ "match_all": {} });
        for _ in 0..40 {
            strict = json!({ "bool": { "must": [strict] } });
        }
        let answered = root.search_json("cases", &json!({ "query_json": strict })).await;
        assert_eq!(answered.status, 400, "{}", answered.json);
        let nested = format!("{}{}", "{\"bool\":{\"must\":[".repeat(1500), "]}}".repeat(1500));
        let answered = root.search_json("cases", &json!({ "query_json": nested })).await;
        assert_eq!(answered.status, 400, "{}", answered.json);
        root.search("cases", &[("q", "wallaby"), ("timeout_ms", "60000")]).await.ok();
    });
}

#[test]
fn stop_words_alone_are_words() {
    with_world(|world| async {
        let who = ask(world, "the who").await;
        assert_eq!(who.keys().first(), Some(&cases::key("who").as_str()), "{:?}", who.keys());
        assert_eq!(ask(world, "\"The Who\"").await.keys(), [cases::key("who")]);
        let hamlet = ask(world, "to be or not to be").await;
        assert_eq!(hamlet.keys().first(), Some(&cases::key("hamlet").as_str()), "{:?}", hamlet.keys());
        let the = ask(world, "the").await;
        let total = the.json["total"]["value"].as_u64().unwrap_or(0);
        assert!(total > 0 && total < world.cases.documents, "{total}");
        // With another word they are dropped.
        assert_eq!(ask(world, "the quokka").await.keys(), [cases::key("marker")]);
    });
}

#[test]
fn every_script_is_found_and_emoji_are_words() {
    with_world(|world| async {
        let table = [
            ("认证", "zh"),
            ("日本", "ja"),
            ("日本", "zh"),
            ("사람", "ko"),
            ("แม่น้ำ", "th"),
            ("หมู่บ้าน", "th"),
            ("שלום", "he"),
            ("مرحبا", "ar"),
            ("🍐", "pear"),
            ("⭐️", "star"),
            ("⭐", "star"),
            ("👩‍👩‍👧", "family"),
            ("café", "decomposed"),
            ("cafe", "decomposed"),
            ("CAFÉ", "decomposed"),
            ("brûlée", "decomposed"),
            ("wombat", "nul"),
        ];
        for (text, name) in table {
            let answered = ask(world, text).await;
            assert!(
                finds(&answered, name),
                "{text} does not find {name}: {:?} {}",
                answered.keys(),
                answered.json["warnings"]
            );
            assert!(answered.keys().len() < 5, "{text} finds {:?}", answered.keys());
        }
    });
}

#[test]
fn patterns_find_what_has_their_shape_and_long_ones_do_no_harm() {
    with_world(|world| async {
        assert!(finds(&ask(world, "quok*").await, "marker"));
        assert!(finds(&ask(world, "zanz?bar").await, "entities"));
        assert!(finds(&ask(world, "qoukka~").await, "marker"));
        // The match phase and the snippets read the same terms: a pattern can't pass one and fail the other.
        for text in [format!("{}*", "w".repeat(2000)), "*a*".to_owned(), "w*".to_owned()] {
            let answered = ask(world, &text).await;
            assert_eq!(
                answered.json["coverage"]["fetch"]["wanted"], answered.json["coverage"]["fetch"]["filled"],
                "{text:.10}"
            );
        }
    });
}
