//! What a follower says of itself: its lag, its report, and the records that it could not apply.

use canopy_proto::ingest::{DeadLetter, RefuseRequest};
use tokio::time::Instant;

use super::{AGAIN, AT_ONCE, AWAY, Loop, TELL};
use crate::overlay::follow::Stage;

impl Loop<'_> {
    pub(super) fn stale(&mut self, reason: String, gap: bool) {
        self.of.ground.view.lag.set_stale(true);
        if self.report.stale != reason {
            let (shard, version) = (&self.of.ground.view.shard, self.of.ground.view.version);
            if gap {
                tracing::error!(%shard, %version, reason, "the log does not hold what this version needs: it is stale");
            } else {
                tracing::warn!(%shard, %version, reason, "stale");
            }
            self.report.stale = reason;
        }
    }

    pub(super) fn hand_over(&mut self) {
        let now = self.of.clock.now_us();
        let by = format!("leaf {}", self.of.wanted.node);
        let some = self.letters.drain(..self.letters.len().min(AT_ONCE));
        self.handed = some.map(|letter| DeadLetter { at_us: now, by: by.clone(), ..letter }).collect();
        let letters = self.handed.clone();
        let request = RefuseRequest { corpus: self.of.wanted.corpus.clone(), letters };
        self.telling = Some(self.of.source.refuse(request));
    }

    pub(super) fn letters_told(&mut self, told: std::result::Result<(), String>) {
        if told.is_ok() {
            self.handed.clear();
        } else {
            self.tell_after = Instant::now() + AGAIN;
            self.letters.extend(self.handed.drain(..));
        }
    }

    /// Brings lag and report up to date.
    pub(super) fn measure(&mut self, now: Instant) {
        let oldest_us = self.waiting.oldest_us();
        self.of.ground.view.lag.set(oldest_us);
        self.report.oldest_us = oldest_us;
        if self.away.is_some_and(|away| away.elapsed() >= AWAY) && self.report.stale.is_empty() {
            self.stale("the log can't be heard".to_owned(), false);
        }
        if self.told + TELL <= now {
            self.tell(now);
        }
    }

    pub(super) fn tell(&mut self, now: Instant) {
        self.told = now;
        let report = &mut self.report;
        if let Some(applied) = &self.applied {
            (report.documents, report.deferred) = applied.documents();
            report.tombstones = applied.tombstones();
            report.parts = applied.parts.len() as u64;
            report.bytes = applied.bytes();
            report.counts = applied.counts;
        }
        report.behind = self.waiting.behind() + self.waiting.size().0 as u64;
        report.log_ms = self.waiting.log_ms;
        let left =
            |(at, goal): (&u32, &u64)| goal.saturating_sub(report.offsets.get(at).copied().unwrap_or(0));
        report.replay.1 = self.goal.iter().flatten().map(left).sum();
        if report.stage == Stage::Replaying {
            let took = (now - self.begun).as_secs_f64().max(0.001);
            report.rate = (report.counts.applied.saturating_sub(self.base) as f64 / took) as u64;
        }
        (self.of.tell)(report);
    }
}
