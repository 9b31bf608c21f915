//! What a record may be, and what is said of one that is none.

use serde_json::json;

use super::*;

/// A schema with every kind of field, single and multi.
fn schema() -> Schema {
    let mut schema = Schema::web();
    let field = |name: &str, kind, multi| Field {
        name: name.into(),
        kind,
        weight: 0,
        query: false,
        show: true,
        multi,
    };
    schema.fields.extend([
        field("count", Kind::I64, false),
        field("size", Kind::U64, false),
        field("price", Kind::F64, false),
        field("free", Kind::Bool, false),
        field("tags", Kind::Keyword, true),
        field("dates", Kind::Date, true),
    ]);
    schema
}

fn read(fields: Json) -> Result<Document, Reject> {
    let Json::Object(mut object) = fields else { panic!("not an object") };
    object.entry("url").or_insert(json!("https://example.org/a"));
    Document::from_json(&schema(), object)
}

fn rejected(fields: Json) -> String {
    read(fields).expect_err("accepted").to_string()
}

#[test]
fn values_are_typed_by_the_schema() {
    let document = read(json!({
        "title": "A\u{0}title", "tags": ["x", null, "y"], "count": -3, "size": u64::MAX, "price": 1, "free": true,
        "published": "2024-02-29T12:30:00.5+01:00", "attributes": {"color": "red", "n": 2, "f": 1.5, "b": false, "x": null},
        "static_rank": 0.25, "lang": "en-US",
    }))
    .unwrap();
    let value = |name: &str| document.values[name].clone();
    assert_eq!(value("title"), [Value::Text("Atitle".into())]);
    assert_eq!(value("tags"), [Value::Text("x".into()), Value::Text("y".into())]);
    assert_eq!((value("count"), value("size")), (vec![Value::I64(-3)], vec![Value::U64(u64::MAX)]));
    assert_eq!((value("price"), value("free")), (vec![Value::F64(1.0)], vec![Value::Bool(true)]));
    assert_eq!(value("published"), [Value::Date(1_709_206_200_500_000)]);
    assert_eq!(value("attributes.color"), [Value::Text("red".into())]);
    assert_eq!((value("attributes.n"), value("attributes.f")), (vec![Value::I64(2)], vec![Value::F64(1.5)]));
    assert!(!document.values.contains_key("attributes.x"));
    assert_eq!((document.language.as_str(), document.static_rank), ("en", 0.25));
    assert_eq!(value("lang"), [Value::Text("en".into())]);
    assert_eq!(value("host"), [Value::Text("example.org".into())]);
    assert!(document.dropped.is_empty());
}

#[test]
fn wide_numbers_stay_exact_also_as_strings() {
    let document = read(json!({"count": "-9223372036854775808", "size": "10000010011111231121"})).unwrap();
    assert_eq!(document.values["count"], [Value::I64(i64::MIN)]);
    assert_eq!(document.values["size"], [Value::U64(10_000_010_011_111_231_121)]);
}

#[test]
fn a_wrong_value_names_the_field_and_what_was_expected() {
    for (fields, field, expected) in [
        (json!({"title": 3}), "title", "expected a string, found the number 3"),
        (json!({"tags": [["x"]]}), "tags", "expected a string, found a list of 1"),
        (json!({"count": 1.5}), "count", "expected a whole number"),
        (json!({"count": u64::MAX}), "count", "expected a whole number of 64 bits"),
        (json!({"size": -1}), "size", "not negative"),
        (json!({"price": "NaN"}), "price", "expected a finite number, found the string \"NaN\""),
        (json!({"free": 1}), "free", "expected true or false"),
        (json!({"published": "2024-02-31"}), "published", "expected a date"),
        (json!({"published": "yesterday"}), "published", "expected a date"),
        (json!({"published": 1.5}), "published", "expected a date"),
        (json!({"title": ["a", "b"]}), "title", "expected one value, found a list of 2"),
        (json!({"attributes": {"a": {"b": 1}}}), "attributes.a", "maps are flat"),
        (json!({"attributes": {"a.b": 1}}), "attributes.a.b", "neither dots"),
        (json!({"attributes": [1]}), "attributes", "expected an object of attributes, found a list of 1"),
        (json!({"static_rank": 1.5}), "static_rank", "1.5 is not between 0 and 1"),
        (json!({"colour": 1}), "colour", "not a field of this corpus; its fields are url, title"),
        (json!({"url": "\u{0}"}), "url", "missing"),
        (json!({"url": null}), "url", "missing"),
        (json!({"url": format!("https://a.test/{}", "x".repeat(2048))}), "url", "at most 2048"),
        (json!({"topic": "x".repeat(8193)}), "topic", "at most 8192"),
    ] {
        let error = read(fields).expect_err("accepted");
        assert_eq!(error.field, field);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn bounds_are_named() {
    let many: serde_json::Map<String, Json> = (0..65).map(|i| (format!("a{i}"), json!(i))).collect();
    assert!(rejected(json!({"attributes": many})).contains("at most 64"));
    assert!(rejected(json!({"tags": vec!["x"; 10_001]})).contains("at most 10000"));
    assert!(rejected(json!({"body": "x".repeat(MAX_DOCUMENT_BYTES)})).contains("16777216 bytes"));
}

#[test]
fn nothing_given_is_no_value() {
    let document = read(json!({
        "title": null, "body": "", "tags": [], "topic": [null], "published": null, "count": [], "attributes": null,
    }))
    .unwrap();
    let names: Vec<&str> = document.values.keys().map(String::as_str).collect();
    assert_eq!(names, ["body", "host", "lang", "url"]);
    assert_eq!((document.language.as_str(), document.static_rank), ("en", 0.0));
}

#[test]
fn dates_of_ten_thousand_years_are_exact() {
    for (text, micros) in [
        ("0001-01-01", -62_135_596_800_000_000),
        ("1677-09-20", -9_223_459_200_000_000),
        ("1900-01-01", -2_208_988_800_000_000),
        ("1969-12-31", -86_400_000_000),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01 00:00:00", 0),
        ("2038-01-19T03:14:08Z", 2_147_483_648_000_000),
        ("0000-12-31T23:30:00-01:00", -62_135_595_000_000_000),
        ("2262-04-12", 9_223_372_800_000_000),
        ("9999-12-31T23:59:59.9999999Z", 253_402_300_799_999_999),
        ("2016-12-31T23:59:60Z", 1_483_228_799_000_000),
        ("2024-03-01T00:00:00+14:00", 1_709_200_800_000_000),
        ("2024-03-01t00:00z", 1_709_251_200_000_000),
    ] {
        let document = read(json!({"published": text})).unwrap();
        assert_eq!(document.values["published"], [Value::Date(micros)], "{text}");
        assert!(document.dropped.is_empty());
    }
    let seconds = read(json!({"published": -1})).unwrap();
    assert_eq!(seconds.values["published"], [Value::Date(-1_000_000)]);
}

#[test]
fn a_date_beyond_the_years_drops_its_field_only() {
    for far in [
        json!("10000-01-01"),
        json!("-0044-03-15"),
        json!("+12024-01-01T00:00:00Z"),
        json!("0001-01-01T00:00:00+01:00"),
        json!("9999-12-31T23:59:59-01:00"),
        json!(1_700_000_000_000_i64),
        json!(i64::MIN),
        json!(u64::MAX),
    ] {
        let document = read(json!({"title": "kept", "published": far})).unwrap();
        assert!(!document.values.contains_key("published"));
        assert_eq!(document.text("title"), Some("kept"));
        assert_eq!(document.dropped.len(), 1);
        assert_eq!(document.dropped[0].0, "published");
        assert!(document.dropped[0].1.contains("0001 to 9999"), "{:?}", document.dropped);
    }
    let some = read(json!({"dates": ["2024-01-01", "12024-01-01"]})).unwrap();
    assert_eq!((some.values["dates"].len(), some.dropped.len()), (1, 1));
}

#[test]
fn dates_that_no_calendar_has_are_refused() {
    for text in [
        "",
        "2024",
        "2024-13-01",
        "2024-00-10",
        "2024-01-00",
        "2023-02-29",
        "2024-01-01T24:00:00Z",
        "2024-01-01T10:60Z",
        "2024-01-01T10Z",
        "2024-01-01T10:00:00.Z",
        "2024-01-01T10:00:00+25:00",
        "2024-01-01T10:00:00+1",
        "2024-1-1",
        "-",
        "2024-01-01Tä",
        "２０２４-01-01",
        "2024-01-01T10:00:00+é1",
        "24-01-01",
    ] {
        let error = rejected(json!({"published": text}));
        assert!(error.starts_with("published: expected a date"), "{text}: {error}");
    }
}

#[test]
fn the_language_is_detected_when_nobody_says() {
    let german = "Der schnelle braune Fuchs springt über den faulen Hund, während die Kinder ihm aus dem Garten zusehen.";
    assert_eq!(read(json!({"title": german})).unwrap().language, "de");
    assert_eq!(read(json!({"body": "用户认证失败"})).unwrap().language, "zh");
    assert_eq!(read(json!({"title": "ok"})).unwrap().language, "en");
    assert_eq!(read(json!({"title": german, "lang": "fr"})).unwrap().language, "fr");
    let unknown = read(json!({"title": german, "lang": "und"})).unwrap();
    assert_eq!((unknown.language.as_str(), unknown.dropped.len()), ("de", 0));
    let wrong = read(json!({"title": german, "lang": "deutsch/de"})).unwrap();
    assert_eq!((wrong.language.as_str(), wrong.dropped.len()), ("de", 1));
    assert_eq!(wrong.values["lang"], [Value::Text("de".into())]);
}

#[test]
fn the_host_comes_from_the_address() {
    for (url, host) in [
        ("https://User:pw@Example.ORG:8443/a@b?c#d", Some("example.org")),
        ("http://[2001:DB8::1]:80/", Some("2001:db8::1")),
        ("https://bücher.example./x", Some("bücher.example")),
        ("https:///nothing", None),
        ("urn:isbn:1", None),
        ("a b://x", None),
    ] {
        let document = read(json!({ "url": url })).unwrap();
        assert_eq!(document.text("host"), host, "{url}");
    }
    let given = read(json!({"host": "given.example"})).unwrap();
    assert_eq!(given.text("host"), Some("given.example"));
}

#[test]
fn the_source_gives_the_same_document_again() {
    let document = read(json!({
        "title": "T", "tags": ["x"], "anchors": ["hidden"], "published": "0001-01-01T00:00:00.000001Z", "price": 1.5,
        "size": u64::MAX, "attributes": {"color": "red", "n": -2}, "static_rank": 1, "lang": "de",
    }))
    .unwrap();
    let source = document.to_source(&schema());
    let text = str::from_utf8(&source).unwrap();
    assert!(
        text.contains(r#""tags":["x"]"#) && text.contains(r#""attributes":{"color":"red","n":-2}"#),
        "{text}"
    );
    assert!(text.contains("0001-01-01T00:00:00.000001Z") && !text.contains("hidden"), "{text}");
    let mut again = Document::from_json(&schema(), serde_json::from_slice(&source).unwrap()).unwrap();
    again.values.insert("anchors".into(), document.values["anchors"].clone());
    assert_eq!(again, document);
}

/// A random JSON value, deep, wide and odd.
fn random(dice: &mut impl FnMut(usize) -> usize, depth: usize) -> Json {
    match dice(if depth > 3 { 8 } else { 10 }) {
        0 => Json::Null,
        1 => json!(dice(2) == 0),
        2 => json!(dice(1000)),
        3 => json!(i64::MIN + i64::from(dice(3) as u32)),
        4 => json!(u64::MAX),
        5 => json!(f64::MAX / (1 + dice(3)) as f64),
        6 => json!("-9999-99-99T\u{0}99:99é+".chars().skip(dice(5)).take(dice(30)).collect::<String>()),
        7 => json!(char::from_u32(dice(0x3000) as u32).map(String::from)),
        8 => Json::Array((0..dice(4)).map(|_| random(dice, depth + 1)).collect()),
        _ => (0..dice(4))
            .map(|i| (format!("k{i}"), random(dice, depth + 1)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[test]
fn no_json_panics() {
    let mut state = 7u64;
    let mut dice = move |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % sides as u64) as usize
    };
    let schema = schema();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut object = serde_json::Map::new();
        object.insert("url".into(), json!("https://example.org/"));
        for _ in 0..=dice(3) {
            let field = &schema.fields[dice(schema.fields.len())];
            object.insert(field.name.clone(), random(&mut dice, 0));
        }
        if let Ok(document) = Document::from_json(&schema, object) {
            let source = document.to_source(&schema);
            assert!(serde_json::from_slice::<Json>(&source).is_ok_and(|json| json.is_object()));
            accepted += 1;
        }
    }
    assert!(accepted > 1_000, "{accepted}");
}

proptest::proptest! {
    #[test]
    fn a_number_of_a_record_is_the_one_that_was_written(number in proptest::num::f64::NORMAL) {
        for written in [format!("{number:e}"), format!("{number:.30e}")] {
            let record = serde_json::from_str(&format!("{{\"price\": {written}}}")).unwrap();
            let document = read(record).unwrap();
            let exact: f64 = written.parse().unwrap();
            proptest::prop_assert_eq!(&document.values["price"], &vec![Value::F64(exact)], "{}", written);
        }
    }
}
