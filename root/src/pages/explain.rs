//! "Why this result": the parts of a score as a table, one row a word, and where the document came from. A breakdown of
//! another shape is shown as nested lists; either way within bounds.

use serde_json::Value;

use super::html::{escape, grouped, put};

/// Deepest level shown.
const DEPTH: usize = 12;
/// Most lines shown.
const LINES: usize = 400;
/// Most words shown.
const ROWS: usize = 64;

/// The breakdown as HTML.
pub fn block(explain: &Value) -> String {
    let parts = explain.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if parts.is_empty() || !parts.iter().all(|part| part.get("score").is_some_and(Value::is_number)) {
        return list(explain, DEPTH, &mut { LINES });
    }
    let mut html = format!("{}{}", words(parts), length(parts));
    if let Some(Value::Object(provenance)) = explain.get("provenance") {
        let facts = provenance.iter().filter(|(_, value)| !value.is_object() && !value.is_array());
        let facts: Vec<String> =
            facts.map(|(name, value)| format!("{} {}", escape(name), scalar(value))).collect();
        put!(html, "<p class=\"meta\">{}</p>", facts.join(" · "));
    }
    html
}

/// One row for each part of the sum.
fn words(parts: &[Value]) -> String {
    let mut rows = String::new();
    for part in parts.iter().take(ROWS) {
        let number = |name: &str| part.get(name).map_or_else(String::new, scalar);
        let field = part.get("field").and_then(Value::as_str).unwrap_or_default();
        let documents =
            part.get("document_frequency").and_then(Value::as_u64).map_or_else(String::new, grouped);
        put!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{documents}</td><td>{}</td></tr>",
            word(part),
            escape(field),
            number("tf"),
            part.get("score").and_then(Value::as_f64).map_or_else(String::new, |score| format!("{score:.2}")),
        );
    }
    if parts.len() > ROWS {
        put!(rows, "<tr><th scope=\"row\" colspan=\"5\">and {} more</th></tr>", parts.len() - ROWS);
    }
    format!(
        "<table><thead><tr><th scope=\"col\">Word</th><th scope=\"col\">Field</th><th scope=\"col\">Times here</th>\
         <th scope=\"col\">Documents with it</th><th scope=\"col\">Score</th></tr></thead><tbody>{rows}</tbody></table>"
    )
}

/// What a part scores for.
fn word(part: &Value) -> String {
    if let Some(tokens) = part.get("tokens").and_then(Value::as_array) {
        let tokens: Vec<&str> = tokens.iter().filter_map(Value::as_str).collect();
        return format!("“{}”", escape(&tokens.join(" ")));
    }
    if let Some(token) = part.get("token").and_then(Value::as_str) {
        return escape(token);
    }
    match (part.get("terms").and_then(Value::as_u64), part.get("static_rank")) {
        (Some(terms), _) => format!("any of {} terms", grouped(terms)),
        (_, Some(rank)) => format!("static rank {}", scalar(rank)),
        _ => part.get("kind").map_or_else(String::new, scalar),
    }
}

/// How the numbers come together, with the lengths that they are set against.
fn length(parts: &[Value]) -> String {
    let of = |name: &str| parts.iter().find_map(|part| part.get(name).and_then(Value::as_f64));
    let (Some(length), Some(average)) = (of("length"), of("average_length")) else { return String::new() };
    format!(
        "<p>A word counts more the rarer it is, the more often it is here, and the shorter the document: \
         {length:.0} words, on average {average:.0}.</p>"
    )
}

fn list(value: &Value, depth: usize, lines: &mut usize) -> String {
    if depth == 0 || *lines == 0 {
        return "…".to_owned();
    }
    match value {
        Value::Object(entries) => {
            let items = entries.iter().map(|(name, value)| {
                *lines = lines.saturating_sub(1);
                let name = escape(&name.replace('_', " "));
                match value {
                    Value::Object(_) | Value::Array(_) => {
                        format!(
                            "<li><span class=\"name\">{name}</span>{}</li>",
                            list(value, depth - 1, lines)
                        )
                    }
                    plain => format!("<li><span class=\"name\">{name}</span> {}</li>", scalar(plain)),
                }
            });
            format!("<ul>{}</ul>", items.collect::<String>())
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| {
                *lines = lines.saturating_sub(1);
                format!("<li>{}</li>", list(item, depth - 1, lines))
            });
            format!("<ul>{}</ul>", items.collect::<String>())
        }
        plain => scalar(plain),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => escape(text),
        Value::Number(number) => number.as_f64().filter(|n| n.fract() != 0.0).map_or_else(
            || escape(number.to_string().trim_end_matches(".0")),
            |n| {
                let digits = format!("{n:.4}");
                digits.trim_end_matches('0').trim_end_matches('.').to_owned()
            },
        ),
        other => escape(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_rows_whatever_they_are() {
        let html = block(&json!({
            "score": 3.5,
            "parts": [
                {"kind": "term", "field": "text", "token": "<b>", "tf": 2.0, "document_frequency": 1200, "score": 1.25,
                 "length": 440, "average_length": 638.6},
                {"kind": "phrase", "field": "text", "tokens": ["a", "b"], "score": 1.0},
                {"kind": "expanded", "field": "text", "terms": 17, "score": 1.0},
                {"kind": "prior", "static_rank": 0.5, "score": 0.25},
            ],
            "provenance": {"node": "leaf-1", "shard": "main/3"},
        }));
        for part in [
            "<th scope=\"row\">&lt;b&gt;</th><td>text</td><td>2</td><td>1,200</td><td>1.25</td>",
            "“a b”",
            "any of 17 terms",
            "static rank 0.5",
            "440 words, on average 639",
            "node leaf-1 · shard main/3",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
        let many: Vec<Value> = (0..1000).map(|n| json!({"token": "x", "score": n})).collect();
        assert!(block(&json!({ "parts": many })).contains("and 936 more"));
    }

    #[test]
    fn any_shape_is_shown_escaped_and_bounded() {
        let html = block(&json!({"terms": [{"term": "<b>", "idf": 1.25, "tf": 2}], "none": null}));
        assert!(html.contains("&lt;b&gt;") && html.contains("1.25") && !html.contains("<b>"));
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(block(&json!({ "deep": deep })).len() < 1000);
        let wide: Value = (0..10_000).collect();
        assert!(block(&json!({ "wide": wide })).len() < 200_000);
    }
}
