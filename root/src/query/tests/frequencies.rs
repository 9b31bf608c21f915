//! The numbers that travel with a query.

use std::collections::{BTreeMap, BTreeSet};

use canopy_proto::v1::{Query, query::Node};

use crate::query::{Parsed, fixture::Fixture};

fn numbers(parsed: &Parsed) -> BTreeMap<(String, String), u64> {
    let terms = parsed.statistics.terms.iter();
    terms.map(|term| ((term.field.clone(), term.token.clone()), term.documents)).collect()
}

/// Field and token of every term and phrase, wherever it stands.
fn tokens(query: &Query, into: &mut BTreeSet<(String, String)>) {
    match &query.node {
        Some(Node::Bool(b)) => {
            [&b.must, &b.should, &b.must_not, &b.filter]
                .into_iter()
                .flatten()
                .for_each(|child| tokens(child, into));
        }
        Some(Node::Term(t)) => into.extend(t.tokens.iter().map(|token| (t.field.clone(), token.clone()))),
        Some(Node::Phrase(p)) => {
            let all = p.alternatives.iter().flat_map(|form| &form.tokens);
            into.extend(all.map(|token| (p.field.clone(), token.clone())));
        }
        _ => {}
    }
}

#[test]
fn the_numbers_are_of_exactly_the_querys_terms() {
    let fixture = Fixture::in_languages(&["en", "de"]);
    for text in [
        "the rust book",
        "+rust -\"search engines\" title:book ru*",
        "host:a.example",
        "(a -b) OR \"c d\"",
        "*",
    ] {
        let parsed = fixture.text(text);
        let mut expected = BTreeSet::new();
        tokens(&parsed.query, &mut expected);
        assert_eq!(numbers(&parsed).into_keys().collect::<BTreeSet<_>>(), expected, "{text}");
        let fields: BTreeSet<_> = expected.into_iter().map(|(field, _)| field).collect();
        let given: BTreeSet<_> = parsed.statistics.fields.iter().map(|field| field.field.clone()).collect();
        assert_eq!(given, fields, "{text}");
        assert!(parsed.statistics.fields.iter().all(|field| field.tokens > 0));
        assert_eq!(parsed.statistics.documents, 14);
        assert!(!parsed.statistics.id.is_empty());
    }
}

#[test]
fn all_forms_of_a_word_have_the_frequency_of_the_word() {
    // e-mail is found as "e", "mail" and "email"; both words share the compound
    let fixture = Fixture::with(&[("e", 30), ("mail", 50), ("email", 40)]);
    let found = numbers(&fixture.text("e-mail"));
    let of = |token: &str| found.get(&("text".to_owned(), token.to_owned())).copied();
    assert_eq!((of("e"), of("mail"), of("email")), (Some(50), Some(50), Some(50)));
    let fixture = Fixture::with(&[("e", 3), ("mail", 5), ("email", 4), ("other", 1000)]);
    let found = numbers(&fixture.text("e-mail"));
    let of = |token: &str| found.get(&("text".to_owned(), token.to_owned())).copied();
    assert_eq!((of("e"), of("mail"), of("email")), (Some(7), Some(9), Some(9)));
}

#[test]
fn an_unknown_word_has_one_document() {
    let fixture = Fixture::new();
    assert_eq!(numbers(&fixture.text("zyzzyva")).into_values().collect::<Vec<_>>(), [1]);
    assert_eq!(numbers(&fixture.text("\"zyzzyva rust\"")).into_values().min(), Some(1));
}
