//! Documents as they come: without title, body or date, with markup, with a token of a megabyte, with numbers that
//! JSON readers round. Each stays, is found by what it has, and harms nobody else.

use canopy_tests::api::Answered;
use serde_json::{Value, json};

use crate::{
    cases,
    world::{World, with_world},
};

async fn ask(world: &World, parameters: &[(&str, &str)]) -> Answered {
    let mut asked = vec![("k", "100"), ("timeout_ms", "60000")];
    asked.extend(parameters);
    world.flat.root().search("cases", &asked).await.ok()
}

fn hit<'a>(answered: &'a Answered, name: &str) -> &'a Value {
    let key = cases::key(name);
    answered
        .hits()
        .find(|hit| hit["key"] == key)
        .unwrap_or_else(|| panic!("{name} is not among {:?}", answered.keys()))
}

#[test]
fn every_record_became_a_document() {
    with_world(|world| async {
        assert_eq!(world.cases.documents, cases::records().len() as u64);
        assert_eq!(world.cases.counts.rejected, 0, "{:?}", world.cases.rejects);
        assert_eq!(world.cases.counts.long_tokens, 1);
        assert_eq!(world.cases.counts.dropped_fields, 0);
    });
}

#[test]
fn snippets_are_escaped_and_only_our_markers_live() {
    with_world(|world| async {
        let answered = ask(world, &[("q", "xuxu")]).await;
        let found = hit(&answered, "script");
        let html = found["snippet"].as_str().unwrap_or_default();
        assert_eq!(html, "&lt;script&gt;alert(1)&lt;/script&gt; <b>xuxu</b> &lt;b&gt; then text");
        assert_eq!(found["title"], "<b>Bold</b> & co", "a title is plain text");
        let text = found["snippet_text"].as_str().unwrap_or_default();
        let ranges: Vec<&str> = found["snippet_ranges"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|range| text.get(range[0].as_u64()? as usize..range[1].as_u64()? as usize))
            .collect();
        assert_eq!(ranges, ["xuxu"]);
        // A document that holds our marker can't fake one.
        let answered = ask(world, &[("q", "quokka")]).await;
        let html = hit(&answered, "marker")["snippet"].as_str().unwrap_or_default().to_owned();
        assert_eq!(html.matches("<b>").count(), 1, "{html}");
        assert!(html.contains("<b>quokka</b>") && html.contains("&lt;/b&gt;"), "{html}");
    });
}

#[test]
fn markup_and_entities_are_not_highlighted_inside() {
    with_world(|world| async {
        for word in ["href", "amp"] {
            let answered = ask(world, &[("q", &format!("{word} OR zanzibar"))]).await;
            let html = hit(&answered, "entities")["snippet"].as_str().unwrap_or_default().to_owned();
            assert!(!html.contains(&format!("<b>{word}</b>")), "{word}: {html}");
            assert!(html.contains("&amp;amp;"), "{html}");
        }
        // Escaped with nothing to highlight, too.
        let asked = [("filter", "url:\"https://cases.example/script\"")];
        let answered = ask(world, &asked).await;
        let html = hit(&answered, "script")["snippet"].as_str().unwrap_or_default().to_owned();
        assert!(html.starts_with("&lt;script&gt;") && !html.contains('<'), "{html}");
    });
}

#[test]
fn an_over_long_token_is_dropped_and_its_neighbours_are_found() {
    with_world(|world| async {
        for word in ["before", "after", "numbat", "\"after numbat\""] {
            let answered = ask(world, &[("q", word)]).await;
            hit(&answered, "long-token");
        }
        assert_eq!(ask(world, &[("q", "\"before after\"")]).await.keys(), [""; 0]);
    });
}

#[test]
fn missing_fields_are_no_fault() {
    with_world(|world| async {
        let wallabies = ["no-title", "null-date", "empty-body", "blank-body", "only-anchors"];
        let answered = ask(world, &[("q", "wallaby"), ("total", "exact")]).await;
        assert_eq!(answered.json["total"]["value"], wallabies.len() as u64);
        for name in wallabies {
            let found = hit(&answered, name);
            let text = found["snippet"].as_str().expect("a string");
            assert_eq!(text.is_empty(), name != "no-title", "{name}: {text:?}");
            assert!(found["score"].as_f64().is_some_and(|score| score > 0.0), "{found}");
        }
        for (sort, first, second) in
            [("published", "empty-body", "blank-body"), ("-published", "blank-body", "empty-body")]
        {
            let answered = ask(world, &[("q", "wallaby"), ("sort", sort)]).await;
            assert_eq!(answered.keys()[..2], [cases::key(first), cases::key(second)], "{sort}");
            let sorted: Vec<bool> = answered.hits().map(|hit| hit["sort"][0].is_null()).collect();
            assert_eq!(sorted, [false, false, true, true, true], "{sort}");
        }
        assert_eq!(
            ask(world, &[("q", "wallaby"), ("sort", "attributes.nosuch")]).await.keys().len(),
            wallabies.len()
        );
        assert_eq!(
            ask(world, &[("q", "wallaby"), ("facets", "attributes.nosuch")]).await.json["facets"]["attributes.nosuch"]
                ["values"],
            json!([])
        );
    });
}

#[test]
fn a_query_that_only_filters_scores_zero_everywhere() {
    with_world(|world| async {
        let answered = ask(world, &[("filter", "lang:en")]).await;
        assert!(answered.hits().count() > 10);
        assert!(answered.hits().all(|hit| hit["score"] == 0.0), "{}", answered.json);
        let body = String::from_utf8_lossy(&answered.body).into_owned();
        assert!(!body.contains("NaN") && !body.contains("Infinity"));
        // Sorted by score as by key.
        let again = ask(world, &[("filter", "lang:en"), ("sort", "_score")]).await;
        assert_eq!(again.keys(), answered.keys());
    });
}

#[test]
fn numbers_beyond_53_bits_keep_every_digit() {
    with_world(|world| async {
        for (name, number) in
            [("large-number", "1000001001111123111"), ("next-number", "1000001001111123112")]
        {
            let filter = format!("attributes.id:{number}");
            let answered = ask(world, &[("filter", &filter)]).await;
            assert_eq!(answered.keys(), [cases::key(name)], "{filter}");
            assert_eq!(hit(&answered, name)["fields"]["attributes"]["id"], number);
        }
    });
}
