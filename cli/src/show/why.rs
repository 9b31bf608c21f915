//! Why a hit has its score, and where the time of a query went: `explain` and `trace` of an answer as lines to read.
//! The JSON of both is there with `--json`.

use serde_json::Value;

use super::{count, number, plain, text};

/// The parts of a score, a line each, and where the hit is from.
pub fn score(explain: &Value) -> String {
    let mut out = String::new();
    for part in explain["parts"].as_array().into_iter().flatten() {
        out.push_str(&format!("    {:9.3}  {}\n", part["score"].as_f64().unwrap_or(0.0), reason(part)));
    }
    let from = &explain["provenance"];
    out.push_str(&format!(
        "    {:9.3}  sum; {}, stage {}, {}\n",
        explain["score"].as_f64().unwrap_or(0.0),
        text(&from["node"]),
        number(&from["stage"]),
        text(&from["source"]),
    ));
    out
}

fn reason(part: &Value) -> String {
    let field = text(&part["field"]);
    let here = || {
        let boost = part["boost"].as_f64().filter(|boost| *boost != 1.0);
        format!(
            "{} here, length {} (average {:.0}), idf {:.2}{}",
            part["tf"].as_f64().unwrap_or(0.0),
            number(&part["length"]),
            part["average_length"].as_f64().unwrap_or(0.0),
            part["idf"].as_f64().unwrap_or(0.0),
            boost.map(|boost| format!(", boost {boost}")).unwrap_or_default(),
        )
    };
    match part["kind"].as_str() {
        Some("term") => format!(
            "{field}:{}  {}; in {} of {} documents",
            text(&part["token"]),
            here(),
            count(number(&part["document_frequency"])),
            count(number(&part["documents"])),
        ),
        Some("phrase") => {
            let tokens: Vec<String> = part["tokens"].as_array().into_iter().flatten().map(text).collect();
            format!("{field}:\"{}\"  {}", tokens.join(" "), here())
        }
        Some("expanded") => format!("{field}: any of {} terms, a constant", number(&part["terms"])),
        Some("prior") => format!("static rank {} x weight {}", part["static_rank"], part["weight"]),
        _ => plain(&part.to_string()),
    }
}

/// The timeline of the tree: start and length of each step, milliseconds, below the step that asked for it. A start
/// counts from the start of the step above.
pub fn timeline(trace: &Value) -> String {
    let mut out = format!(
        "{:>9} {:>9}  at {}; a start counts from the step above it\n",
        "start ms",
        "took ms",
        text(&trace["node"])
    );
    for phase in trace["phases"].as_array().into_iter().flatten() {
        step(phase, 0, &mut out);
        if phase["name"] == "search" {
            children(&trace["spans"], 1, &mut out);
        }
    }
    out
}

fn children(spans: &Value, depth: usize, out: &mut String) {
    for span in spans.as_array().into_iter().flatten() {
        step(span, depth, out);
        children(&span["children"], depth + 1, out);
    }
}

fn step(span: &Value, depth: usize, out: &mut String) {
    let ms = |name: &str| number(&span[name]) as f64 / 1000.0;
    let name = match span["name"].as_str() {
        Some("shard") => format!("{} at {}", text(&span["shard"]), text(&span["node"])),
        _ => text(&span["name"]),
    };
    let fate = span["fate"].as_str().map(|fate| format!(": {}", plain(fate))).unwrap_or_default();
    out.push_str(&format!(
        "{:9.2} {:9.2}  {:indent$}{name}{fate}\n",
        ms("start_us"),
        ms("duration_us"),
        "",
        indent = depth * 2
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_score_is_told_part_by_part() {
        let explain = json!({ "score": 1.5, "provenance": { "node": "leaf-1", "stage": 0, "source": "base" }, "parts": [
            { "kind": "term", "field": "text", "token": "hot", "boost": 2.0, "tf": 3.0, "length": 9, "average_length": 6.4,
              "idf": 0.98, "document_frequency": 1200, "documents": 4000, "score": 1.25 },
            { "kind": "phrase", "field": "title", "tokens": ["a", "\u{1b}b"], "tf": 1.0, "score": 0.25 },
            { "kind": "later", "score": 0.0 }] });
        let told = score(&explain);
        assert!(
            told.contains(
                "1.250  text:hot  3 here, length 9 (average 6), idf 0.98, boost 2; in 1,200 of 4,000"
            ),
            "{told}"
        );
        assert!(told.contains("title:\"a  b\"") && told.contains("\"later\""), "{told}");
        assert!(told.ends_with("1.500  sum; leaf-1, stage 0, base\n"), "{told}");
    }

    #[test]
    fn a_timeline_shows_who_asked_whom() {
        let trace = json!({ "node": "root-1", "phases": [{ "name": "search", "start_us": 400, "duration_us": 3900 }],
            "spans": [{ "name": "ask leaf-1, 1 shards", "fate": "won", "start_us": 120, "duration_us": 3000,
                        "children": [{ "name": "shard", "shard": "main/0", "node": "leaf-1", "duration_us": 90 }] }] });
        let lines: Vec<String> = timeline(&trace).lines().map(str::to_owned).collect();
        assert_eq!(lines[1], "     0.40      3.90  search");
        assert_eq!(lines[2], "     0.12      3.00    ask leaf-1, 1 shards: won");
        assert_eq!(lines[3], "     0.00      0.09      main/0 at leaf-1");
    }
}
