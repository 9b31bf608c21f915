//! Tests of `index_schema`: what its module comment promises.

use canopy_format::{
    analysis::Analyzer,
    document::{Document, Value},
    schema::{Field, Kind, Schema},
};
use tantivy::{
    Term,
    collector::Count,
    query::{PhraseQuery, TermQuery},
    schema::IndexRecordOption,
    tokenizer::{TokenStream, Tokenizer},
};

use super::*;

fn field(name: &str, kind: Kind, weight: u32, query: bool) -> Field {
    Field { name: name.into(), kind, weight, query, show: true, multi: true }
}

fn schema() -> Schema {
    Schema {
        name: "test".into(),
        key: "url".into(),
        default_language: "en".into(),
        fields: vec![
            field("url", Kind::Keyword, 0, false),
            field("title", Kind::Text, 3, true),
            field("body", Kind::Text, 1, false),
            field("published", Kind::Date, 0, false),
            field("attributes", Kind::Map, 0, false),
        ],
    }
}

#[test]
fn tokens_unpack_as_packed_and_malformed_text_ends() {
    let words = [("a", 0), ("straße", 0), ("日本", 70), (&"x".repeat(255), 5000), ("", 5001)];
    let mut packed = tokens::Packed::default();
    for (word, position) in words {
        packed.push(word, position);
    }
    let (text, count) = packed.finish();
    assert_eq!(count, 5);
    let mut unpack = tokens::Unpack::default();
    let mut seen = vec![];
    unpack.token_stream(&text).process(&mut |token| seen.push((token.text.clone(), token.position as u32)));
    let expected: Vec<_> =
        words.iter().map(|(word, at)| ((*word).to_owned(), at + tokens::PART_GAP)).collect();
    assert_eq!(seen, expected);
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        unpack.token_stream(&text[..end]).process(&mut |_| {});
    }
    unpack
        .token_stream("plain text that nobody packed \u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}")
        .process(&mut |_| {});
}

#[test]
fn parts_do_not_join_in_a_phrase() {
    let mut document =
        Document { key: "https://a.example/".into(), language: "en".into(), ..Document::default() };
    let text = |text: &str| vec![Value::Text(text.into())];
    document.values.insert("url".into(), text("https://a.example/"));
    document.values.insert("title".into(), text("red fox"));
    document
        .values
        .insert("body".into(), vec![Value::Text("blue whale".into()), Value::Text("green frog".into())]);
    document.values.insert("published".into(), vec![Value::Date(-62_135_596_800_000_000)]);
    document.values.insert("attributes.color".into(), text("red"));
    document.values.insert("attributes.size".into(), vec![Value::F64(3.0)]);
    let dir = tempfile::tempdir().expect("temporary directory");
    let counts = crate::build::shard(dir.path(), &schema(), vec![document]).expect("shard");
    assert_eq!(counts.tokens["text"], 3 * 2 + 4);
    assert_eq!(counts.tokens["title"], 2);

    let fields = IndexSchema::new(&schema()).expect("schema");
    let index = tantivy::Index::open_in_dir(dir.path()).expect("open");
    let searcher = index.reader().expect("reader").searcher();
    let phrase = |name: &str, words: [&str; 2], slop: u32| {
        let mut terms = vec![];
        let field = fields.text_field(name).expect("field");
        for (at, word) in words.iter().enumerate() {
            Analyzer::new().document(word, "en", &mut |token| {
                terms.push((at, Term::from_field_text(field, &token.text)));
            });
        }
        let query = PhraseQuery::new_with_offset_and_slop(terms, slop);
        searcher.search(&query, &Count).expect("search")
    };
    assert_eq!(phrase("text", ["red", "fox"], 0), 1);
    assert_eq!(phrase("title", ["red", "fox"], 0), 1);
    assert_eq!(phrase("text", ["green", "frog"], 0), 1);
    assert_eq!(phrase("text", ["fox", "red"], 0), 0, "the end of one repetition and the start of the next");
    for apart in [["fox", "blue"], ["whale", "green"]] {
        assert_eq!(phrase("text", apart, 90), 0, "{apart:?}");
    }

    let found = |term: Term| {
        searcher.search(&TermQuery::new(term, IndexRecordOption::Basic), &Count).expect("search")
    };
    assert_eq!(found(fields.key_term(KeyHash::of("https://a.example/"))), 1);
    assert_eq!(found(Term::from_field_i64(fields.values["published"].1, -62_135_596_800_000_000)), 1);
    let mut color = fields.map_term("attributes.color").expect("attribute");
    color.append_type_and_str("red");
    assert_eq!(found(color), 1);
    let mut size = fields.map_term("attributes.size").expect("attribute");
    size.append_type_and_fast_value(3i64);
    assert_eq!(found(size), 1);
}

#[test]
fn reserved_and_double_names_are_refused() {
    for bad in ["text", "_key", "title"] {
        let mut schema = schema();
        schema.fields.push(field(bad, Kind::Text, 1, true));
        assert!(IndexSchema::new(&schema).is_err(), "{bad}");
    }
}
