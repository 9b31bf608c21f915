//! The frame of every page: head, search box, foot; and the page before the first search.

use canopy_format::manifest::Manifest;

use super::{
    html::{escape, grouped, put},
    languages,
    view::View,
};

/// Example queries shown at the start.
const EXAMPLES: usize = 6;
/// Languages named at the start.
const LANGUAGES: usize = 12;

/// What may stand in the box.
const TIPS: &str = r#"<details class="tips"><summary>Search tips</summary><dl>
<dt><code>"logical replication"</code></dt><dd>these words in a row</dd>
<dt><code>+index gin</code></dt><dd>“index” must be there</dd>
<dt><code>vacuum -full</code></dt><dd>“full” must not be there</dd>
<dt><code>replicatio*</code></dt><dd>words that begin so</dd>
<dt><code>vaccum~</code></dt><dd>words spelled nearly so</dd>
<dt><code>title:backup</code></dt><dd>in the title</dd>
<dt><code>site:rust-doc.debian.example</code></dt><dd>from this site</dd>
<dt><code>lang:de</code></dt><dd>in this language</dd>
</dl></details>"#;

/// A whole document. `body` is HTML.
pub fn document(title: &str, class: &str, body: &str) -> String {
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/search.css">
<script src="/assets/search.js" defer></script>
</head>
<body class="{class}">
<a class="skip" href="#content">Skip to the results</a>
{body}
</body>
</html>
"##,
        title = escape(title),
    )
}

/// The search box with the corpus choice.
pub fn search_box(view: &View, focus: bool) -> String {
    let mut corpora = String::new();
    if view.corpora.len() > 1 {
        corpora +=
            "<label class=\"hidden\" for=\"corpus\">Corpus</label><select id=\"corpus\" name=\"corpus\">";
        for corpus in &view.corpora {
            let name = &corpus.manifest.corpus;
            let chosen = if *name == view.corpus { " selected" } else { "" };
            put!(corpora, "<option{chosen}>{}</option>", escape(name));
        }
        corpora += "</select>";
    }
    let mut filters = String::new();
    for filter in &view.filters {
        put!(filters, "<input type=\"hidden\" name=\"filter\" value=\"{}\">", escape(filter));
    }
    format!(
        r#"<form class="box" role="search" action="/" method="get">
<label class="hidden" for="q">Search</label>
<input id="q" name="q" type="search" value="{q}" maxlength="2000" placeholder="Search" autocomplete="off" autocapitalize="off" spellcheck="false" enterkeyhint="search"{focus}>
{filters}{corpora}<button type="submit">Search</button>
</form>"#,
        q = escape(&view.q),
        focus = if focus { " autofocus" } else { "" },
    )
}

/// Name and search box at the top of results.
pub fn top(view: &View) -> String {
    format!(
        r#"<header class="top"><a class="brand" href="/" aria-label="Canopy, start page"><img src="/assets/icon.svg" alt="" width="28" height="28"><span>Canopy</span></a>
{}</header>"#,
        search_box(view, false)
    )
}

/// Queries to try, from the manifest.
fn examples(view: &View, manifest: &Manifest) -> String {
    let mut items = String::new();
    for text in manifest.warmup.iter().take(EXAMPLES) {
        let address = View { q: text.clone(), ..view.clone() }.address();
        put!(items, "<li><a class=\"chip\" href=\"{}\">{}</a></li>", escape(&address), escape(text));
    }
    if items.is_empty() {
        return items;
    }
    format!("<nav aria-label=\"Examples\"><ul class=\"chips\">{items}</ul></nav>")
}

/// Size and languages of the corpus.
fn facts(manifest: &Manifest) -> String {
    let mut codes: Vec<_> = manifest.languages.iter().collect();
    codes.sort_by_key(|(code, count)| (std::cmp::Reverse(**count), *code));
    let more = codes.len().saturating_sub(LANGUAGES);
    let names: Vec<String> = codes
        .iter()
        .take(LANGUAGES)
        .map(|(code, _)| format!("<span class=\"whole\">{}</span>", escape(languages::name(code))))
        .collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "<p class=\"facts\">{} documents in <b>{}</b>, {}<br>{}{more}</p>",
        grouped(manifest.documents()),
        escape(&manifest.corpus),
        manifest.version,
        names.join(" · "),
    )
}

/// The page before the first search.
pub fn home(view: &View) -> String {
    let mut below = String::new();
    for reason in &view.opening {
        put!(below, "<p class=\"notice\" role=\"status\">Not open yet: {}</p>", escape(reason));
    }
    if view.corpora.is_empty() && view.opening.is_empty() {
        below += "<p class=\"notice\" role=\"status\">No corpus is served here yet.</p>";
    }
    if let Some(corpus) = view.state() {
        below += &examples(view, &corpus.manifest);
        below += &facts(&corpus.manifest);
    }
    let body = format!(
        r#"<main id="content" class="hero">
<h1><img src="/assets/icon.svg" alt="" width="56" height="56">Canopy</h1>
{}
{below}
{TIPS}
</main>"#,
        search_box(view, true)
    );
    document("Canopy search", "home", &body)
}
