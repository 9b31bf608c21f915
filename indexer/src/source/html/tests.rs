//! Tests of `html`: what its module comment promises.

use super::*;

fn page(html: &str) -> Page {
    read(html).unwrap()
}

fn body(html: &str) -> String {
    page(html).body
}

#[test]
fn a_page_becomes_text() {
    let page = page(
        "<!doctype html><html lang=\"de-AT\"><head><title> Ein &amp;\n Titel </title>\
         <link rel=\"x Canonical\" href=\"/a?b=1&amp;c=2\"><base href=\"https://e.org/\"><style>p{}</style>\
         <script>var a = '<p>no</p>';</script></head><body><h1>Gr&ouml;&szlig;e</h1><p>Ein <b>f</b>etter\n\
         &nbsp; Satz.<p>Zweiter<br>Zeile<ul><li>eins<li>zwei</ul><table><tr><td>a<td>b</table>\
         <a href=\"x.html\">Ein <i>Link</i></a> Ende</body></html>",
    );
    assert_eq!(page.title, "Ein & Titel");
    assert_eq!(page.body, "Größe\nEin fetter Satz.\nZweiter\nZeile\neins\nzwei\na b\nEin Link Ende");
    assert_eq!(page.language.as_deref(), Some("de-AT"));
    assert_eq!(page.canonical.as_deref(), Some("/a?b=1&c=2"));
    assert_eq!(page.base.as_deref(), Some("https://e.org/"));
    assert_eq!(page.links, [("x.html".to_owned(), "Ein Link".to_owned())]);
}

#[test]
fn what_is_not_seen_is_dropped() {
    for unseen in [
        "<script>x</script>",
        "<script>x<!--<script>x</script>--></script>",
        "<style>x</style>",
        "<noscript><p>x</p></noscript>",
        "<template><p>x</p></template>",
        "<svg><title>x</title><text>x</text></svg>",
        "<nav><ul><li>x</ul></nav>",
        "<select><option>x</select>",
        "<textarea>x</textarea>",
        "<iframe>x</iframe>",
        "<div hidden><p>x</div>",
        "<!-- x -->",
        "<![CDATA[ x ]]>",
        "<input hidden value=x>",
        "<nav><nav>x</nav>x</nav>",
    ] {
        let text = body(&format!("<p>before</p>{unseen}<p>after</p>"));
        assert_eq!(text, "before\nafter", "{unseen}");
    }
    assert_eq!(body("a<svg><path/></svg>b"), "a\nb");
    assert_eq!(body("so&shy;ft hy\u{ad}phen"), "soft hyphen");
    assert_eq!(body("\u{feff}<p>\u{feff}mark"), "mark");
}

#[test]
fn a_missing_end_tag_drops_nothing() {
    assert_eq!(body("<p>one<nav>menu<p>two"), "one\nmenu\ntwo");
    assert_eq!(body("<div hidden>one<p>two"), "one\ntwo");
    assert_eq!(body("<div><nav>menu</div><p>two"), "two");
    assert_eq!(body("<b><p>one</b>two</i></p></div>three"), "onetwo\nthree");
    assert_eq!(body("one <b"), "one");
    assert_eq!(body("one <!-- two"), "one");
}

#[test]
fn pages_without_text_use_what_they_have() {
    assert_eq!(body("<nav><a href=a>Home</a></nav>"), "Home");
    assert_eq!(body("<meta name=Description content=\"A &lt;shop&gt;\"><nav>Home</nav>"), "A <shop>");
    let page = page("<meta property=og:title content=Name><svg><title>Icon</title></svg>");
    assert_eq!(page.title, "Name");
    assert_eq!(self::page("<svg><title>Icon</title></svg><p>x</p><title>Late</title>").title, "Late");
    assert_eq!(self::page("<title>One</title><title>Two</title>").title, "One");
    assert_eq!(body(""), "");
    assert_eq!(body("just text & more &unknown; &#x41;&#66; &copy"), "just text & more &unknown; AB ©");
}

#[test]
fn links_have_the_text_that_is_clicked() {
    let links = page(
        "<a name=here>anchor</a><a href=a>one<a href=b>two</a><a href=c></a><a href='d'><img alt='a picture'></a>\
         <a href=e>line<br>break</a><nav><a href=f>menu</a></nav><a href=\" g?x=1&amp;y \">last",
    )
    .links;
    let links: Vec<_> = links.iter().map(|(address, text)| (address.as_str(), text.as_str())).collect();
    assert_eq!(
        links,
        [
            ("a", "one"),
            ("b", "two"),
            ("d", "a picture"),
            ("e", "line break"),
            ("f", "menu"),
            ("g?x=1&y", "last")
        ]
    );
    let many = page(&"<a href=x>y</a>".repeat(MAX_LINKS + 1));
    assert_eq!(many.links.len(), MAX_LINKS);
    let long = page(&format!("<a href=x>{}", "word ".repeat(10_000)));
    assert!(long.links[0].1.len() <= MAX_LINK_TEXT && long.body.len() > 49_000);
}

#[test]
fn entities_and_characters_may_lie_across_parts() {
    for shift in 0..12 {
        let html = format!("<p>{}&auml;日本</p>", "a".repeat((64 << 10) - shift));
        assert!(body(&html).ends_with("aä日本"), "{shift}");
    }
}

#[test]
fn hostile_pages_end_in_time() {
    assert!(body(&"<div>".repeat(100_000)).is_empty());
    assert!(body(&"<nav>x".repeat(10_000)).len() > 10_000);
    assert!(body(&"<".repeat(1_000_000)).len() <= 1_000_000);
    assert_eq!(page(&format!("<title>{}", "t".repeat(1_000_000))).title.len(), MAX_TITLE - 1);
    body(&format!("<p {}>x</p>", "a=b ".repeat(100_000)));
    body(&"&#99999999999999;&#xd800;&#0;".repeat(1000));
    body(&"\0<\0p>\u{feff}".repeat(1000));
    let attribute = page(&format!("<a href=\"{}\">x</a>", "y".repeat(1_000_000)));
    assert_eq!(attribute.links.len(), 1);
}
