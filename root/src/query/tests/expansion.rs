//! Patterns keep to their limits of terms, number and time.

use std::time::Duration;

use canopy_proto::v1::{Query, query::Node};

use crate::query::{
    MAX_EXPANDED, MAX_PATTERNS,
    fixture::{Fixture, codes, show},
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
    let words = crate::query::words::Words::new(&context, Vec::new(), Default::default());
    assert_eq!(words.expand_by.remaining(), Duration::from_millis(25));
}

#[test]
fn a_fuzzy_word_is_worth_more_than_its_neighbours() {
    let fixture = Fixture::with(&[("memroy", 5), ("melody", 3)]);
    let show = |text| show(&fixture.text(text).query);
    // Whoever has a closer word is in the clauses of the farther ones, too.
    assert_eq!(show("memory~1"), "(memori <memori|memroy>^0.5)");
    assert_eq!(show("memory~2"), "(memori <memori|memroy>^0.16666666 <melody|memori|memroy>^0.33333334)");
    assert_eq!(show("memoyr~1"), "<memori>^0.5");
    assert_eq!(show("melodi~2^3"), "(<melody>^1.5)".trim_matches(['(', ')']));
    assert_eq!(show("zyzzyva~2"), "zyzzyva");
}

#[test]
fn patterns_are_held_against_words_as_written() {
    let fixture = Fixture::in_languages(&["en", "de", "ru"]);
    let show = |text| show(&fixture.text(text).query);
    assert_eq!(show("memory*"), "<memori>");
    assert_eq!(show("hauser*"), "<haus>");
    assert_eq!(show("Häus*r"), "<haus>");
    assert_eq!(show("*ngines"), "<engin>");
    assert_eq!(show("memori*"), "memori", "no page writes it so");
    assert_eq!(show("title:engine*"), "title:<engin>");
    assert_eq!(show("検索*"), "<検索>");
    assert_eq!(show("ค้น*"), "<ค้นหา>", "its tone sign is no letter");
    assert_eq!(show("ha\u{308}us*"), "<haus>");
    assert_eq!(codes(&fixture.text("memori*").warnings), ["no_expansion"]);
}
