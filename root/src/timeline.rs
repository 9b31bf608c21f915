//! Where a query's time went. Phases follow each other without gaps, so that they sum to the whole; per-shard times
//! come from the replies. Times are microseconds since the arrival of the request.

use canopy_aggregator::gather::Gathered;
use canopy_common::ids::ShardId;
use canopy_proto::{convert, v1};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Shards listed in a slow-query record, slowest first.
const LISTED: usize = 64;

/// The phases of one query.
#[derive(Debug, Clone)]
pub struct Timeline {
    start: Instant,
    last: Instant,
    phases: Vec<(&'static str, u64, u64)>,
}

impl Timeline {
    /// Begins with the arrival of the request.
    pub fn since(arrival: Instant) -> Self {
        Self { start: arrival, last: arrival, phases: Vec::with_capacity(6) }
    }

    /// Ends the phase that began where the last one ended.
    pub fn end(&mut self, phase: &'static str) {
        let now = Instant::now();
        let micros = |from: Instant, to: Instant| to.saturating_duration_since(from).as_micros() as u64;
        self.phases.push((phase, micros(self.start, self.last), micros(self.last, now)));
        self.last = now;
    }

    /// Makes all phases up to now one.
    pub fn fold(&mut self, phase: &'static str) {
        self.phases.clear();
        self.last = self.start;
        self.end(phase);
    }

    /// Milliseconds from arrival to now, to the microsecond.
    pub fn took_ms(&self) -> f64 {
        self.start.elapsed().as_micros() as f64 / 1000.0
    }

    /// (phase, seconds).
    pub fn seconds(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.phases.iter().map(|(phase, _, duration)| (*phase, *duration as f64 / 1e6))
    }

    /// (phase, microseconds).
    pub fn micros(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.phases.iter().map(|(phase, _, duration)| (*phase, *duration))
    }

    /// The phases as JSON.
    pub fn phases(&self) -> Value {
        let one = |(name, start, duration): &(&str, u64, u64)| json!({ "name": name, "start_us": start, "duration_us": duration });
        self.phases.iter().map(one).collect()
    }
}

/// The timeline of the tree, for `trace`.
pub fn trace(node: &str, timeline: &Timeline, gathered: &Gathered) -> Value {
    json!({
        "node": node,
        "took_ms": timeline.took_ms(),
        "phases": timeline.phases(),
        "spans": gathered.spans.iter().map(step).collect::<Vec<_>>(),
    })
}

/// The messages' decoder bounds the depth.
fn step(span: &v1::Span) -> Value {
    let mut value = json!({
        "node": span.node, "name": span.name, "start_us": span.start_us, "duration_us": span.duration_us,
    });
    if let Value::Object(object) = &mut value {
        if !span.shard.is_empty() {
            object.insert("shard".to_owned(), json!(span.shard));
        }
        if span.attempt_id > 0 {
            object.insert("attempt".to_owned(), json!(span.attempt_id.to_string()));
        }
        if !span.fate.is_empty() {
            object.insert("fate".to_owned(), json!(span.fate));
        }
        if !span.children.is_empty() {
            object.insert("children".to_owned(), span.children.iter().map(step).collect());
        }
    }
    value
}

/// Per-shard times, slowest first; shards that never answered come before all.
pub fn shards(shards: &[(ShardId, u64)], gathered: &Gathered) -> Value {
    let mut lines: Vec<(bool, u64, Value)> = shards
        .iter()
        .zip(&gathered.shards)
        .map(|((shard, _), reply)| {
            let outcome = convert::outcome(reply).as_str();
            let time = reply.queue_us + reply.search_us;
            let line = json!({
                "shard": shard, "outcome": outcome, "node": reply.node, "queue_us": reply.queue_us,
                "search_us": reply.search_us, "reason": reply.reason.chars().take(200).collect::<String>(),
            });
            (outcome == "answered", time, line)
        })
        .collect();
    lines.sort_by_key(|(answered, time, _)| (*answered, std::cmp::Reverse(*time)));
    lines.truncate(LISTED);
    lines.into_iter().map(|(_, _, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn phases_follow_each_other_and_sum_to_the_whole() {
        let mut timeline = Timeline::since(Instant::now());
        for (phase, ms) in [("parse", 2), ("search", 30), ("fetch", 5)] {
            tokio::time::advance(Duration::from_millis(ms)).await;
            timeline.end(phase);
        }
        assert_eq!(timeline.took_ms(), 37.0);
        let sum: f64 = timeline.seconds().map(|(_, seconds)| seconds).sum();
        assert!((sum - 0.037).abs() < 1e-9);
        assert_eq!(timeline.phases()[2]["start_us"], 32_000);
    }

    #[test]
    fn the_slowest_and_the_silent_come_first() {
        let reply = |outcome: v1::Outcome, us| v1::ShardReply {
            outcome: outcome as i32,
            search_us: us,
            ..Default::default()
        };
        let answered = v1::Outcome::Answered;
        let gathered = Gathered {
            shards: vec![reply(answered, 5), reply(v1::Outcome::TimedOut, 0), reply(answered, 9)],
            ..Gathered::default()
        };
        let ids: Vec<_> = (0..3).map(|n| (ShardId::new("main", n), 1)).collect();
        let lines = shards(&ids, &gathered);
        let order: Vec<&str> =
            lines.as_array().unwrap().iter().map(|line| line["shard"].as_str().unwrap()).collect();
        assert_eq!(order, ["main/1", "main/2", "main/0"]);
    }
}
