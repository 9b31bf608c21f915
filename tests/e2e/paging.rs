//! Pages: a walk by cursor sees every document once and in one order, whichever replica answers and whatever ties.

use std::collections::BTreeSet;

use canopy_common::ids::KeyHash;
use canopy_format::schema::Schema;
use canopy_tests::{
    api::{Answered, Api},
    cluster::{Cluster, Shape},
    corpus::Page,
    faulty_net::Link,
    publish::Shelf,
};
use serde_json::json;

use crate::world::{self, corpus_of, with_world};

/// Walks to the end; `between` runs before each page. The keys in order.
async fn walk(
    api: &Api,
    corpus: &str,
    parameters: &[(&str, &str)],
    mut between: impl FnMut(usize),
) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), None::<String>);
    for page in 0.. {
        between(page);
        let mut asked = vec![("timeout_ms", "60000"), ("completion", "all"), ("snippet", "false")];
        asked.extend(parameters);
        asked.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let answered = api.search(corpus, &asked).await.ok();
        answered.adds_up();
        assert_eq!(answered.json["coverage"]["complete"], true, "{}", answered.json["coverage"]);
        keys.extend(answered.keys().into_iter().map(str::to_owned));
        cursor = answered.next_cursor().map(str::to_owned);
        if cursor.is_none() {
            return keys;
        }
        assert!(!answered.keys().is_empty(), "an empty page that is not the last");
    }
    unreachable!("a walk ends")
}

#[test]
fn a_walk_over_a_whole_corpus_sees_every_document_once() {
    with_world(|world| async {
        let all: BTreeSet<String> = world.pages.iter().map(|page| page.key.clone()).collect();
        let every = ("query_json", r#"{"match_all":{}}"#);
        for (k, sort) in
            [("100", ""), ("250", "-published"), ("333", "attributes.size,lang"), ("1000", "host")]
        {
            for tree in [&world.flat, &world.deep] {
                let keys = walk(tree.root(), &corpus_of(8), &[every, ("k", k), ("sort", sort)], |_| ()).await;
                assert_eq!(keys.len(), all.len(), "k={k} sort={sort}");
                assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), all, "k={k} sort={sort}");
            }
        }
        // Nothing but ties: the order is that of the key hash.
        let keys = walk(world.flat.root(), &corpus_of(8), &[every, ("k", "1000")], |_| ()).await;
        let mut sorted = keys.clone();
        sorted.sort_by_key(|key| KeyHash::of(key));
        assert_eq!(keys, sorted);
    });
}

#[test]
fn pages_by_cursor_are_the_pages_by_offset() {
    with_world(|world| async {
        let table = [
            [("q", "the river"), ("sort", "")],
            [("q", "garden"), ("sort", "-published,host")],
            [("q", "water OR Wasser"), ("sort", "topic")],
        ];
        for query in table {
            for collapse in ["", "host"] {
                let mut asked = query.to_vec();
                asked.extend([
                    ("collapse", collapse),
                    ("k", "7"),
                    ("timeout_ms", "60000"),
                    ("snippet", "false"),
                ]);
                let (mut cursor, mut offset) = (None::<String>, 0);
                let mut seen = BTreeSet::new();
                for _ in 0..8 {
                    let (by_offset, by_cursor) = (offset.to_string(), cursor.clone().unwrap_or_default());
                    let page = |name, value| [asked.clone(), vec![(name, value)]].concat();
                    let first =
                        world.flat.root().search(&corpus_of(8), &page("offset", &by_offset)).await.ok();
                    let second =
                        world.deep.root().search(&corpus_of(2), &page("cursor", &by_cursor)).await.ok();
                    assert_eq!(first.places(), second.places(), "{asked:?} at {offset}");
                    let fresh = first.keys().into_iter().all(|key| seen.insert(key.to_owned()));
                    assert!(fresh, "{asked:?} at {offset}: a document twice");
                    offset += 7;
                    cursor = second.next_cursor().map(str::to_owned);
                    if cursor.is_none() {
                        break;
                    }
                }
                assert!(seen.len() > 7, "{asked:?}: {}", seen.len());
            }
        }
    });
}

#[test]
fn a_cursor_belongs_to_its_query_and_corpus() {
    with_world(|world| async {
        let root = world.flat.root();
        let asked = [("q", "the river"), ("k", "5"), ("timeout_ms", "60000")];
        let first = root.search(&corpus_of(8), &asked).await.ok();
        let cursor = first.next_cursor().expect("a next page").to_owned();
        let with = |parameters: &[(&'static str, &'static str)]| {
            let mut asked = parameters.to_vec();
            asked.push(("timeout_ms", "60000"));
            asked
        };
        let send = async |corpus: u32, parameters: &[(&'static str, &'static str)]| -> Answered {
            let mut asked = with(parameters);
            asked.push(("cursor", cursor.as_str()));
            root.search(&corpus_of(corpus), &asked).await
        };
        // Another page size or other facets are the same query.
        send(8, &[("q", "the river"), ("k", "9"), ("facets", "host")]).await.ok();
        let message = send(8, &[("q", "the garden")]).await.refused(400, "INVALID_ARGUMENT", "cursor");
        assert!(message.contains("another query"), "{message}");
        send(8, &[("q", "the river"), ("sort", "host")]).await.refused(400, "INVALID_ARGUMENT", "cursor");
        send(8, &[("q", "the river"), ("filter", "lang:en")]).await.refused(
            400,
            "INVALID_ARGUMENT",
            "cursor",
        );
        let message = send(2, &[("q", "the river")]).await.refused(400, "INVALID_ARGUMENT", "cursor");
        assert!(message.contains("another corpus"), "{message}");
        let mut damaged = cursor.clone();
        damaged.replace_range(10..11, if &cursor[10..11] == "A" { "B" } else { "A" });
        let asked = [("q", "the river"), ("cursor", damaged.as_str())];
        root.search(&corpus_of(8), &asked).await.refused(400, "INVALID_ARGUMENT", "cursor");
    });
}

/// A thousand documents with one text, in four shards, each on two leaves.
async fn ties() -> (Shelf, Cluster) {
    let shelf = Shelf::new();
    let page = |n: usize| Page {
        host: Some("one.example".into()),
        ..Page::plain(&format!("https://one.example/{n}"), "same", "words everywhere")
    };
    let pages: Vec<Page> = (0..1000).map(page).collect();
    shelf.publish("ties", &Schema::web(), 4, &pages).await;
    let cluster = Cluster::start(&shelf.store, &Shape::flat(2, 2).config(&[("ties", 4)])).await;
    (shelf, cluster)
}

#[test]
fn ties_are_walked_once_while_replicas_alternate() {
    world::run(async {
        let (_shelf, cluster) = ties().await;
        for sort in ["", "host", "-published"] {
            // Not with every page: connections that are refused all the time, to half of all nodes, are more than the fuse
            // of free retries allows.
            let alternate = |page: usize| {
                if !page.is_multiple_of(20) {
                    return;
                }
                let (lost, back) =
                    if page.is_multiple_of(40) { ("leaf-0", "leaf-1") } else { ("leaf-1", "leaf-0") };
                cluster.link(back, Link::Open);
                cluster.link(lost, Link::Cut);
            };
            let asked = [("q", "words"), ("k", "10"), ("sort", sort)];
            let keys = walk(cluster.root(), "ties", &asked, alternate).await;
            let distinct: BTreeSet<&String> = keys.iter().collect();
            assert_eq!((keys.len(), distinct.len()), (1000, 1000), "sort={sort}");
        }
        cluster.stop().await;
    });
}

#[test]
fn a_cursor_outlives_the_leaf_that_gave_it() {
    world::run(async {
        let (_shelf, cluster) = ties().await;
        let asked = [("q", "words"), ("k", "10"), ("timeout_ms", "60000")];
        let first = cluster.root().search("ties", &asked).await.ok();
        let second = |cursor: &str| {
            let cursor = cursor.to_owned();
            let root = cluster.root();
            async move {
                root.search(
                    "ties",
                    &[("q", "words"), ("k", "10"), ("timeout_ms", "60000"), ("cursor", &cursor)],
                )
                .await
            }
        };
        let cursor = first.next_cursor().expect("a next page").to_owned();
        let before = second(&cursor).await.ok();
        for (dead, alive) in [("leaf-0", "leaf-1"), ("leaf-1", "leaf-0")] {
            cluster.link(alive, Link::Open);
            cluster.link(dead, Link::Cut);
            let after = second(&cursor).await.ok();
            assert_eq!(after.places(), before.places(), "without {dead}");
            assert_eq!(after.degraded(), [""; 0]);
            assert_eq!(after.json["coverage"]["fetch"], json!({ "wanted": 10, "filled": 10 }));
        }
        cluster.stop().await;
    });
}
