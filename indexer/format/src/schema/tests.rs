//! Tests of `schema`: what its module comment promises.

use super::*;

const SHOP: &str = r#"
name = "shop"
key = "sku"
default_language = "de"

[[fields]]
name = "sku"
kind = "keyword"

[[fields]]
name = "title"
kind = "text"
weight = 4
query = true

[[fields]]
name = "price"
kind = "f64"
"#;

fn problems(text: &str) -> String {
    match Schema::from_toml(text) {
        Err(Error::Schema(problems)) => problems,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_web_schema_is_valid_and_complete() {
    let schema = Schema::web();
    schema.check().unwrap();
    let names: Vec<_> = schema.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(
        names,
        "url title body anchors host lang topic published static_rank attributes"
            .split(' ')
            .collect::<Vec<_>>()
    );
    let weights: Vec<_> = schema.searched().map(|field| (field.name.as_str(), field.weight)).collect();
    assert_eq!(weights, [("title", 3), ("body", 1), ("anchors", 2)]);
}

#[test]
fn a_file_is_read_and_survives_json() {
    let schema = Schema::from_toml(SHOP).unwrap();
    assert_eq!((schema.key.as_str(), schema.fields.len()), ("sku", 3));
    assert!(schema.fields[2].show && !schema.fields[2].multi);
    let json = serde_json::to_string(&schema).unwrap();
    assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
}

#[test]
fn the_id_is_16_hex_digits_and_follows_the_meaning() {
    let schema = Schema::from_toml(SHOP).unwrap();
    let id = schema.id();
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(id, Schema::from_toml(&SHOP.replace("\n\n", "\n# note\n")).unwrap().id());
    assert_eq!(id, Schema { name: "other".into(), ..schema.clone() }.id());
    assert_ne!(id, Schema { key: "title".into(), ..schema.clone() }.id());
    assert_ne!(id, schema.id_under("another analysis"));
    for change in 0..6 {
        let mut other = schema.clone();
        let field = &mut other.fields[1];
        match change {
            0 => field.name.push('x'),
            1 => field.kind = Kind::Keyword,
            2 => field.weight = 5,
            3 => field.query = false,
            4 => field.show = false,
            _ => field.multi = true,
        }
        assert_ne!(id, other.id(), "change {change}");
    }
    assert_eq!(Schema::web().id_under("a1"), "c84badba959dc2b6");
}

#[test]
fn fields_are_found_by_name_and_attribute() {
    let schema = Schema::web();
    assert_eq!(schema.field("title").map(|field| field.kind), Some(Kind::Text));
    assert_eq!(schema.field("attributes.color").map(|field| field.name.as_str()), Some("attributes"));
    assert_eq!(schema.field("attributes").map(|field| field.kind), Some(Kind::Map));
    for unknown in ["", ".", "attributes.", ".color", "title.color", "colour"] {
        assert_eq!(schema.field(unknown), None, "{unknown}");
    }
}

#[test]
fn every_problem_is_named_at_once() {
    let text = r#"
name = "Bad Name"
default_language = "english"
colour = 1
[[fields]]
name = "text"
kind = "text"
weight = 17
[[fields]]
name = "Price"
kind = "money"
multi = "no"
[[fields]]
kind = "bool"
weight = 2
size = 3
[[fields]]
name = "lang"
kind = "text"
show = false
[[fields]]
name = "lang"
kind = "keyword"
[[fields]]
name = "map"
kind = "map"
multi = true
"#;
    let found = problems(text);
    for expected in [
        "colour: unknown key",
        "key: missing",
        "key: there is no field",
        "name: \"Bad Name\" must be",
        "default_language: \"english\" must be",
        "field \"text\": this name belongs",
        "field \"text\": weight must be 0 to 16",
        "field \"Price\": a name is",
        "field \"Price\": kind: \"money\" is unknown",
        "field \"Price\": multi: true or false is needed, not string",
        "fields[2]: name: missing",
        "fields[2]: size: unknown key",
        "weight and query are for text fields only",
        "field \"lang\": lang is always one keyword",
        "field \"lang\": neither searched",
        "field \"lang\": given twice",
        "field \"map\": a map cannot be multi",
    ] {
        assert!(found.contains(expected), "{expected} not in\n{found}");
    }
}

#[test]
fn broken_files_are_one_clear_problem() {
    assert!(problems("name = \"a\"\nkey = ").starts_with("line 2: "), "{}", problems("name = \"a\"\nkey = "));
    assert!(problems("").contains("fields: missing"));
    assert!(problems("fields = 3").contains("fields: [[fields]] tables are needed"));
    assert!(problems("fields = [1, \"a\"]").contains("fields[1]: a table is needed"));
    assert!(
        problems(&SHOP.replace("weight = 4\nquery = true", "")).contains("plain words could find nothing")
    );
    assert!(problems(&SHOP.replace("weight = 4", "weight = -4")).contains("weight must be 0 to 16"));
    assert!(problems(&SHOP.replace("weight = 4", "weight = 9999999999")).contains("weight must be"));
    let field = |i| format!("[[fields]]\nname = \"f{i}\"\nkind = \"i64\"\n");
    let many = (0..200).map(field).collect::<Vec<_>>().concat();
    assert!(problems(&format!("{SHOP}{many}")).contains("203 given, at most 128"));
}
