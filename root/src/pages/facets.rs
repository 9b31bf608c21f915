//! Filters beside the results: the values of each facet with their counts, and the filters that are on.

use super::{
    html::{escape, grouped},
    languages,
    view::{View, filter, parts},
};
use crate::answer::{Answer, Facet};

fn heading(field: &str) -> String {
    match field {
        "host" => "Site".to_owned(),
        "lang" => "Language".to_owned(),
        other => {
            let mut letters = other.chars();
            let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
            (first + letters.as_str()).replace('_', " ")
        }
    }
}

fn label<'a>(field: &str, value: &'a str) -> &'a str {
    if field == "lang" { languages::name(value) } else { value }
}

/// Filters that are on, each with a way to take it off; empty when there are none.
pub fn active(view: &View) -> String {
    let chips = view.filters.iter().map(|text| {
        let (field, value) = parts(text);
        let name = format!("{}: {}", heading(field), label(field, value));
        format!(
            "<li><a class=\"chip on\" href=\"{}\" aria-label=\"Remove the filter {name}\">{name} <span aria-hidden=\"true\">×</span></a></li>",
            escape(&view.toggled(text).address()),
            name = escape(&name),
        )
    });
    let chips: String = chips.collect();
    if chips.is_empty() {
        chips
    } else {
        format!("<ul class=\"chips\" aria-label=\"Filters that are on\">{chips}</ul>")
    }
}

fn group(view: &View, field: &str, facet: &Facet) -> String {
    let values = facet.values.iter().filter_map(|value| {
        let text = filter(field, &value.value)?;
        let on = view.filters.contains(&text);
        let atleast = if facet.lower_bound || value.error_bound > 0 { "≥ " } else { "" };
        Some(format!(
            "<li><a href=\"{}\"{}><span>{}</span> <span class=\"count\">{atleast}{}</span></a></li>",
            escape(&view.toggled(&text).address()),
            if on { " aria-current=\"true\"" } else { "" },
            escape(label(field, &value.value)),
            grouped(value.count),
        ))
    });
    let values: String = values.collect();
    if values.is_empty() {
        return values;
    }
    format!("<section><h2>{}</h2><ul>{values}</ul></section>", escape(&heading(field)))
}

/// The column of facets; empty when there is nothing to choose.
pub fn column(view: &View, answer: &Answer) -> String {
    let groups: String = answer.facets.iter().map(|(field, facet)| group(view, field, facet)).collect();
    if groups.is_empty() {
        return groups;
    }
    format!(
        "<aside class=\"facets\" aria-label=\"Filters\"><details open><summary>Filters</summary>{groups}</details></aside>"
    )
}
