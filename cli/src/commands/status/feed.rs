//! What `canopy status` says of realtime updates: per corpus how far the leaves are behind, how much their overlays hold, how large the
//! log is, and what is wrong. A function of what ingests and leaves answered.
//!
//! Of several leaves the worst lag counts, since a query may meet any of them; documents of an overlay are counted once for each shard,
//! at the replica that has most.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::screen::{Report, list, number, text};
use crate::show;

/// One corpus.
#[derive(Debug, Default, Serialize)]
pub struct Feed {
    /// Worst lag of a leaf's shard.
    pub lag_ms: u64,
    /// Live documents in overlays.
    pub overlay_documents: u64,
    /// Documents that wait for an absorb.
    pub deferred: u64,
    /// Bytes of the log; `None`: no ingest told.
    pub log_bytes: Option<u64>,
    /// Operations that the slowest leaf has not read.
    pub waiting: u64,
    /// Operations that were refused for their content, ever.
    pub dead_letters: u64,
    /// What is wrong and waits for a person.
    pub alarms: Vec<String>,
    #[serde(skip)]
    shards: BTreeMap<String, (u64, u64)>,
}

/// By corpus. Those of which nothing is followed and nothing is taken are left out.
pub fn of(reports: &[Report]) -> BTreeMap<String, Feed> {
    let mut feeds: BTreeMap<String, Feed> = BTreeMap::new();
    for report in reports {
        for shard in list(&report.status["shards"]).filter(|shard| shard["overlay"].is_object()) {
            feeds.entry(text(shard, "corpus").to_owned()).or_default().follows(&report.id, shard);
        }
        if report.role == "ingest" {
            for corpus in list(&report.status["corpora"]) {
                feeds.entry(text(corpus, "corpus").to_owned()).or_default().takes(&report.id, corpus);
            }
            for (corpus, reason) in report.status["lacking"].as_object().into_iter().flatten() {
                let reason = reason.as_str().unwrap_or("?");
                let alarm = format!("{} can't open its log: {reason}", report.id);
                feeds.entry(corpus.clone()).or_default().alarms.push(show::plain(&alarm));
            }
        }
    }
    for feed in feeds.values_mut() {
        feed.overlay_documents = feed.shards.values().map(|(documents, _)| documents).sum();
        feed.deferred = feed.shards.values().map(|(_, deferred)| deferred).sum();
    }
    feeds
}

/// As lines, alarms first.
pub fn lines(feeds: &BTreeMap<String, Feed>) -> Vec<String> {
    let alarms = feeds.iter().flat_map(|(corpus, feed)| {
        feed.alarms.iter().map(move |alarm| show::plain(&format!("ALARM {corpus}: {alarm}")))
    });
    let mut lines: Vec<String> = alarms.collect();
    lines.extend(feeds.iter().filter(|(_, feed)| feed.dead_letters > 0).map(|(corpus, feed)| {
        let letters = show::count(feed.dead_letters);
        show::plain(&format!(
            "ALARM {corpus}: {letters} dead letters (canopy feed dead-letters --corpus {corpus})"
        ))
    }));
    lines.extend(feeds.iter().map(|(corpus, feed)| {
        let log = feed
            .log_bytes
            .map_or_else(|| "no ingest answers".to_owned(), |bytes| format!("log {}", show::bytes(bytes)));
        let waiting = if feed.waiting > 0 {
            format!(", {} operations wait", show::count(feed.waiting))
        } else {
            String::new()
        };
        let deferred = if feed.deferred > 0 {
            format!(", {} deferred", show::count(feed.deferred))
        } else {
            String::new()
        };
        show::plain(&format!(
            "{corpus}: {} ms behind the log, {} documents in overlays{deferred}, {log}{waiting}",
            feed.lag_ms,
            show::count(feed.overlay_documents)
        ))
    }));
    lines
}

impl Feed {
    /// A shard of a leaf.
    fn follows(&mut self, node: &str, shard: &Value) {
        let overlay = &shard["overlay"];
        self.lag_ms = self.lag_ms.max(number(&overlay["lag_ms"]));
        let name = text(shard, "shard").to_owned();
        let most = self.shards.entry(name).or_default();
        *most = (*most).max((number(&overlay["documents"]), number(&overlay["deferred"])));
        let place = format!("{} on {node}", text(shard, "shard"));
        if overlay["stage"] == "lost" {
            self.alarms.push(format!(
                "{place} lost the log: it needs a newer version (canopy index build or absorb)"
            ));
        } else if overlay["stale"] == true {
            self.alarms.push(format!("{place} is stale: it lacks newer documents"));
        }
    }

    /// A corpus of an ingest.
    fn takes(&mut self, node: &str, corpus: &Value) {
        let log = &corpus["log"];
        let bytes = log["bytes"].as_u64();
        self.log_bytes = self.log_bytes.max(bytes);
        self.waiting = self.waiting.max(number(&corpus["behind"]["operations"]));
        if let Some(reason) = corpus["refuses"].as_str() {
            self.alarms.push(format!("{node} takes nothing for now: {reason}"));
        }
        if let Some(trouble) = log["trouble"].as_str() {
            self.alarms.push(format!("the log at {node}: {trouble}"));
        }
        let damaged = list(&log["damage"]).count();
        if damaged > 0 {
            self.alarms.push(format!("the log at {node} is damaged in {damaged} places"));
        }
        let letters = &corpus["dead_letters"];
        self.dead_letters += number(&letters["kept"]) + number(&letters["dropped"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(role: &str, status: Value) -> Report {
        let id = format!("{role}-1");
        Report { id, role: role.to_owned(), admin: String::new(), ready: Ok(()), status }
    }

    fn leaf(documents: u64, lag_ms: u64, stage: &str) -> Report {
        let overlay = json!({ "documents": documents, "deferred": 0, "lag_ms": lag_ms, "stage": stage, "stale": false });
        report(
            "leaf",
            json!({ "shards": [{ "corpus": "web", "shard": "main/0", "overlay": overlay },
            { "corpus": "old", "shard": "main/0", "overlay": null }] }),
        )
    }

    fn ingest(letters: u64, refuses: Value) -> Report {
        report(
            "ingest",
            json!({ "lacking": { "news": "its log is of another corpus" }, "corpora": [{ "corpus": "web",
            "refuses": refuses, "behind": { "operations": 7 }, "log": { "bytes": 2048, "damage": [], "trouble": null },
            "dead_letters": { "kept": letters, "dropped": 0 } }] }),
        )
    }

    #[test]
    fn the_worst_lag_counts_and_a_shard_once() {
        let feeds = of(&[leaf(5, 20, "following"), leaf(7, 1300, "following"), ingest(0, Value::Null)]);
        assert_eq!(feeds.keys().collect::<Vec<_>>(), ["news", "web"]);
        let web = &feeds["web"];
        assert_eq!((web.lag_ms, web.overlay_documents, web.log_bytes, web.waiting), (1300, 7, Some(2048), 7));
        assert!(web.alarms.is_empty(), "{:?}", web.alarms);
        let shown = lines(&feeds).join("\n");
        assert!(shown.contains("web: 1300 ms behind the log, 7 documents in overlays"), "{shown}");
        assert!(shown.contains("ALARM news: ingest-1 can't open its log"), "{shown}");
    }

    #[test]
    fn what_is_wrong_is_an_alarm() {
        let feeds = of(&[leaf(0, 0, "lost"), ingest(2, json!("leaves are\u{1b} behind"))]);
        let shown = lines(&feeds).join("\n");
        for part in ["main/0 on leaf-1 lost the log", "takes nothing for now: leaves are", "2 dead letters"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
