//! The rollout of a corpus on a screen: a few lines, each short enough to be read.

use std::collections::BTreeMap;

use canopy_topology::span;
use serde_json::Value;

/// Longest reason on a screen, characters.
const MOST_REASON: usize = 240;

/// The rollout of a corpus in a few lines.
pub fn lines(name: &str, corpus: &Value) -> Vec<String> {
    let version =
        |value: &Value| value.as_u64().map_or_else(|| "none".to_owned(), |version| format!("v{version}"));
    let pins = corpus["pins"].as_array().into_iter().flatten();
    let pins = pins.map(|pin| {
        format!("{} {} %", version(&pin["version"]), pin["share"].as_f64().unwrap_or(0.0) / 100.0)
    });
    let pins: Vec<_> = pins.collect();
    let mut lines = vec![format!("{name}: live {}, queries: {}", version(&corpus["live"]), pins.join(", "))];
    let rollout = &corpus["rollout"];
    if !rollout.is_null() {
        lines.push(format!(
            "  {} -> {}: {}; {} of {} replicas hold it{}",
            version(&rollout["from"]),
            version(&rollout["to"]),
            rollout["state"].as_str().unwrap_or("?"),
            rollout["resident"],
            rollout["replicas"],
            rollout["left_ms"].as_u64().map_or(String::new(), |left| format!("; {} left", span::words(left))),
        ));
        if let Some(waits) = rollout["waits"].as_str() {
            lines.push(format!("  waits for {waits}"));
        }
        if let Some(sample) = corpus["judgement"]["sample"].as_u64() {
            lines.push(format!("  judged over {sample} queries of each arm so far"));
        }
        lines.extend(failures(rollout["failed"].as_array().map_or(&[], Vec::as_slice)));
    }
    if let Some(waits) = corpus["placement"]["waits"].as_str() {
        lines.push(format!("  shards that were moved are dropped where they were once {waits}"));
    }
    if let Some(waiting) = corpus["waiting"].as_object() {
        lines.push(format!(
            "  waiting: {} (`canopy rollout abort --waiting` gives it up)",
            version(&waiting["to"])
        ));
    }
    for ended in corpus["ended"].as_array().into_iter().flatten().take(3) {
        let [outcome, reason] = ["outcome", "reason"].map(|key| ended[key].as_str().unwrap_or("?"));
        lines.push(format!("  {}: {outcome} ({})", version(&ended["to"]), cut(reason)));
    }
    lines
}

/// What could not be loaded, by reason: many leaves fail alike.
fn failures(failed: &[Value]) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in failed {
        let [shard, node, reason] = ["shard", "node", "reason"].map(|key| one[key].as_str().unwrap_or("?"));
        by_reason.entry(reason).or_default().push(format!("{shard} on {node}"));
    }
    let line = |(reason, all): (&str, Vec<String>)| {
        let more = if all.len() > 3 { format!(" and {} more", all.len() - 3) } else { String::new() };
        format!("  {}{more}: {}", all[..all.len().min(3)].join(", "), cut(reason))
    };
    by_reason.into_iter().map(line).collect()
}

/// A reason short enough for a screen; `--json` and the audit log have the whole.
pub fn cut(reason: &str) -> String {
    match reason.char_indices().nth(MOST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_waited_for_and_for_how_long_is_shown() {
        let rollout = json!({
            "from": 4, "to": 5, "state": "retain", "resident": 14, "replicas": 16, "left_ms": 474_372,
            "waits": "leaf-3 (away, 2 shards)",
        });
        let corpus = json!({
            "live": 5, "rollout": rollout, "placement": { "waits": "the rollout to v5 is over (retain, 7 min 54 s left)" },
        });
        let lines = lines("web", &corpus);
        assert_eq!(lines[1], "  v4 -> v5: retain; 14 of 16 replicas hold it; 7 min 54 s left");
        assert_eq!(lines[2], "  waits for leaf-3 (away, 2 shards)");
        assert!(lines[3].contains("dropped where they were once the rollout to v5 is over"), "{lines:?}");
    }

    #[test]
    fn reasons_that_many_have_are_told_once_and_cut() {
        let failed =
            |node: u32| json!({ "shard": "main/0", "node": format!("leaf-{node}"), "reason": "disk full" });
        let mut all: Vec<Value> = (0..5).map(failed).collect();
        all.push(json!({ "shard": "main/1", "node": "leaf-9", "reason": "x".repeat(900) }));
        let lines = failures(&all);
        assert_eq!(lines[0], "  main/0 on leaf-0, main/0 on leaf-1, main/0 on leaf-2 and 2 more: disk full");
        assert!(lines[1].chars().count() < 300 && lines[1].ends_with('…'), "{}", lines[1]);
    }
}
