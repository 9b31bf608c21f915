//! Documents that broke other systems, as an indexer gets them: corpus `cases`.

use serde_json::{Map, Value, json};

fn record(name: &str, more: Value) -> Value {
    let mut record = Map::from_iter([
        ("url".to_owned(), json!(format!("https://cases.example/{name}"))),
        ("lang".to_owned(), json!("en")),
    ]);
    record.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(record)
}

/// Dates that other systems lost, by name.
pub const DATES: &[(&str, &str)] = &[
    ("year-one", "0001-01-01"),
    ("first-nanosecond", "1677-09-20"),
    ("nineteen-hundred", "1900-01-01"),
    ("before-the-epoch", "1969-12-31"),
    ("end-of-32-bits", "2038-01-19T03:14:08Z"),
    ("last-nanosecond", "2262-04-12"),
    ("last-year", "9999-12-31"),
];

/// Times around midnight in zones that moved their clocks, by name.
pub const MOMENTS: &[(&str, &str)] = &[
    ("utc-start", "2013-03-07T00:00:00Z"),
    ("utc-last", "2013-03-07T23:59:59.999999Z"),
    ("utc-next", "2013-03-08T00:00:00Z"),
    ("lima-last", "2013-03-08T04:59:59Z"),
    ("lima-next", "2013-03-08T05:00:00Z"),
    // Tehran skipped midnight on this day: it began at 01:00, 20:30 UTC of the day before.
    ("tehran-before", "2022-03-21T20:29:59Z"),
    ("tehran-first", "2022-03-21T20:30:00Z"),
    ("tehran-last", "2022-03-22T19:29:59Z"),
    ("tehran-after", "2022-03-22T19:30:00Z"),
    // Apia had no 30 December 2011.
    ("apia-29", "2011-12-30T09:59:59Z"),
    ("apia-31", "2011-12-30T10:00:00Z"),
    // Berlin's days of 23 and 25 hours.
    ("berlin-spring-first", "2024-03-30T23:00:00Z"),
    ("berlin-spring-last", "2024-03-31T21:59:59Z"),
    ("berlin-spring-after", "2024-03-31T22:00:00Z"),
    ("berlin-autumn-first", "2024-10-26T22:00:00Z"),
    ("berlin-autumn-last", "2024-10-27T22:59:59Z"),
    ("berlin-autumn-after", "2024-10-27T23:00:00Z"),
];

/// All records.
pub fn records() -> Vec<Value> {
    let mut records = vec![
        record(
            "script",
            json!({ "title": "<b>Bold</b> & co", "body": "<script>alert(1)</script> xuxu <b> then text" }),
        ),
        record(
            "entities",
            json!({ "title": "entities", "body": "fish &amp; chips at <a href=\"x\">the pier</a> zanzibar" }),
        ),
        record(
            "marker",
            json!({ "title": "marker", "body": "someone wrote </b> and <b> around quokka by hand" }),
        ),
        record(
            "long-token",
            json!({ "title": "long token",
            "body": format!("before {} after numbat", "QUJD".repeat(256 << 10)) }),
        ),
        record("laptop", json!({ "title": "MacBook Pro 16 inch", "body": "the M3 model weighs little" })),
        record("who", json!({ "title": "The Who", "body": "they sang for the whole night" })),
        record("hamlet", json!({ "title": "Hamlet", "body": "to be or not to be that is the question" })),
        record("zh", json!({ "lang": "zh", "title": "认证", "body": "我们在日本学习认证技术" })),
        record("ja", json!({ "lang": "ja", "title": "日本", "body": "日本の川は美しい" })),
        record("ko", json!({ "lang": "ko", "title": "사람", "body": "사람이 강가에 산다" })),
        record("th", json!({ "lang": "th", "title": "แม่น้ำ", "body": "แม่น้ำไหลผ่านหมู่บ้าน" })),
        record("he", json!({ "lang": "he", "title": "שלום", "body": "שלום לכולם" })),
        record("ar", json!({ "lang": "ar", "title": "مرحبا", "body": "مرحبا بكم في المدينة" })),
        record("pear", json!({ "title": "fruit", "body": "a ripe 🍐 fell down" })),
        record("star", json!({ "title": "star", "body": "five ⭐️ for the cook" })),
        record("family", json!({ "title": "family", "body": "a family 👩‍👩‍👧 on a walk" })),
        record("decomposed", json!({ "title": "cafe\u{301}", "body": "crème bru\u{302}lée" })),
        record("nul", json!({ "title": "nul\u{0}byte", "body": "wom\u{0}bat" })),
        record("no-title", json!({ "body": "wallaby without a title" })),
        record("null-date", json!({ "title": "wallaby", "body": null, "published": null, "topic": [] })),
        record(
            "empty-body",
            json!({ "title": "wallaby", "body": "", "anchors": [], "published": "2020-01-01" }),
        ),
        record(
            "blank-body",
            json!({ "title": "wallaby", "body": " \n\t ", "attributes": {}, "published": "2021-01-01" }),
        ),
        record("only-anchors", json!({ "anchors": ["wallaby"] })),
        record(
            "large-number",
            json!({ "title": "numbers", "attributes": { "id": 1_000_001_001_111_123_111_u64 } }),
        ),
        record(
            "next-number",
            json!({ "title": "numbers", "attributes": { "id": 1_000_001_001_111_123_112_u64 } }),
        ),
    ];
    let dated =
        |(name, date): &(&str, &str)| record(name, json!({ "title": "a dated case", "published": date }));
    records.extend(DATES.iter().chain(MOMENTS).map(dated));
    records
}

/// The key of a case.
pub fn key(name: &str) -> String {
    format!("https://cases.example/{name}")
}
