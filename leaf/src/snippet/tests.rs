//! Snippets of difficult texts; every one is checked for what must always hold.

use canopy_common::rng::Dice;
use canopy_proto::v1::{ExpandedQuery, PhraseQuery, PhraseTokens, Query, TermQuery, query::Node};
use unicode_segmentation::UnicodeSegmentation;

use super::{terms::tests as queries, *};

fn by(max_chars: u32) -> SnippetBy {
    SnippetBy { max_chars, open: "<b>".into(), close: "</b>".into() }
}

/// The query that the root makes of plain words.
fn words(text: &str, language: &str) -> Query {
    let terms = Analyzer::new().query(text, &[language]).into_iter().map(|word| {
        let node = TermQuery { field: "text".into(), tokens: word.forms, boost: 0.0 };
        Query { node: Some(Node::Term(node)) }
    });
    queries::any(terms.collect())
}

fn make(by: &SnippetBy, query: &Query, text: &str, language: &str) -> Snippet {
    let snippets = Snippets::new(Analyzer::new(), by, 128 << 10).unwrap();
    let terms = Terms::of(query, &["text", "body"], None);
    let snippet = snippets.make(&terms, text, language, &|| false);
    check(&snippet, by, text);
    snippet
}

fn snippet(query: &str, text: &str) -> Snippet {
    make(&by(120), &words(query, "en"), text, "en")
}

/// What holds for every snippet: bounded, only our markers are live, ranges and markers agree, no grapheme is cut.
fn check(snippet: &Snippet, by: &SnippetBy, text: &str) {
    let chars = if by.max_chars == 0 { DEFAULT_CHARS } else { by.max_chars } as usize;
    assert!(snippet.text.chars().count() <= chars + 40, "{} characters: {snippet:?}", snippet.text.len());
    let mut inside = 0;
    let mut rebuilt = String::new();
    for range in &snippet.ranges {
        rebuilt.push_str(&snippet.text[inside..range.start as usize]);
        rebuilt.push('\u{1}');
        rebuilt.push_str(&snippet.text[range.start as usize..range.end as usize]);
        rebuilt.push('\u{2}');
        inside = range.end as usize;
    }
    rebuilt.push_str(&snippet.text[inside..]);
    let escaped = rebuilt
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;");
    if by.open == "<b>" {
        assert_eq!(snippet.html, escaped.replace('\u{1}', &by.open).replace('\u{2}', &by.close));
    }
    if text.len() > 100_000 {
        return;
    }
    let whole: Vec<&str> = text.graphemes(true).collect();
    for grapheme in snippet.text.graphemes(true).filter(|g| g.chars().count() > 1 && g.len() < 100) {
        assert!(whole.contains(&grapheme), "{grapheme:?} is no grapheme of the text");
    }
}

#[test]
fn shows_the_part_with_the_words_and_marks_them() {
    let filler = "Nothing of interest stands in this sentence. ".repeat(40);
    let text = format!("{filler}The quick brown foxes were jumping over lazy dogs. {filler}");
    let found = snippet("fox jumps", &text);
    assert!(found.html.starts_with("… "), "{}", found.html);
    assert!(found.html.contains("brown <b>foxes</b> were <b>jumping</b> over"), "{}", found.html);
    assert!(found.html.ends_with(" …"));
    let shown = found.ranges.iter().map(|range| &found.text[range.start as usize..range.end as usize]);
    assert_eq!(shown.collect::<Vec<_>>(), ["foxes", "jumping"]);
}

#[test]
fn words_that_stand_far_apart_get_a_fragment_each() {
    let filler = "lorem ipsum dolor sit amet ".repeat(60);
    let text = format!("Zebras live here. {filler} Giraffes live there. {filler}");
    let found = snippet("zebra giraffe", &text);
    assert_eq!(found.html.matches("<b>").count(), 2, "{}", found.html);
    assert!(found.text.contains(" … "), "{}", found.text);
}

#[test]
fn a_whole_phrase_beats_its_words_alone() {
    let text =
        format!("New ideas from York. {} A day in New York city. End.", "filler words here ".repeat(30));
    let found = make(&by(60), &queries::phrase(&["new", "york"]), &text, "en");
    assert!(found.html.contains("<b>New</b> <b>York</b> city"), "{}", found.html);
}

#[test]
fn only_our_markers_are_live() {
    let text = "<script>alert(1)</script> xuxu <b>bold</b> & \"quoted\" 'single'";
    let found = snippet("xuxu", text);
    assert_eq!(
        found.html,
        "&lt;script&gt;alert(1)&lt;/script&gt; <b>xuxu</b> &lt;b&gt;bold&lt;/b&gt; &amp; &quot;quoted&quot; \
         &#39;single&#39;"
    );
    assert_eq!(found.text, text);
    // Escaping does not depend on a match, nor on markers.
    let plain = SnippetBy { max_chars: 120, open: String::new(), close: String::new() };
    let found = make(&plain, &words("nothing", "en"), text, "en");
    assert!(!found.html.contains(['<', '>']) && found.ranges.is_empty());
}

#[test]
fn a_document_can_not_fake_a_marker() {
    let stars = SnippetBy { max_chars: 100, open: "**".into(), close: "*/*".into() };
    let found = make(&stars, &words("real", "en"), "a **fake** and a real */* one", "en");
    assert_eq!(found.html, "a &#42;&#42;fake&#42;&#42; and a **real*/* &#42;/&#42; one");
    for bad in ["mark", "&", "  ", "12;"] {
        let by = SnippetBy { open: bad.into(), ..by(100) };
        let failure = Snippets::new(Analyzer::new(), &by, 1 << 20).err().unwrap();
        assert_eq!(failure.field.as_deref(), Some("snippet.open"), "{bad}");
    }
    let long = SnippetBy { close: "<".repeat(65), ..by(100) };
    assert_eq!(Snippets::new(Analyzer::new(), &long, 1 << 20).err().unwrap().limit, Some(64));
}

#[test]
fn entities_and_tags_in_the_text_are_not_matches() {
    let text = "Tom &amp; Jerry &lt;3 <a href=\"/amp\">amp and href links</a>";
    let found = snippet("amp href", text);
    assert_eq!(found.html.matches("<b>amp</b> and <b>href</b>").count(), 1, "{}", found.html);
    assert_eq!(found.ranges.len(), 2, "{}", found.html);
    let found = snippet("stdio", "#include <stdio.h> is a line of C");
    assert_eq!(found.ranges.len(), 1, "{}", found.html);
}

#[test]
fn pairs_of_letters_that_overlap_are_marked_whole() {
    for (language, query, text, marked) in [
        ("ja", "データベース", "これはデータセットです", "<b>データ</b>セット"),
        ("zh", "数据库", "这个数据库是新的", "这个<b>数据库</b>是新的"),
        ("ko", "데이터", "데이터베이스 양식", "<b>데이터</b>베이스"),
    ] {
        let found = make(&by(120), &words(query, language), text, language);
        assert!(found.html.contains(marked), "{}", found.html);
        assert_eq!(found.ranges.len(), 1, "{}", found.html);
    }
}

#[test]
fn emoji_and_joined_graphemes_stay_whole() {
    let family = "👩\u{200d}👩\u{200d}👧";
    let text = format!("{} pear 🍐 {}", family.repeat(50), "🇩🇪🇫🇷".repeat(40));
    for chars in 1..80 {
        make(&by(chars), &words("pear", "en"), &text, "en");
    }
    let found = snippet("🍐", "a pear 🍐 here");
    assert_eq!(found.html, "a pear <b>🍐</b> here");
    let accents = format!("e{} x", "\u{301}".repeat(5000));
    assert!(make(&by(20), &words("x", "en"), &accents, "en").text.chars().count() <= 60);
}

#[test]
fn text_without_spaces_is_found_and_cut() {
    let text =
        format!("{}東京都に住んでいます。{}", "これは長い文章です。".repeat(60), "まだ続きます。".repeat(60));
    let found = make(&by(60), &words("東京", "ja"), &text, "ja");
    assert!(found.html.contains("<b>東京"), "{}", found.html);
    let found = make(&by(40), &words("清华大学", "zh"), "我在清华大学学习计算机", "zh");
    assert!(found.html.contains("<b>清华"), "{}", found.html);
    let thai = "ภาษาไทยเป็นภาษาที่ไม่มีช่องว่างระหว่างคำ".repeat(30);
    make(&by(50), &words("ภาษา", "th"), &thai, "th");
}

#[test]
fn nothing_to_show_and_nothing_to_find() {
    assert_eq!(snippet("word", ""), Snippet::default());
    assert_eq!(snippet("word", " \n\t "), Snippet::default());
    assert_eq!(snippet("word", "word").html, "<b>word</b>");
    let lead = snippet("absent", &"The beginning of the text. ".repeat(20));
    assert!(lead.html.starts_with("The beginning") && lead.html.ends_with(" …"), "{}", lead.html);
    assert!(lead.ranges.is_empty());
    let none = queries::any(vec![]);
    assert!(make(&by(50), &none, "some text", "en").html.starts_with("some text"));
}

#[test]
fn an_expansion_of_any_size_is_marked_or_falls_back_to_the_lead() {
    let tokens: Vec<String> = (0..2000).map(|n| format!("comp{n}")).collect();
    let query = |tokens: Vec<String>| Query {
        node: Some(Node::Expanded(ExpandedQuery {
            field: "text".into(),
            tokens,
            truncated: true,
            ..Default::default()
        })),
    };
    let found = make(&by(80), &query(tokens.clone()), "see comp77 and comp1999", "en");
    assert_eq!(found.html, "see <b>comp77</b> and <b>comp1999</b>");
    let lead = make(&by(80), &query(tokens), "computers are elsewhere", "en");
    assert_eq!(lead.html, "computers are elsewhere");
}

#[test]
fn a_huge_body_is_looked_at_only_so_far() {
    let text = format!("needle at once. {} needle", "hay ".repeat(3 << 20));
    let start = tokio::time::Instant::now();
    let found = snippet("needle", &text);
    assert!(found.html.starts_with("<b>needle</b> at once"), "{}", found.html);
    let found = snippet("needle pin", &text);
    assert!(found.html.starts_with("<b>needle</b> at once"), "{}", found.html);
    let newlines = format!("{}end", "\n".repeat(1 << 20));
    assert_eq!(snippet("end", &newlines).html, "<b>end</b>");
    let control = "\u{0}\u{1}\u{202e}word\u{7}".repeat(20);
    assert!(!snippet("word", &control).text.contains(['\u{0}', '\u{202e}', '\u{7}']));
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn stopping_shows_what_was_found_so_far() {
    let snippets = Snippets::new(Analyzer::new(), &by(80), 1 << 20).unwrap();
    let terms = Terms::of(&words("late", "en"), &["text"], None);
    let text = format!("{} late", "early words ".repeat(9000));
    let stopped = snippets.make(&terms, &text, "en", &|| true);
    assert!(stopped.html.starts_with("early words") && stopped.ranges.is_empty());
}

#[test]
fn random_texts_keep_the_promises() {
    let pieces = [
        "word",
        "fox",
        "red",
        "<b>",
        "&amp;",
        " ",
        "  ",
        "\n",
        "é",
        "e\u{301}",
        "日本",
        "語",
        "🍐",
        "👨\u{200d}👩",
        ".",
        "。",
        "\u{0}",
        "ﬁ",
        "İ",
        "ß",
        "ไทย",
        "\u{202e}",
        "\"",
        "a-b",
        "x".repeat(40).leak() as &str,
    ];
    let dice = Dice::seeded(5);
    for _ in 0..2000 {
        let text: String =
            (0..dice.below(60)).map(|_| pieces[dice.below(pieces.len() as u64) as usize]).collect();
        let query = ["fox", "word red", "日本", "e", "🍐 fox", "x"][dice.below(6) as usize];
        let language = ["en", "ja", "th", "xx", ""][dice.below(5) as usize];
        let query = words(query, language);
        let snippets = Snippets::new(Analyzer::new(), &by(1 + dice.below(60) as u32), 128).unwrap();
        let terms = Terms::of(&query, &["text"], None);
        let found = snippets.make(&terms, &text, language, &|| false);
        assert!(found.ranges.iter().all(|range| range.start < range.end
            && found.text.is_char_boundary(range.start as usize)
            && found.text.is_char_boundary(range.end as usize)));
        assert!(!found.text.contains(['\u{0}', '\u{202e}']), "{found:?}");
    }
}

#[test]
fn positions_of_any_size_are_only_positions() {
    let text = "hot standby and again hot standby";
    for positions in [[0, u32::MAX], [u32::MAX, 0], [7, 8], [u32::MAX, u32::MAX]] {
        let tokens = ["hot", "standbi"].map(str::to_owned).to_vec();
        let alternatives = vec![PhraseTokens { tokens, positions: positions.to_vec() }];
        let node = PhraseQuery { field: "text".into(), alternatives, slop: 0, boost: 0.0 };
        let found = make(&by(120), &Query { node: Some(Node::Phrase(node)) }, text, "en");
        assert_eq!(found.ranges.len(), 4, "{found:?}");
    }
}
