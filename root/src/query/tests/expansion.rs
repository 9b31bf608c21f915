//! Patterns keep to their limits of terms, number and time.

use std::time::Duration;

use canopy_proto::v1::{Query, query::Node};

use crate::query::{
    MAX_EXPANDED, MAX_PATTERNS,
    fixture::{Fixture, codes},
};

fn expansions(query: &Query) -> Vec<Vec<String>> {
    match &query.node {
        Some(Node::Bool(b)) => {
            [&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten().flat_map(expansions).collect()
        }
        Some(Node::Expanded(expanded)) => vec![expanded.tokens.clone()],
        _ => Vec::new(),
    }
}

fn many(count: u64) -> Fixture {
    let terms: Vec<(String, u64)> = (0..count).map(|i| (format!("quux{i:06}"), i + 1)).collect();
    let terms: Vec<(&str, u64)> = terms.iter().map(|(term, documents)| (term.as_str(), *documents)).collect();
    Fixture::with(&terms)
}

#[test]
fn the_most_frequent_terms_stay() {
    let fixture = Fixture { max_expansions: 3, ..many(1000) };
    let parsed = fixture.text("quux*");
    assert_eq!(expansions(&parsed.query), [["quux000999", "quux000998", "quux000997"]]);
    assert!(parsed.expansion_truncated);
    assert_eq!(codes(&parsed.warnings), ["expansion_truncated"]);
    let whole = fixture.text("quux00000?* rust");
    assert!(whole.expansion_truncated);
    let few = fixture.text("quux00099*8");
    assert_eq!(expansions(&few.query), [["quux000998"]]);
    assert!(!few.expansion_truncated && few.warnings.is_empty());
}

#[test]
fn all_patterns_together_are_bounded() {
    let fixture = many(5000);
    let text: Vec<String> = (0..100).map(|i| format!("quux0{:02}*", i % 50)).collect();
    let parsed = fixture.text(&text.join(" "));
    let found = expansions(&parsed.query);
    assert!(found.len() <= MAX_PATTERNS, "{}", found.len());
    assert!(found.iter().map(Vec::len).sum::<usize>() <= MAX_EXPANDED);
    assert!(codes(&parsed.warnings).contains(&"too_many_patterns"));
    canopy_proto::validate::tree(&parsed.query).unwrap();
}

#[test]
fn without_time_a_pattern_is_a_word() {
    let fixture = Fixture { budget: Duration::ZERO, ..many(1000) };
    for text in ["quux*", "*u*", "quux000001~"] {
        let parsed = fixture.text(text);
        assert_eq!(expansions(&parsed.query).len(), 0, "{text}");
        assert!(parsed.expansion_truncated, "{text}");
        assert!(!parsed.finds_nothing(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pattern_takes_a_quarter_of_the_time_that_is_left() {
    let fixture = Fixture { budget: Duration::from_millis(100), ..many(100) };
    let context = fixture.context();
    let words = crate::query::words::Words::new(&context, None, Default::default());
    assert_eq!(words.expand_by.remaining(), Duration::from_millis(25));
}

#[test]
fn a_fuzzy_word_is_worth_more_than_its_neighbours() {
    let fixture = Fixture::with(&[("memory", 5), ("memori", 7), ("melody", 3)]);
    let parsed = fixture.text("memory~2");
    let Some(Node::Bool(b)) = &parsed.query.node else { panic!("{:?}", parsed.query) };
    assert!(matches!(&b.should[0].node, Some(Node::Term(term)) if term.tokens == ["memori"]));
    assert!(matches!(&b.should[1].node, Some(Node::Expanded(_))));
}
