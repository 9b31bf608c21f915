//! Prefixes, wildcards and fuzzy words find exactly the documents with a term of that shape, judged by looking at every
//! term of the documents.

use std::{collections::BTreeSet, time::Duration};

use canopy_format::schema::SEARCH_FIELD;
use canopy_proto::v1::{ExpandedQuery, Query, query::Node};
use canopy_tests::{
    cluster::{Cluster, Shape},
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

/// Insertions, deletions and substitutions from one word to another.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

/// Keys of the documents with one of the terms.
fn expected(world: &World, is_wanted: impl Fn(&[char]) -> bool) -> BTreeSet<String> {
    let tokens =
        world.oracle.vocabulary(SEARCH_FIELD).filter(|term| is_wanted(&chars(term))).map(str::to_owned);
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
        for pattern in ["gar*", "w?ter", "*ard*", "b*e", "ст*", "東*", "*zz*", "st?n*", "?ab*"] {
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
        for (word, edits) in
            [("gardne", 2), ("gardxn", 1), ("kopper", 1), ("копас", 2), ("violni", 2), ("zzzzzzzz", 2)]
        {
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

#[test]
fn a_pattern_of_everything_keeps_to_its_deadline_and_says_that_it_was_cut() {
    with_world(|world| async {
        for q in ["*a*", "*e* *a* *i*", "**a**"] {
            let asked = [("q", q), ("timeout_ms", "100"), ("snippet", "false")];
            let answered = world.flat.root().search(&corpus_of(8), &asked).await;
            assert!([200, 504].contains(&answered.status), "{q}: {}", answered.json);
            let took = answered.json["took_ms"].as_f64().unwrap_or(100.0);
            assert!(took < 100.0 + 300.0, "{q}: {took} ms");
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
        let next = tokio::time::timeout(Duration::from_secs(30), found(world, "gar*")).await;
        assert!(next.is_ok());
    });
}
