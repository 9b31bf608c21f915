//! Prefixes, wildcards and fuzzy words find exactly the documents with a word of that shape, as written, judged by looking
//! at every word of the documents. A document of a term that has such a word anywhere counts, as it does for the plain
//! word: `replicatio*` finds what `replication` finds.

use std::{collections::BTreeSet, time::Duration};

use canopy_format::schema::{SEARCH_FIELD, Schema};
use canopy_proto::v1::{ExpandedQuery, Query, query::Node};
use canopy_tests::{
    cluster::{Cluster, Shape},
    corpus::Page,
    oracle::Asked,
};

use crate::world::{World, corpus_of, with_world};

/// Whether a term has the shape of a pattern of `*` and `?`.
fn has_shape(pattern: &[char], term: &[char]) -> bool {
    match pattern.split_first() {
        None => term.is_empty(),
        Some(('*', rest)) => (0..=term.len()).any(|skipped| has_shape(rest, &term[skipped..])),
        Some(('?', rest)) => !term.is_empty() && has_shape(rest, &term[1..]),
        Some((c, rest)) => term.first() == Some(c) && has_shape(rest, &term[1..]),
    }
}

/// Insertions, deletions, substitutions and swaps of neighbours from one word to another, by the whole table.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = i.max(j);
            if i == 0 || j == 0 {
                continue;
            }
            let (x, y) = (a[i - 1], b[j - 1]);
            let replaced = table[i - 1][j - 1] + usize::from(x != y);
            table[i][j] = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            if i > 1 && j > 1 && x == b[j - 2] && a[i - 2] == y {
                table[i][j] = table[i][j].min(table[i - 2][j - 2] + 1);
            }
        }
    }
    table[a.len()][b.len()]
}

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

/// Keys of the documents with a term that has a wanted word.
fn expected(world: &World, is_wanted: impl Fn(&[char]) -> bool) -> BTreeSet<String> {
    let written = |term: &&str| world.oracle.spellings(term).any(|spelling| is_wanted(&chars(spelling)));
    let tokens = world.oracle.vocabulary(SEARCH_FIELD).filter(written).map(str::to_owned);
    let expanded =
        ExpandedQuery { field: SEARCH_FIELD.into(), tokens: tokens.collect(), ..Default::default() };
    let query = Query { node: Some(Node::Expanded(expanded)) };
    let answer = world.oracle.answer(&Asked { query, ..Asked::default() });
    answer.hits.into_iter().map(|(key, _)| key).collect()
}

async fn found(world: &World, q: &str) -> BTreeSet<String> {
    let asked = [("q", q), ("k", "1000"), ("total", "exact"), ("snippet", "false"), ("timeout_ms", "60000")];
    let answered = world.deep.root().search(&corpus_of(8), &asked).await.ok();
    assert_eq!(answered.degraded(), [""; 0], "{q}");
    let keys: BTreeSet<String> = answered.keys().into_iter().map(str::to_owned).collect();
    assert!(
        answered.json["total"]["value"]
            .as_u64()
            .is_some_and(|total| total as usize == keys.len() || total > 1000),
        "{q}"
    );
    keys
}

#[test]
fn wildcards_find_every_term_of_their_shape() {
    with_world(|world| async {
        let patterns = ["gar*", "w?ter", "*ard*", "b*e", "ст*", "*ы", "東*", "*zz*", "st?n*", "?ab*", "*er"];
        for pattern in patterns {
            let shape = chars(pattern);
            let wanted = expected(world, |term| has_shape(&shape, term));
            let got = found(world, pattern).await;
            assert!(
                got == wanted || wanted.len() > 1000,
                "{pattern}: {} found, {} wanted",
                got.len(),
                wanted.len()
            );
        }
    });
}

#[test]
fn fuzzy_words_find_every_term_within_their_edits() {
    with_world(|world| async {
        for (word, edits) in [
            ("gardne", 2),
            ("gardxn", 1),
            ("gadren", 1),
            ("kopper", 1),
            ("копас", 2),
            ("violni", 1),
            ("zzzzzzzz", 2),
        ] {
            let letters = chars(word);
            let wanted = expected(world, |term| distance(&letters, term) <= edits);
            let got = found(world, &format!("{word}~{edits}")).await;
            // The word also counts in the forms that its stem has.
            assert!(wanted.is_subset(&got), "{word}~{edits}: misses {:?}", wanted.difference(&got).next());
            assert!(
                !wanted.is_empty() || got.is_empty(),
                "{word}~{edits}: finds {} instead of nothing",
                got.len()
            );
        }
    });
}

/// What a loaded machine may add to a deadline, milliseconds.
const SLACK_MS: f64 = 2000.0;

#[test]
fn a_pattern_of_everything_keeps_to_its_deadline_and_says_that_it_was_cut() {
    with_world(|world| async {
        for q in ["*a*", "*e* *a* *i*", "**a**"] {
            let asked = [("q", q), ("timeout_ms", "100"), ("snippet", "false")];
            let answered = world.flat.root().search(&corpus_of(8), &asked).await;
            assert!([200, 504].contains(&answered.status), "{q}: {}", answered.json);
            let took = answered.json["took_ms"].as_f64().unwrap_or(100.0);
            assert!(took < 100.0 + SLACK_MS, "{q}: {took} ms");
        }
        let name = corpus_of(8);
        let mut config = Shape::flat(4, 1).config(&[(&name, 8)]);
        config.root.max_expansions = 10;
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        let answered = cluster.root().search(&name, &[("q", "*a*"), ("timeout_ms", "60000")]).await.ok();
        assert_eq!(answered.degraded(), ["expansion_truncated"], "{}", answered.json["warnings"]);
        assert_eq!(answered.json["coverage"]["complete"], false);
        assert_eq!(answered.json["total"]["lower_bound"], true);
        assert!(answered.warnings().contains(&"expansion_truncated"));
        cluster.stop().await;
        // Its threads are free again.
        let next = tokio::time::timeout(Duration::from_mins(1), found(world, "gar*")).await;
        assert!(next.is_ok());
    });
}

/// Small pages whose words are stemmed to something else, and some in languages without stemming.
const WRITTEN: &[(&str, &str, &str)] = &[
    ("en-1", "en", "streaming replication keeps a standby near its primary"),
    ("en-2", "en", "a replicated table"),
    ("en-3", "en", "duplication of rows"),
    ("de-1", "de", "die Verschlüsselung der Verbindungen"),
    ("de-2", "de", "verschlüsselte Häuser"),
    ("ru-1", "ru", "потоковая репликация и книги"),
    ("ru-2", "ru", "в книгах"),
    ("uk-1", "uk", "потокова реплікація даних"),
    ("vi-1", "vi", "sao chép dữ liệu"),
    ("ja-1", "ja", "東京大学の検索"),
    ("th-1", "th", "ระบบค้นหาข้อมูล"),
];

#[test]
fn patterns_are_held_against_words_as_written_in_every_language() {
    with_world(|world| async {
        let page = |(key, language, body): &(&str, &str, &str)| Page {
            language: (*language).to_owned(),
            ..Page::plain(key, "", body)
        };
        let pages: Vec<Page> = WRITTEN.iter().map(page).collect();
        world.shelf.publish("written", &Schema::web(), 2, &pages).await;
        let cluster = Cluster::start(&world.shelf.store, &Shape::flat(2, 1).config(&[("written", 2)])).await;
        for (q, wanted) in [
            ("replication*", vec!["en-1", "en-2"]),
            ("replicatio*", vec!["en-1", "en-2"]),
            ("replic*", vec!["en-1", "en-2"]),
            ("*ication", vec!["en-1", "en-2", "en-3"]),
            ("*ation*", vec!["en-1", "en-2", "en-3"]),
            ("duplicat?on", vec!["en-3"]),
            ("replicaton~", vec!["en-1", "en-2"]),
            ("replciation~1", vec!["en-1", "en-2"]),
            ("standyb~1", vec!["en-1"]),
            ("Verschlüsselung*", vec!["de-1"]),
            ("*schlusselung", vec!["de-1"]),
            ("verschlüsselte*", vec!["de-2"]),
            ("Häuse*", vec!["de-2"]),
            ("Verschlüsselnug~1", vec!["de-1"]),
            ("репликация*", vec!["ru-1"]),
            ("*икация", vec!["ru-1"]),
            ("книга~1", vec!["ru-1", "ru-2"]),
            ("книги*", vec!["ru-1", "ru-2"]),
            ("репликацяи~1", vec!["ru-1"]),
            ("реплікаці*", vec!["uk-1"]),
            ("*ікація", vec!["uk-1"]),
            ("*liệu", vec!["vi-1"]),
            ("chep*", vec!["vi-1"]),
            ("東京*", vec!["ja-1"]),
            ("ค้น*", vec!["th-1"]),
            ("*zzz*", vec![]),
        ] {
            let asked = [("q", q), ("k", "100"), ("total", "exact"), ("timeout_ms", "60000")];
            let answered = cluster.root().search("written", &asked).await.ok();
            let mut found = answered.keys();
            found.sort_unstable();
            assert_eq!(found, wanted, "{q}");
        }
        let asked = [("q", "duplication~2"), ("timeout_ms", "60000")];
        let answered = cluster.root().search("written", &asked).await.ok();
        assert_eq!(answered.keys()[0], "en-3", "the word itself first: {}", answered.json);
        cluster.stop().await;
    });
}

#[test]
fn the_closest_words_are_first() {
    with_world(|world| async {
        let texts = [("three", "cantp cano xanopz"), ("two", "cnopz"), ("one", "canpoy"), ("none", "canopy")];
        let pages: Vec<Page> = texts.iter().map(|(key, text)| Page::plain(key, "", text)).collect();
        world.shelf.publish("near", &Schema::web(), 1, &pages).await;
        let cluster = Cluster::start(&world.shelf.store, &Shape::flat(1, 1).config(&[("near", 1)])).await;
        let asked = [("q", "canopy~2"), ("timeout_ms", "60000"), ("k", "10")];
        let answered = cluster.root().search("near", &asked).await.ok();
        assert_eq!(answered.keys()[..2], ["none", "one"], "{}", answered.json);
        let score = |at: usize| answered.json["hits"][at]["score"].as_f64().unwrap_or_default();
        assert!(score(0) > 0.5 && score(1) == 0.5, "{}", answered.json);
        for at in 2..answered.keys().len() {
            assert!((score(at) - 1.0 / 3.0).abs() < 1e-6, "{}", answered.json);
        }
        cluster.stop().await;
    });
}
