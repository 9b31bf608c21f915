//! The end of a search, or of one batch of it: what is open is closed with the reason why, and the result is handed
//! out. Dropping the run afterwards drops every call that still runs.

use std::{mem, time::Duration};

use canopy_common::coverage::Outcome;
use canopy_proto::{convert, v1};
use tokio::time::Instant;

use super::{Decision, Gathered, attempt::Fate, ledger::missing, run::Run};
use crate::{load::Ending, plan::Through};

/// Attempts in the record of a slow query.
const RECORDED: usize = 64;

impl Run {
    /// Settles every open shard; what was asked of a node and did not come says which node.
    fn close(&mut self, decision: Decision) {
        let words = match decision {
            Decision::All | Decision::Deadline => "no answer before the deadline",
            Decision::AllBut => "no answer when all but the allowed number had come",
            Decision::Adaptive => "no answer when enough had come and the wait for stragglers was over",
            Decision::Cancelled => "the caller left before the answer",
            Decision::Lost => "not waited for, because another shard was lost",
        };
        for index in 0..self.attempts.len() {
            let attempt = &self.attempts[index];
            if attempt.fate != Fate::Pending {
                continue;
            }
            let node = attempt.node.clone();
            let reason = format!("{node}: {words}");
            let open: Vec<u32> = attempt.unanswered().collect();
            for shard in open {
                if self.ledger.is_open(shard) {
                    let version = self.request.version;
                    let late = missing(shard, version, &Outcome::TimedOut, &node.0, reason.clone());
                    self.ledger.note(late);
                }
            }
            let attempt = &self.attempts[index];
            // Too slow for this query: as good as that wait for the next one. An aggregator that passed on something is
            // not to blame for a leaf below it.
            let blamed = !attempt.won || self.branches[attempt.branch].through == Through::Leaf;
            let late = blamed && !matches!(decision, Decision::Cancelled | Decision::Lost);
            attempt.told(if late { Ending::Late } else { Ending::Nothing });
            let fate = if attempt.won { Fate::Won } else { Fate::Cancelled };
            self.end(index, fate);
        }
        let all: Vec<u32> = (0..self.request.shards.len() as u32).collect();
        self.give_up(&all, &Outcome::TimedOut, words);
        self.engine.metrics.finished(decision, Instant::now() - self.schedule.arrival);
        self.calls.clear();
    }

    fn timeline(&mut self) {
        if self.request.trace {
            let spans = self.attempts.iter().map(|attempt| {
                let first = attempt.shards.first();
                let shard = first.map_or("", |shard| self.request.shards[*shard as usize].shard.as_str());
                attempt.span(&self.engine.node, self.schedule.arrival, shard)
            });
            self.spans = spans.collect();
        }
    }

    fn count(&self, shards: &[v1::ShardReply]) {
        for shard in shards {
            self.engine.metrics.settled(&convert::outcome(shard));
        }
    }

    /// The whole result.
    pub fn into_gathered(mut self, decision: Decision) -> Gathered {
        self.close(decision);
        self.timeline();
        let hits = self.merge.take();
        let arrival = self.schedule.arrival;
        let steps = self.attempts.iter().map(|attempt| attempt.step(arrival)).collect();
        let Self { ledger, engine, tail, spans, .. } = self;
        let (shards, children) = ledger.into_replies();
        for shard in &shards {
            engine.metrics.settled(&convert::outcome(shard));
        }
        Gathered {
            hits,
            shards,
            children,
            decision: Some(decision),
            panic: tail.panics > 0,
            tail,
            spans,
            steps,
        }
    }

    /// What was settled since the last batch, for the level above. With a decision it is the last batch.
    pub fn batch(&mut self, decision: Option<Decision>, in_flight: u32) -> v1::SearchReply {
        if let Some(decision) = decision {
            self.close(decision);
            self.timeline();
        }
        let shards = self.ledger.take_unsent();
        self.count(&shards);
        v1::SearchReply {
            hits: self.merge.take(),
            shards,
            call: Some(self.report(in_flight)),
            tail: Some(mem::take(&mut self.tail)),
            spans: mem::take(&mut self.spans),
        }
    }

    /// What every message says of this node.
    fn report(&self, in_flight: u32) -> v1::CallReport {
        v1::CallReport {
            node: self.engine.node.to_string(),
            in_flight,
            epoch: self.routing.epoch.0,
            ..Default::default()
        }
    }

    /// Time since the request arrived.
    pub fn took(&self) -> Duration {
        Instant::now() - self.schedule.arrival
    }

    /// For the list of slow queries: what was asked of whom, and what became of it.
    pub fn record(&self, decision: Decision) -> serde_json::Value {
        let steps = self.attempts.iter().take(RECORDED).map(|attempt| attempt.step(self.schedule.arrival));
        serde_json::json!({
            "query_id": self.context.query.to_string(),
            "took_ms": self.took().as_micros() as f64 / 1000.0,
            "level": self.request.level,
            "shards": self.request.shards.len(),
            "answered": self.ledger.progress().answered,
            "decision": decision.as_str(),
            "attempts": steps.map(|step| step.record()).collect::<Vec<_>>(),
        })
    }
}
