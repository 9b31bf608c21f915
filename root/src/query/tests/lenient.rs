//! What each piece of the language means.

use crate::query::fixture::{Fixture, codes, show};

/// (text, message, warnings).
type Case = (&'static str, &'static str, &'static [&'static str]);

fn check(fixture: &Fixture, table: &[Case]) {
    for (text, message, warnings) in table {
        let parsed = fixture.text(text);
        assert_eq!(
            (show(&parsed.query).as_str(), codes(&parsed.warnings).as_slice()),
            (*message, *warnings),
            "{text}"
        );
    }
}

#[test]
fn words_are_a_flat_list_and_signs_require_or_exclude() {
    let table: &[Case] = &[
        ("rust", "rust", &[]),
        ("rust search", "(rust search)", &[]),
        ("Rust  RUST\tsearch", "(rust^2 search)", &[]),
        ("+rust search", "(+[rust] search)", &[]),
        ("rust -search", "(rust -[search])", &[]),
        ("+rust -memory engines", "(+[rust] engin -[memori])", &[]),
        ("\"rust book\"", "\"rust book\"", &[]),
        ("\"rust book\" search", "(+[\"rust book\"] search)", &[]),
        ("\"rust book\"~3^2", "\"rust book\"~3^2", &[]),
        ("\"rust book\"^2~99999999", "\"rust book\"~64^2", &[]),
        ("\"rust\"", "rust", &[]),
        ("-\"rust book\" search", "(search -[\"rust book\"])", &[]),
        ("“rust book”", "\"rust book\"", &[]),
        ("rust^2.5", "rust^2.5", &[]),
        ("(rust book)^2 search", "(rust^2 book^2 search)", &[]),
        ("((rust)^3 search)^2", "(rust^6 search^2)", &[]),
        ("rust^0 search^99999", "(rust search)", &["bad_boost"]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn not_binds_before_and_before_or_before_a_space() {
    let table: &[Case] = &[
        ("rust OR search", "(rust search)", &[]),
        ("rust | search | web", "(rust search web)", &[]),
        ("rust AND search", "(+[rust search])", &[]),
        ("rust AND search OR engines web", "(+[((+[rust search]) engin)] web)", &[]),
        ("rust AND (search OR engines)", "(+[rust (search engin)])", &[]),
        ("\"rust book\" OR search", "(\"rust book\" search)", &[]),
        ("\"rust book\" OR search web", "(+[(\"rust book\" search)] web)", &[]),
        ("NOT search rust", "(rust -[search])", &[]),
        ("rust AND NOT search", "(+[rust] -[search])", &[]),
        ("NOT NOT rust", "rust", &[]),
        ("NOT -rust", "rust", &[]),
        ("rust NOT (search AND web)", "(rust -[(+[search web])])", &[]),
        ("rust -(-search)", "(+[search] rust)", &[]),
        ("-(-rust -search)", "(rust search)", &[]),
        ("(rust -web) OR search", "((rust -[web]) search)", &[]),
        ("rust OR -search", "rust", &["negative_in_or"]),
        ("((((rust)))) (((search)) web)", "(rust search web)", &[]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn a_text_in_capitals_or_in_prose_commands_nothing() {
    let table: &[Case] = &[
        ("RUST BOOK AND SEARCH", "(rust book search)", &[]),
        ("RUST NOT SEARCH ENGINES", "(rust search engin)", &[]),
        ("RUST AND SEARCH", "(+[rust search])", &[]),
        ("RUST Book AND SEARCH", "(+[book search] rust)", &[]),
        ("RUST | BOOK | SEARCH WEB", "(rust book search web)", &[]),
        (
            "web web web web web web web web web web \"rust book\" \"search engines\"~1",
            "(+[\"search engin\"~1] web^10 rust book)",
            &["quotes_cite"],
        ),
        ("web web web web web web web web web \"rust book\"", "(+[\"rust book\"] web^9)", &[]),
        ("web web web web web web web web web web +\"rust book\"", "(+[\"rust book\"] web^10)", &[]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn an_operator_without_its_sides_is_a_word() {
    let table: &[Case] = &[
        ("Portland OR", "portland", &["dangling_operator"]),
        ("OR", "or", &["dangling_operator"]),
        ("AND", "and", &["dangling_operator"]),
        ("NOT", "not", &["dangling_operator"]),
        ("rust OR OR search", "(rust search)", &["dangling_operator"]),
        ("rust (NOT) search", "(rust search)", &["dangling_operator"]),
        ("|", "NONE", &["empty_query"]),
        ("rust and search or web", "(rust search web)", &[]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn fields_are_those_of_the_schema() {
    let table: &[Case] = &[
        ("title:rust", "title:rust", &[]),
        ("TITLE:rust search", "(+[title:rust] search)", &[]),
        ("title:\"rust book\"~2", "title:\"rust book\"~2", &[]),
        ("title:(rust book)", "(title:rust title:book)", &[]),
        ("title:(rust \"search engines\") web", "(+[(+[title:\"search engin\"] title:rust)] web)", &[]),
        ("title:(rust (book OR web))", "(title:rust title:book title:web)", &[]),
        ("search -title:(rust book)", "(search -[(title:rust title:book)])", &[]),
        ("title:rust^2 title:ru*", "(+[title:rust^2 title:<rust>])", &[]),
        ("text:rust", "rust", &[]),
        ("body:rust", "rust", &["field_not_searchable"]),
        ("body:\"rust book\"", "\"rust book\"", &["field_not_searchable"]),
        ("foo:bar rust", "(foo bar rust)", &["unknown_field"]),
        ("foo:\"rust book\"", "(foo rust book)", &["unknown_field"]),
        ("attributes:red", "(attribut red)", &["unknown_field"]),
        ("title: rust", "(titl rust)", &[]),
        ("title:>3", "(titl 3)", &[]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn values_and_ranges_are_filters() {
    let table: &[Case] = &[
        ("host:example.org", "(#[host=example.org])", &[]),
        ("rust host:example.org,", "(rust #[host=example.org] ~1)", &[]),
        ("host:exam*", "(#[host>=exam<exan])", &[]),
        ("host:\"exam*\"", "(#[host=exam*])", &[]),
        ("host:e*m*", "(host e m)", &["bad_value"]),
        ("url:https://a.example/b?c=d#e", "(#[url=https://a.example/b?c=d#e])", &[]),
        ("rust -host:example.org", "(rust -[host=example.org])", &[]),
        ("site:example.org rust", "(rust #[host=example.org|www.example.org] ~1)", &[]),
        ("price:>5", "(#[price>5f])", &[]),
        ("price:>=5 price:<=9 price:<8", "(#[price>=5f price<=9f price<8f])", &[]),
        ("price:[1 TO 2.5}", "(#[price>=1f<2.5f])", &[]),
        ("price:{1 TO *]", "(#[price>1f])", &[]),
        ("stock:[-1 TO 5.5]", "(#[stock>=-1<=5.5f])", &[]),
        ("level:-3 stock:18446744073709551615", "(#[level=-3 stock=18446744073709551615u])", &[]),
        ("open:TRUE", "(#[open=true])", &[]),
        ("attributes.color:red", "(#[attributes.color=red])", &[]),
        (
            "attributes.size:[1 TO 5] attributes.size:<2.5",
            "(#[attributes.size>=1<=5 attributes.size<2.5f])",
            &[],
        ),
        ("attributes.name:[a TO b]", "(#[attributes.name>=a<=b])", &[]),
        ("published:2024-03", "(#[published>=@1709251200<@1711929600])", &[]),
        ("published:[2024-01-01 TO 2024-02-01}", "(#[published>=@1704067200<@1706745600])", &[]),
        ("published:{2024-01 TO 2024-03]", "(#[published>=@1706745600<@1711929600])", &[]),
        ("published:>2024-03-30", "(#[published>=@1711843200])", &[]),
        ("published:<=2024-03-30", "(#[published<@1711843200])", &[]),
        ("published:>=now-1d", "(#[published>=@1711800000])", &[]),
        ("published:\"2024-03-30 10:00\"", "(#[published>=@1711792800<@1711792860])", &[]),
        ("published:soon", "(publish soon)", &["bad_value"]),
        ("price:abc rust", "(price abc rust)", &["bad_value"]),
        ("rust -price:abc", "rust", &["bad_value"]),
        ("price:[5 TO 1]", "(price 5 1)", &["bad_range"]),
        ("price:[5, 1]", "(price 5 1)", &["bad_range"]),
        ("published:[2024 TO 2020]", "(publish 2024 2020)", &["bad_range"]),
        ("open:[false TO true]", "(open fals true)", &["bad_range"]),
        ("title:[a TO b]", "(titl b)", &["bad_range"]),
        ("lang:en OR lang:de", "(#[(#[lang=en] #[lang=de])])", &[]),
    ];
    let fixture = Fixture::new();
    for (text, message, warnings) in table {
        let parsed = fixture.text(text);
        let shown = show(&parsed.query);
        // a single filter needs no node of its own inside an alternative
        let expected = message.replace("(#[lang=en] #[lang=de])", "(lang=en lang=de)");
        assert_eq!(
            (shown.as_str(), codes(&parsed.warnings).as_slice()),
            (expected.as_str(), *warnings),
            "{text}"
        );
    }
}

#[test]
fn values_of_a_group_are_alternatives_and_filters() {
    let table: &[Case] = &[
        ("lang:(en de) rust", "(rust #[(lang=en lang=de)] ~1)", &[]),
        ("host:(\"a b\" c*) rust", "(rust #[(host=a b host>=c<d)] ~1)", &[]),
        ("rust -lang:(en de)", "(rust -[(lang=en lang=de)])", &[]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn an_empty_query_finds_nothing() {
    let table: &[Case] = &[
        ("", "NONE", &["empty_query"]),
        (" \t\u{3000}\0", "NONE", &["empty_query"]),
        ("!!! ... ???", "NONE", &["empty_query"]),
        ("*", "NONE", &["pattern_too_short", "empty_query"]),
        ("** ?*?", "NONE", &["pattern_too_short", "empty_query"]),
        ("- *", "NONE", &["pattern_too_short", "empty_query"]),
        ("() (()) \"\"", "NONE", &["empty_query"]),
        ("-rust", "NONE", &["only_negatives"]),
        ("NOT rust -host:example.org", "NONE", &["only_negatives"]),
        ("-(rust search)", "NONE", &["only_negatives"]),
    ];
    check(&Fixture::new(), table);
    assert!(Fixture::new().text("-rust").finds_nothing());
}

#[test]
fn patterns_and_fuzzy_words_expand() {
    let table: &[Case] = &[
        ("ru*", "<run|rust>", &[]),
        ("RU*", "<run|rust>", &[]),
        ("sear*h", "<search>", &[]),
        ("w?o", "<who>", &[]),
        ("+ru* search", "(+[<run|rust>] search)", &[]),
        ("search -ru*", "(search -[<run|rust>])", &[]),
        ("ru*^3", "<run|rust>^3", &[]),
        ("what? rust?", "rust", &[]),
        ("xyz*", "xyz", &["no_expansion"]),
        ("running*", "run", &["no_expansion"]),
        ("+running*", "run", &["no_expansion"]),
        ("serch~", "<search>^0.5", &[]),
        ("rust~1", "(rust <rost|rust>^0.5)", &[]),
        ("memory~1", "memori", &[]),
        ("rust~2", "(rust <rost|rust>^0.16666666 <rost|run|rust>^0.33333334)", &[]),
        ("rust~7", "(rust <rost|rust>^0.16666666 <rost|run|rust>^0.33333334)", &["fuzzy_limited"]),
        ("rust~0 ab~ 12~ ~rust", "(rust^2 ab 12)", &[]),
        ("**rust** a*b+c", "(rust b c)", &["pattern_ignored"]),
    ];
    check(&Fixture::new(), table);
}

#[test]
fn min_should_match_counts_plain_words() {
    let fixture = Fixture::new();
    let table = [
        ("rust book web", 1, "(rust book web)"),
        ("rust book web", 2, "(rust book web ~2)"),
        ("rust book web", 3, "(+[rust book web])"),
        ("rust book web", 9, "(+[rust book web])"),
        ("the rust book", 2, "(+[rust book])"),
        ("rust rust book", 2, "(+[rust^2 book])"),
        ("rust book OR web", 2, "(+[rust (book web)])"),
        ("+rust book web", 1, "(+[rust] book web ~1)"),
        ("+rust book web", 2, "(+[rust book web])"),
        ("rust book web -who", 2, "(rust book web -[who] ~2)"),
        ("rust book site:a.example", 2, "(+[rust book] #[host=a.example|www.a.example])"),
        ("认证系统", 2, "(认证 证系 系统 ~2)"),
        ("state-of-the-art search", 2, "(state art search ~2)"),
    ];
    for (text, wanted, message) in table {
        assert_eq!(show(&fixture.filtered(text, &[], wanted).query), message, "{text} {wanted}");
    }
    let warned = fixture.filtered("rust book", &[], 3).warnings;
    assert_eq!(codes(&warned), ["min_should_match"]);
}

#[test]
fn texts_that_mean_the_same_have_one_key() {
    let fixture = Fixture::new();
    let key = |text: &str| fixture.text(text).key();
    assert_eq!(key("Rust  search"), key("(RUST) | search"));
    assert_ne!(key("rust search"), key("search rust"));
    assert_ne!(key("rust"), key("+rust search"));
}
