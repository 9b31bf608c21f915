//! What an answer lacks, in words that a person understands.

use super::html::{escape, grouped, put, sentence};
use crate::answer::{Answer, Report};

fn how(outcome: &str) -> &str {
    match outcome {
        "timed_out" => "timed out",
        "failed" => "failed",
        "shed" => "was overloaded",
        "unavailable" => "could not be reached",
        "skipped" => "was skipped",
        _ => "stopped early",
    }
}

/// `searched 980 of 1,000 documents; shard main/7 timed out`; empty when all was searched.
pub fn covered(report: &Report) -> String {
    if report.missing.is_empty() {
        return String::new();
    }
    let documents = report.documents;
    let mut text = format!(
        "searched {} of {} documents",
        grouped(documents.searched + documents.pruned),
        grouped(documents.total)
    );
    for missing in report.missing.iter().take(3) {
        let how = how(missing.outcome);
        match missing.count {
            1 => put!(text, "; shard {} {how}", missing.shard),
            count => put!(text, "; {count} shards {how}"),
        }
    }
    let named = report.missing.iter().take(3).map(|missing| missing.count).sum::<u32>();
    let all = report.missing.iter().map(|missing| missing.count).sum::<u32>();
    if all > named {
        put!(text, "; {} more", all - named);
    }
    text
}

/// Notices above the results; each is HTML.
pub fn list(answer: &Answer) -> Vec<String> {
    let mut notices = Vec::new();
    let covered = covered(&answer.coverage);
    if !covered.is_empty() {
        notices.push(format!("<b>These results are incomplete:</b> {}.", escape(&covered)));
    }
    let fetch = answer.coverage.fetch;
    for reason in &answer.degraded {
        let text = match *reason {
            "partial" | "soft_timeout" if !covered.is_empty() => continue,
            "partial" => "A part of the results is missing.".to_owned(),
            "soft_timeout" => "The search stopped early to answer in time.".to_owned(),
            "snippets_skipped" => format!(
                "{} of {} results are shown without their text, which did not arrive in time.",
                fetch.wanted - fetch.filled.min(fetch.wanted),
                fetch.wanted
            ),
            "expansion_truncated" => {
                "A word with * or ~ stands for more terms than were searched; only the most frequent were."
                    .to_owned()
            }
            "version_skew" => "A part of the results comes from another version of the corpus.".to_owned(),
            "panic" => {
                "All copies of a part of the corpus are in trouble; it was searched all the same.".to_owned()
            }
            other => format!("Degraded: {other}."),
        };
        notices.push(escape(&text));
    }
    notices
}

/// As a block, empty without notices.
pub fn block(answer: &Answer) -> String {
    let mut html = String::new();
    for notice in list(answer) {
        put!(html, "<p class=\"notice\" role=\"status\">{notice}</p>");
    }
    if !answer.warnings.is_empty() {
        html.push_str("<ul class=\"warnings\" aria-label=\"About your query\">");
        for warning in &answer.warnings {
            put!(html, "<li>{}</li>", escape(&sentence(&warning.message)));
        }
        html.push_str("</ul>");
    }
    html
}
