//! What an answer lacks, in words that a person understands.

use super::{
    html::{escape, grouped, put, sentence},
    view::View,
};
use crate::answer::{Answer, Report, Warning, coverage::Missing};

/// Shards named for one way of ending.
const NAMED: usize = 3;

fn how(outcome: &str, one: bool) -> &str {
    match (outcome, one) {
        ("timed_out", _) => "timed out",
        ("failed", _) => "failed",
        ("shed", true) => "was overloaded",
        ("shed", false) => "were overloaded",
        ("unavailable", _) => "could not be reached",
        ("skipped", true) => "was skipped",
        ("skipped", false) => "were skipped",
        _ => "stopped early",
    }
}

/// `shard main/7 timed out`, `shards main/0, main/1, main/2 and 4 more failed`.
fn ended(outcome: &str, missing: &[&Missing]) -> String {
    let count: u32 = missing.iter().map(|missing| missing.count).sum();
    let names: Vec<&str> = missing.iter().take(NAMED).map(|missing| missing.shard.as_str()).collect();
    let more = count - names.len() as u32;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if count == 1 { "shard" } else { "shards" };
    format!("{noun} {}{more} {}", names.join(", "), how(outcome, count == 1))
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
    let mut ways: Vec<(&str, Vec<&Missing>)> = Vec::new();
    for missing in &report.missing {
        match ways.iter_mut().find(|(outcome, _)| *outcome == missing.outcome) {
            Some((_, shards)) => shards.push(missing),
            None => ways.push((missing.outcome, vec![missing])),
        }
    }
    for (outcome, shards) in ways {
        put!(text, "; {}", ended(outcome, &shards));
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
            "snippets_skipped" if fetch.filled >= fetch.wanted => {
                "The results are shown without extracts, because many people are searching right now."
                    .to_owned()
            }
            "snippets_skipped" => format!(
                "{} of {} results are shown without their text, which did not arrive in time.",
                fetch.wanted - fetch.filled.min(fetch.wanted),
                fetch.wanted
            ),
            "expansion_truncated" => {
                "A word with * or ~ stands for more terms than were searched; only the most frequent were."
                    .to_owned()
            }
            "stale" => "The newest changes may be missing from these results.".to_owned(),
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
pub fn block(view: &View, answer: &Answer) -> String {
    let mut html = String::new();
    for notice in list(answer) {
        put!(html, "<p class=\"notice\" role=\"status\">{notice}</p>");
    }
    for meant in answer.warnings.iter().filter(|warning| !warning.query.is_empty()) {
        let there = View { q: meant.query.clone(), ..view.at(1) };
        let (address, text) = (escape(&there.address()), escape(&meant.query));
        put!(html, "<p class=\"meant\">Did you mean <a href=\"{address}\">{text}</a>?</p>");
    }
    // Which version answered is nothing that a reader could act on.
    let of_the_query = |warning: &&Warning| warning.query.is_empty() && warning.code != "repinned";
    if answer.warnings.iter().any(|warning| of_the_query(&warning)) {
        html.push_str("<ul class=\"warnings\" aria-label=\"About your query\">");
        for warning in answer.warnings.iter().filter(of_the_query) {
            put!(html, "<li>{}</li>", escape(&sentence(&warning.message)));
        }
        html.push_str("</ul>");
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(shard: &str, outcome: &'static str, count: u32) -> Missing {
        Missing { shard: shard.to_owned(), version: 1, documents: 1, outcome, reason: String::new(), count }
    }

    #[test]
    fn shards_that_ended_alike_are_named_together() {
        for (shards, text) in [
            (vec![missing("main/7", "shed", 1)], "shard main/7 was overloaded"),
            (
                vec![missing("a/0", "skipped", 1), missing("a/1", "skipped", 1)],
                "shards a/0, a/1 were skipped",
            ),
            (
                (0..5).map(|n| missing(&format!("a/{n}"), "failed", 1)).collect(),
                "shards a/0, a/1, a/2 and 2 more failed",
            ),
            (vec![missing("a/0", "timed_out", 40)], "shards a/0 and 39 more timed out"),
        ] {
            let all: Vec<&Missing> = shards.iter().collect();
            assert_eq!(ended(shards[0].outcome, &all), text);
        }
    }
}
