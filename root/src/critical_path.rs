//! What a query waited for, step by step: the parts follow each other without gaps, so that they sum to its time.
//!
//! A search takes as long as its last attempt that mattered: of those that settled shards, the one that ended last; when
//! the search ended without one (deadline), of those that stayed silent, the one that was asked last. Before it stands the time
//! until it was sent (a hedge or a retry is sent late: the reason is the attempt before it); it is split into waiting and
//! searching at the leaf, as the leaf told, and the rest: the way there and back, and the levels between. What the search
//! took beyond its end is the wait for what never came. Times are microseconds.

use canopy_aggregator::gather::{
    Gathered,
    attempt::{Fate, Step},
};
use serde::Serialize;

use crate::timeline::Timeline;

/// One part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What happened.
    pub part: String,
    /// Where: empty for this process.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node: String,
    /// How long, microseconds.
    pub us: u64,
}

fn part(name: impl Into<String>, node: &str, us: u64) -> Part {
    Part { part: name.into(), node: node.to_owned(), us }
}

/// The parts of a query that took `took_us`.
pub fn of(timeline: &Timeline, gathered: &Gathered, took_us: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    for (phase, us) in timeline.micros() {
        match critical(&gathered.steps) {
            Some(step) if phase == "search" => search(&mut parts, step, gathered, us),
            _ => parts.push(part(phase, "", us)),
        }
    }
    let told: u64 = parts.iter().map(|part| part.us).sum();
    parts.push(part("after the last step", "", took_us.saturating_sub(told)));
    parts.retain(|part| part.us > 0);
    parts
}

/// The attempt that the search waited for.
fn critical(steps: &[Step]) -> Option<&Step> {
    let won = steps.iter().filter(|step| step.fate == Fate::Won).max_by_key(|step| step.end_us());
    let silent = steps.iter().filter(|step| step.fate == Fate::Cancelled).max_by_key(|step| step.start_us);
    match (won, silent) {
        // What was cancelled after the last answer came held the search up; a loser's end is its winner's.
        (Some(won), Some(silent)) if silent.end_us() > won.end_us() => Some(silent),
        (won, silent) => won.or(silent),
    }
}

fn search(parts: &mut Vec<Part>, step: &Step, gathered: &Gathered, us: u64) {
    let before = step.start_us.min(us);
    let took = step.duration_us.min(us - before);
    let until = match step.kind {
        "first" => "plan and send".to_owned(),
        kind => format!("until the {kind} was sent"),
    };
    parts.push(part(until, "", before));
    let node = step.node.0.as_ref();
    if step.fate == Fate::Won {
        let (queue, search) = leaf_times(step, gathered);
        let queue = queue.min(took);
        let search = search.min(took - queue);
        parts.push(part("waiting for a search thread", node, queue));
        parts.push(part("searching", node, search));
        parts.push(part("the way there and back", node, took - queue - search));
    } else {
        parts.push(part("no answer from", node, took));
    }
    parts.push(part("merging, and waiting for what did not come", "", us - before - took));
}

/// Queue and search time of the slowest shard that the attempt's node settled.
fn leaf_times(step: &Step, gathered: &Gathered) -> (u64, u64) {
    let replies = gathered.shards.iter().zip(&gathered.children);
    let here = replies.filter(|(_, child)| child.as_ref() == Some(&step.node)).map(|(reply, _)| reply);
    let slowest = here.max_by_key(|reply| reply.queue_us.saturating_add(reply.search_us));
    slowest.map_or((0, 0), |reply| (reply.queue_us, reply.search_us))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use canopy_common::ids::NodeId;
    use canopy_proto::v1;
    use tokio::time::Instant;

    use super::*;

    fn step(node: &str, kind: &'static str, fate: Fate, start_us: u64, duration_us: u64) -> Step {
        Step { node: NodeId::from(node), attempt: 1, kind, fate, shard: 0, shards: 1, start_us, duration_us }
    }

    async fn timeline() -> Timeline {
        let mut timeline = Timeline::since(Instant::now());
        for (phase, ms) in [("parse", 1), ("search", 100), ("fetch", 7), ("page", 0)] {
            tokio::time::advance(Duration::from_millis(ms)).await;
            timeline.end(phase);
        }
        timeline
    }

    fn told(parts: &[Part]) -> Vec<(&str, &str, u64)> {
        parts.iter().map(|part| (part.part.as_str(), part.node.as_str(), part.us)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_hedge_is_what_the_query_waited_for() {
        let replies = [("a", 100, 9_000), ("b", 2_000, 30_000)];
        let gathered = Gathered {
            steps: vec![
                step("a", "first", Fate::Won, 50, 12_000),
                step("c", "first", Fate::Lost, 60, 98_000),
                step("b", "hedge", Fate::Won, 60_000, 38_000),
            ],
            shards: replies
                .iter()
                .map(|(_, queue_us, search_us)| v1::ShardReply {
                    queue_us: *queue_us,
                    search_us: *search_us,
                    ..Default::default()
                })
                .collect(),
            children: replies.iter().map(|(node, ..)| Some(NodeId::from(*node))).collect(),
            ..Gathered::default()
        };
        let parts = of(&timeline().await, &gathered, 108_000);
        assert_eq!(
            told(&parts),
            [
                ("parse", "", 1_000),
                ("until the hedge was sent", "", 60_000),
                ("waiting for a search thread", "b", 2_000),
                ("searching", "b", 30_000),
                ("the way there and back", "b", 6_000),
                ("merging, and waiting for what did not come", "", 2_000),
                ("fetch", "", 7_000),
            ]
        );
        assert_eq!(parts.iter().map(|part| part.us).sum::<u64>(), 108_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_named_and_the_parts_still_sum() {
        let steps =
            vec![step("a", "first", Fate::Won, 0, 20_000), step("b", "first", Fate::Cancelled, 10, 99_990)];
        let parts = of(&timeline().await, &Gathered { steps, ..Gathered::default() }, 108_000);
        assert!(told(&parts).contains(&("no answer from", "b", 99_990)), "{parts:?}");
        assert_eq!(parts.iter().map(|part| part.us).sum::<u64>(), 108_000);
        let nobody = of(&timeline().await, &Gathered::default(), 108_005);
        assert_eq!(
            told(&nobody),
            [
                ("parse", "", 1_000),
                ("search", "", 100_000),
                ("fetch", "", 7_000),
                ("after the last step", "", 5)
            ]
        );
        // Times of the far side that can't be are no reason to be wrong.
        let steps = vec![step("a", "retry", Fate::Won, 90_000, 500_000)];
        let parts = of(&timeline().await, &Gathered { steps, ..Gathered::default() }, 108_000);
        assert_eq!(parts.iter().map(|part| part.us).sum::<u64>(), 108_000);
    }
}
