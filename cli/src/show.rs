//! What people read on a terminal: an answer as a short list, numbers in their units. Control characters of documents
//! never reach the terminal.

pub use canopy_common::plain::plain;
use serde_json::Value;

pub mod why;

/// A moment, by microseconds since 1970 UTC.
pub fn time(at_us: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(at_us).map(|at| at.round(jiff::Unit::Second));
    at.ok().and_then(Result::ok).map_or_else(|| "?".to_owned(), |at| at.to_string())
}

/// Bytes in a unit that fits.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A number with thousands separated.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number of an answer; large ones travel as text.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or(value.as_u64()).unwrap_or(0)
}

/// How many results there are, as far as they were counted.
fn total(answer: &Value) -> String {
    let n = number(&answer["total"]["value"]);
    match (answer["total"]["relation"] == "gte", n) {
        (true, 0) if answer["coverage"]["complete"] == true => "results not counted".to_owned(),
        (true, 0) => "no results so far".to_owned(),
        (gte, n) => {
            let least = if gte { "at least " } else { "" };
            format!("{least}{} result{}", count(n), if n == 1 { "" } else { "s" })
        }
    }
}

/// The snippet's escaped HTML as terminal text: `<b>` becomes bold when `colour`.
pub fn snippet(html: &str, colour: bool) -> String {
    let (open, close) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    plain(html)
        .replace("<b>", open)
        .replace("</b>", close)
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}

/// An answer of the search API.
pub fn answer(answer: &Value, colour: bool) -> String {
    let mut out = String::new();
    let coverage = &answer["coverage"];
    out.push_str(&format!(
        "{} in {:.1} ms, {} of {} shards answered, {} of {} documents searched\n",
        total(answer),
        answer["took_ms"].as_f64().unwrap_or(0.0),
        coverage["shards"]["answered"],
        coverage["shards"]["total"],
        count(number(&coverage["documents"]["searched"])),
        count(number(&coverage["documents"]["total"])),
    ));
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        out.push_str(&format!("note: {}\n", text(&warning["message"])));
    }
    let degraded: Vec<String> = answer["degraded"].as_array().into_iter().flatten().map(text).collect();
    if !degraded.is_empty() {
        out.push_str(&format!("degraded: {}\n", degraded.join(", ")));
    }
    for missing in coverage["missing"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "missing: {} {} ({})\n",
            text(&missing["shard"]),
            text(&missing["outcome"]),
            text(&missing["reason"])
        ));
    }
    for (field, facet) in answer["facets"].as_object().into_iter().flatten() {
        let values = facet["values"].as_array().into_iter().flatten();
        let list: Vec<String> =
            values.map(|v| format!("{} {}", text(&v["value"]), count(number(&v["count"])))).collect();
        out.push_str(&format!("{}: {}\n", plain(field), list.join(", ")));
    }
    for (i, found) in answer["hits"].as_array().into_iter().flatten().enumerate() {
        hit(i + 1, found, colour, &mut out);
    }
    out
}

fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or(""))
}

/// One hit: title, key and place, then snippet and breakdown.
fn hit(rank: usize, hit: &Value, colour: bool, out: &mut String) {
    out.push_str(&format!(
        "\n{:2}. {}\n    {}   score {:.3}  {} v{}\n",
        rank,
        text(&hit["title"]),
        text(&hit["key"]),
        hit["score"].as_f64().unwrap_or(0.0),
        text(&hit["shard"]),
        number(&hit["version"]),
    ));
    let sort: Vec<String> = hit["sort"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| value.as_str().map_or_else(|| value.to_string(), plain))
        .collect();
    if !sort.is_empty() {
        out.push_str(&format!("    sorted by {}\n", sort.join(", ")));
    }
    let line = snippet(hit["snippet"].as_str().unwrap_or(""), colour);
    if !line.is_empty() {
        out.push_str(&format!("    {line}\n"));
    }
    if !hit["explain"].is_null() {
        out.push_str(&why::score(&hit["explain"]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_shown_without_its_marks() {
        assert_eq!(snippet("&lt;b&gt; <b>x</b>", false), "<b> x");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(12), "12 B");
    }
}
