//! Results, the page without any, and the page of a search that failed.

use serde_json::Value;

use super::{
    explain, facets,
    html::{encode, escape, grouped, link, marked, put, sentence},
    languages, notices, pager, shell,
    view::{PAGE, View},
};
use crate::{
    answer::{Answer, Hit},
    error::Error,
};

/// Longest address written, characters; the style cuts it to the width of the screen.
const ADDRESS: usize = 200;

/// The page of an answer.
pub fn page(view: &View, answer: &Answer) -> String {
    let list = if answer.hits.is_empty() { nothing(view, answer) } else { hits(view, answer) };
    let column = facets::column(view, answer);
    let body = format!(
        r#"{top}
<main id="content" class="{layout}">
<h1 class="hidden">{title}</h1>
<div class="status"><p class="count">{count}</p>{active}</div>
{notices}
<div class="results">
{list}
{pager}
</div>
{column}
</main>
{foot}"#,
        top = shell::top(view),
        title = escape(&title(view)),
        layout = if column.is_empty() { "plain" } else { "split" },
        count = count(view, answer),
        active = facets::active(view),
        notices = format_args!("<div class=\"notices\">{}</div>", notices::block(view, answer)),
        pager = pager::nav(view, answer),
        foot = foot(view, answer),
    );
    shell::document(&title(view), "search", &body)
}

fn title(view: &View) -> String {
    let text: String = view.q.chars().take(60).collect();
    if text.trim().is_empty() { "Canopy search".to_owned() } else { format!("{text} – Canopy search") }
}

fn count(view: &View, answer: &Answer) -> String {
    let total = &answer.total;
    let place = if view.page > 1 { format!(" · page {}", view.page) } else { String::new() };
    let took = answer.took_ms.max(1.0);
    if total.value == 0 && total.lower_bound {
        return format!("<b>0</b> results in what was searched, in {took:.0} ms{place}");
    }
    let plus = if total.lower_bound { " or more" } else { "" };
    let noun = if total.value == 1 && plus.is_empty() { "result" } else { "results" };
    format!("<b>{}{plus}</b> {noun} in {took:.0} ms{place}", grouped(total.value))
}

fn hits(view: &View, answer: &Answer) -> String {
    let first = (view.page - 1) * PAGE + 1;
    let mut items = String::new();
    for (i, shown) in answer.hits.iter().enumerate() {
        put!(items, "<li>{}</li>", hit(view, shown, i as u32 + 1));
    }
    format!("<ol class=\"hits\" start=\"{first}\">{items}</ol>")
}

fn hit(view: &View, hit: &Hit, number: u32) -> String {
    if hit.summary_missing {
        return format!(
            "<article class=\"hit missing\" id=\"hit-{number}\"><h2>A result whose text did not arrive in time</h2>\
             <p class=\"meta\">shard {} · document {}</p></article>",
            escape(&hit.shard),
            escape(&hit.key_hash),
        );
    }
    let language = field(hit, "lang");
    let name = if hit.title.trim().is_empty() { hit.key.as_str() } else { hit.title.as_str() };
    let language_attribute =
        if language.is_empty() { String::new() } else { format!(" lang=\"{}\"", escape(language)) };
    let heading = match link(&hit.key) {
        Some(address) => {
            format!(
                "<a class=\"go\" href=\"{}\" rel=\"noopener noreferrer nofollow\">{}</a>",
                escape(address),
                escape(name)
            )
        }
        None => escape(name),
    };
    let snippet = marked(&hit.snippet_text, &hit.snippet_ranges);
    format!(
        r#"<article class="hit" id="hit-{number}">
<p class="address">{address}</p>
<h2{language_attribute} dir="auto">{heading}</h2>
<p class="snippet"{language_attribute} dir="auto">{snippet}</p>
<p class="meta">{meta}</p>{why}
</article>"#,
        address = escape(&address(&hit.key)),
        meta = meta(view, hit, number),
        why = why(hit, view.explain == number),
    )
}

fn field<'a>(hit: &'a Hit, name: &str) -> &'a str {
    hit.fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// `example.org › docs › page`.
fn address(key: &str) -> String {
    let bare = key.split_once("://").map_or(key, |(_, rest)| rest);
    let path = bare.split(['?', '#']).next().unwrap_or(bare).trim_end_matches('/');
    let text = path.replace('/', " › ");
    if text.chars().count() > ADDRESS { text.chars().take(ADDRESS).chain(['…']).collect() } else { text }
}

fn meta(view: &View, hit: &Hit, number: u32) -> String {
    let mut parts = Vec::new();
    let language = field(hit, "lang");
    if !language.is_empty() {
        parts.push(format!("<span>{}</span>", escape(languages::name(language))));
    }
    let published = field(hit, "published");
    if let Some(day) = published.get(..10) {
        parts.push(format!("<time datetime=\"{0}\">{0}</time>", escape(day)));
    }
    if hit.explain.is_none() {
        let explained = View { explain: number, ..view.clone() };
        parts.push(format!(
            "<a class=\"why\" href=\"{}#hit-{number}\" rel=\"nofollow\">Why this result?</a>",
            escape(&explained.address())
        ));
    }
    parts.join(" · ")
}

fn why(hit: &Hit, open: bool) -> String {
    hit.explain.as_ref().map_or_else(String::new, |breakdown| {
        format!(
            "<details class=\"explain\"{}><summary>Why this result: score {:.2}</summary>{}</details>",
            if open { " open" } else { "" },
            hit.score,
            explain::block(breakdown)
        )
    })
}

fn nothing(view: &View, answer: &Answer) -> String {
    let mut hints = Vec::new();
    if view.page > 1 {
        let first = escape(&view.at(1).address());
        return format!(
            "<section class=\"empty\"><h2>There is no page {}</h2><p><a href=\"{first}\">Back to the first page</a></p></section>",
            view.page
        );
    }
    if !view.filters.is_empty() {
        let plain = View { filters: Vec::new(), ..view.clone() };
        hints.push(format!(
            "<li><a href=\"{}\">Search without the filters</a></li>",
            escape(&plain.address())
        ));
    }
    if view.q.contains(['"', '+', '-', ':']) {
        let plain: String = view.q.chars().map(|c| if "\"+-:".contains(c) { ' ' } else { c }).collect();
        hints.push(format!(
            "<li><a href=\"/?q={}\">Search for the plain words</a></li>",
            encode(plain.trim())
        ));
    }
    hints.push("<li>Check the spelling, or use fewer or other words.</li>".to_owned());
    if !answer.coverage.complete {
        hints.push(
            "<li>A part of the corpus could not be searched just now; try again shortly.</li>".to_owned(),
        );
    }
    format!(
        "<section class=\"empty\"><h2>No document {}matches{}</h2><ul>{}</ul></section>",
        if answer.coverage.complete { "" } else { "that was searched " },
        if view.q.trim().is_empty() { String::new() } else { format!(" “{}”", escape(view.q.trim())) },
        hints.join("")
    )
}

fn foot(view: &View, answer: &Answer) -> String {
    let documents = answer.coverage.documents;
    format!(
        r#"<footer><p>{} v{} · {} of {} documents · <a href="{}" rel="nofollow">this answer as JSON</a> · query {}</p></footer>"#,
        escape(&view.corpus),
        answer.version.wanted,
        grouped(documents.searched + documents.pruned),
        grouped(documents.total),
        escape(&view.api_address()),
        escape(&answer.query_id),
    )
}

/// The page of a search that has no answer.
pub fn failed(view: &View, query_id: &str, error: &Error) -> String {
    let ours = error.http_status() >= 500;
    let heading = if ours { "There is no answer just now" } else { "This search can't be done" };
    let covered = error.report().map(notices::covered).filter(|text| !text.is_empty());
    let covered = covered.map_or_else(String::new, |text| format!("<p>{}</p>", escape(&sentence(&text))));
    let message = escape(&sentence(&error.to_string()));
    let (message, again) = if ours {
        (
            format!("<p>The search could not be completed. It may work again in a moment.</p>{covered}"),
            format!(
                "<p><a class=\"button\" href=\"{}\">Try again</a></p><p class=\"meta\">{message}</p>",
                escape(&view.address())
            ),
        )
    } else {
        (format!("<p>{message}</p>"), "<p><a href=\"/\">Start again</a></p>".to_owned())
    };
    let body = format!(
        r#"{top}
<main id="content" class="plain"><section class="empty" role="alert"><h1>{heading}</h1>
{message}{again}
<p class="meta">{code} · query {query}</p></section></main>"#,
        top = shell::top(view),
        code = error.code(),
        query = escape(query_id),
    );
    shell::document(&title(view), "search", &body)
}
