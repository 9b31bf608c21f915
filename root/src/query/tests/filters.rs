//! The `filter` parameters.

use crate::query::fixture::{Fixture, codes, show};

#[test]
fn filters_narrow_and_do_not_score() {
    let fixture = Fixture::new();
    let table: &[(&str, &[&str], &str)] = &[
        ("rust", &["host:example.org"], "(rust #[host=example.org] ~1)"),
        ("rust book", &["lang:en,de"], "(rust book #[lang=en|de] ~1)"),
        ("rust", &["lang:en", "price:[1 TO 5}"], "(rust #[lang=en price>=1f<5f] ~1)"),
        ("+rust book", &["price:>=2"], "(+[rust] book #[price>=2f])"),
        ("\"rust book\"", &["price:<2"], "(+[\"rust book\"] #[price<2f])"),
        ("rust", &["-lang:de"], "(rust -[lang=de])"),
        ("rust", &["topic:\"a,b\" , c"], "(rust #[topic=a,b|c] ~1)"),
        ("rust", &["host:\"[x]\""], "(rust #[host=[x]] ~1)"),
        ("rust", &["host:exam*,other"], "(rust #[(host>=exam<exan host=other)] ~1)"),
        ("rust", &["host:\"exam*\""], "(rust #[host=exam*] ~1)"),
        ("rust", &["site:example.org"], "(rust #[host=example.org|www.example.org] ~1)"),
        ("rust", &["url:https://a.example/b:c"], "(rust #[url=https://a.example/b:c] ~1)"),
        ("rust", &["title:rust"], "(rust #[title:rust] ~1)"),
        ("rust", &["title:\"rust book\",search"], "(rust #[(title:\"rust book\" title:search)] ~1)"),
        ("rust", &["open:true", "level:-5,7"], "(rust #[open=true level=-5|7] ~1)"),
        (
            "rust",
            &["published:2024-03,2023"],
            "(rust #[(published>=@1709251200<@1711929600 published>=@1672531200<@1704067200)] ~1)",
        ),
        ("rust", &["attributes.size:{1 TO *]"], "(rust #[attributes.size>1] ~1)"),
        ("rust", &["price:[* TO *]"], "(rust #[price] ~1)"),
        ("", &["host:example.org"], "(#[host=example.org])"),
        ("-rust", &["host:example.org"], "(-[rust] #[host=example.org])"),
    ];
    for (text, filters, message) in table {
        assert_eq!(show(&fixture.filtered(text, filters, 0).query), *message, "{text} {filters:?}");
    }
}

#[test]
fn filters_alone_never_make_up_for_an_empty_text() {
    let fixture = Fixture::new();
    let nothing = |text: &str, filters: &[&str]| {
        let parsed = fixture.filtered(text, filters, 0);
        assert_eq!(show(&parsed.query), "NONE", "{text} {filters:?}");
        codes(&parsed.warnings)
    };
    assert_eq!(nothing("!!!", &["host:example.org"]), ["empty_query"]);
    assert_eq!(nothing("", &["-host:example.org"]), ["only_negatives"]);
    assert_eq!(nothing("-rust", &["-host:example.org"]), ["only_negatives"]);
}

#[test]
fn a_date_filter_is_read_in_the_zone_of_the_request() {
    let zone = crate::query::dates::time_zone("Asia/Tehran").unwrap();
    let fixture = Fixture { zone, ..Fixture::new() };
    let day = fixture.filtered("rust", &["published:2022-03-22"], 0);
    assert_eq!(show(&day.query), "(rust #[published>=@1647894600<@1647977400] ~1)");
    assert_eq!(1_647_977_400 - 1_647_894_600, 23 * 3600);
}

#[test]
fn a_bad_filter_is_refused_by_name() {
    let fixture = Fixture::new();
    let long = format!("host:{}", "x".repeat(9000));
    let many = format!("topic:{}", vec!["x"; 1000].join(","));
    let table = [
        ("nosuch:x", "no field \"nosuch\""),
        ("body:x", "no index of its own"),
        ("attributes:x", "no field \"attributes\""),
        ("price:abc", "price needs a number"),
        ("level:1.5", "level needs a whole number"),
        ("open:yes", "open needs true or false"),
        ("published:soon", "published: \"soon\" is no date"),
        ("published:[now TO", "is no filter"),
        ("price:[5 TO 1]", "ends before it begins"),
        ("price:[5 1]", "is no filter"),
        ("title:>5", "title is a text field"),
        ("title:[a TO b]", "title is a text field"),
        ("title:!!!", "holds no word"),
        ("host:a*b*", "one star at its end"),
        ("price:5*", "only as keyword*"),
        ("host:", "is no filter"),
        ("host:a,,b", "is no filter"),
        ("host:\"a", "is no filter"),
        ("host:\"a\"b", "is no filter"),
        ("host", "is no filter"),
        ("", "is no filter"),
        ("site:/", "needs a host name"),
        (long.as_str(), "limit is 8192"),
    ];
    for (filter, words) in table {
        let failure = fixture.try_filtered("rust", &[filter], 0).expect_err(filter);
        assert_eq!(failure.field.as_deref(), Some("filter"), "{filter}");
        assert!(failure.message.contains(words), "{filter}: {}", failure.message);
        assert!(failure.message.len() < 400, "{}", failure.message);
    }
    let filters = vec!["lang:en"; 65];
    assert_eq!(fixture.try_filtered("rust", &filters, 0).unwrap_err().limit, Some(64));
    let distinct: Vec<String> = (0..8).map(|i| many.replace('x', &format!("v{i}w"))).collect();
    assert!(
        fixture.try_filtered("rust", &distinct.iter().map(String::as_str).collect::<Vec<_>>(), 0).is_ok()
    );
}

#[test]
fn too_many_values_are_refused() {
    let fixture = Fixture::new();
    let filters: Vec<String> = (0..8)
        .map(|i| format!("topic:{}", (0..1000).map(|j| format!("{i}x{j}")).collect::<Vec<_>>().join(",")))
        .collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let failure = fixture.try_filtered("rust", &filters, 0).unwrap_err();
    assert_eq!(failure.field.as_deref(), Some("filter"));
}
