//! Totals, facets and collapse over all shards: what is counted is what is there, and what is clicked is what was shown.

use std::collections::BTreeSet;

use canopy_tests::corpus::Page;
use serde_json::Value;

use crate::world::{corpus_of, with_world};

/// Words that are no stop word in any language: a `lang:` filter also says in which language the words are read.
const TEXT: &str = "garden river Wasser Suche поиск question";

fn values(facet: &Value) -> Vec<(String, u64)> {
    let values = facet["values"].as_array().into_iter().flatten();
    values
        .map(|value| {
            (value["value"].as_str().unwrap_or_default().to_owned(), value["count"].as_u64().unwrap_or(0))
        })
        .collect()
}

fn quoted(value: &str) -> String {
    format!("\"{value}\"")
}

#[test]
fn the_count_of_a_facet_is_the_count_of_its_filter() {
    with_world(|world| async {
        let (root, corpus) = (world.deep.root(), corpus_of(8));
        let facets = "host:1000:exact,lang:exact,topic:exact,attributes.color:exact,attributes.stock,attributes.price:100:exact";
        let asked = [("q", TEXT), ("k", "0"), ("facets", facets), ("timeout_ms", "60000")];
        let answered = root.search(&corpus, &asked).await.ok();
        let mut clicked = 0;
        for (field, facet) in answered.json["facets"].as_object().expect("facets") {
            assert_eq!(facet["lower_bound"], false, "{field}");
            let values = values(facet);
            assert!(values.len() > 1, "{field}: {values:?}");
            for (value, count) in values {
                let filter = format!("{field}:{}", quoted(&value));
                let asked = [
                    ("q", TEXT),
                    ("filter", &filter),
                    ("k", "0"),
                    ("total", "exact"),
                    ("timeout_ms", "60000"),
                ];
                let filtered = root.search(&corpus, &asked).await.ok();
                assert_eq!(filtered.json["total"]["value"], count, "{filter}");
                clicked += 1;
            }
        }
        assert!(clicked > 60, "{clicked}");
    });
}

#[test]
fn facets_of_everything_are_those_of_the_pages() {
    with_world(|world| async {
        let asked = [
            ("query_json", r#"{"match_all":{}}"#),
            ("k", "0"),
            ("facets", "host:3,topic:50"),
            ("timeout_ms", "60000"),
        ];
        let answered = world.flat.root().search(&corpus_of(8), &asked).await.ok();
        let count = |of: &dyn Fn(&Page) -> Vec<String>, value: &str| {
            world.pages.iter().filter(|page| of(page).iter().any(|own| own == value)).count() as u64
        };
        for (field, of, most) in [
            (
                "host",
                &(|page: &Page| page.host.iter().cloned().collect()) as &dyn Fn(&Page) -> Vec<String>,
                3,
            ),
            ("topic", &|page: &Page| page.topics.clone(), 50),
        ] {
            let shown = values(&answered.json["facets"][field]);
            assert!(shown.len() <= most && shown.len() >= 3, "{field}: {shown:?}");
            for (value, counted) in &shown {
                assert_eq!(*counted, count(of, value), "{field}: {value}");
            }
            assert!(shown.is_sorted_by(|a, b| a.1 >= b.1), "{shown:?}");
        }
    });
}

#[test]
fn collapse_is_global() {
    with_world(|world| async {
        let hosts: BTreeSet<&str> = world.pages.iter().filter_map(|page| page.host.as_deref()).collect();
        for (tree, shards) in [(&world.flat, 1), (&world.flat, 8), (&world.deep, 8)] {
            let asked = [
                ("query_json", r#"{"match_all":{}}"#),
                ("k", "1000"),
                ("collapse", "host"),
                ("fields", "host"),
                ("timeout_ms", "60000"),
            ];
            let answered = tree.root().search(&corpus_of(shards), &asked).await.ok();
            let shown: Vec<&str> =
                answered.hits().map(|hit| hit["fields"]["host"].as_str().unwrap_or_default()).collect();
            assert_eq!(shown.len(), hosts.len(), "{shards} shards");
            assert_eq!(shown.iter().copied().collect::<BTreeSet<_>>(), hosts);
            for hit in answered.hits() {
                assert_eq!(hit["collapse"], hit["fields"]["host"]);
            }
        }
    });
}

#[test]
fn totals_say_what_they_are() {
    with_world(|world| async {
        let all = world.oracle.documents();
        let total = async |mode: &str, k: &str| {
            let asked =
                [("query_json", r#"{"match_all":{}}"#), ("total", mode), ("k", k), ("timeout_ms", "60000")];
            world.flat.root().search(&corpus_of(8), &asked).await.ok().json["total"].clone()
        };
        let exact = total("exact", "10").await;
        assert_eq!((&exact["value"], &exact["relation"]), (&all.into(), &"eq".into()));
        let none = total("none", "10").await;
        assert_eq!((&none["value"], &none["relation"]), (&10.into(), &"gte".into()));
        let bounded = total("bounded", "0").await;
        if all > 1000 {
            assert_eq!((&bounded["value"], &bounded["relation"]), (&1000.into(), &"gte".into()));
        }
    });
}
