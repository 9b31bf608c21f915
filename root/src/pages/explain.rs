//! "Why this result": a score breakdown as nested lists, whatever its shape, within bounds.

use serde_json::Value;

use super::html::escape;

/// Deepest level shown.
const DEPTH: usize = 12;
/// Most lines shown.
const LINES: usize = 400;

/// The breakdown as HTML.
pub fn block(explain: &Value) -> String {
    let mut lines = LINES;
    list(explain, DEPTH, &mut lines)
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
            || escape(&number.to_string()),
            |n| {
                let digits = format!("{n:.4}");
                digits.trim_end_matches('0').to_owned()
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
    fn any_shape_is_shown_escaped_and_bounded() {
        let html = block(&json!({"terms": [{"term": "<b>", "idf": 1.25, "tf": 2}], "none": null}));
        assert!(html.contains("&lt;b&gt;") && html.contains("1.25") && !html.contains("<b>"));
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(block(&deep).len() < 1000);
        let wide: Value = (0..10_000).collect();
        assert!(block(&wide).len() < 200_000);
    }
}
