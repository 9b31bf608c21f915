//! Queries that take about as long as each other share a class, and a class learns when to hedge and when not to.
//!
//! One delay for all queries would be too long for the cheap ones and too short for the dear ones, whose hedges then
//! eat the budget. A class is a group of a corpus, a coarse cost of the query (words that score, whether everything
//! that matches has to be looked at, how many hits), and how many shards one attempt is asked for. All of it is known
//! before the first attempt.
//!
//! `auto` is off while it would do harm (see [`Why`]): when **everything** became slow, copies only add to it; the
//! quarter of the attempts that is fastest tells that apart from one slow replica of two. When a node asked to be left
//! alone. When more than half of an attempt's time is waiting in a queue, unless stalls are seen, for which a copy is
//! the only cure. And when hedges of the last ten minutes all but never won. An operator's own mode is obeyed.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    config::HedgeConfig,
    decision::{Asked, Decision, Why},
    delay::{self, Delays, Target},
    latency::Record,
    mode::{HedgeMode, SHORTEST},
};

/// Attempts seen before anything is computed from them.
const ENOUGH: f64 = 100.0;
/// Time in which what was seen loses half its weight, at least and at most: the less there is, the longer it is kept.
const HALF_LIFE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_mins(2));
/// More attempts than this tell nothing new, only older things.
const PLENTY: f64 = 40_000.0;
/// How often the class looks whether to hedge at all.
const REVIEW: Duration = Duration::from_secs(1);
/// How long a computed delay is used.
const PLANNED_FOR: Duration = Duration::from_secs(3);
/// Attempts within a review that say how fast the class is now.
const REVIEWED: f64 = 20.0;
/// So much slower than usual is a global slowdown; it is over below the second.
const SLOWDOWN: (f64, f64) = (2.0, 1.5);
/// Less than this is none, whatever part of the usual time it is, seconds: attempts of a millisecond take two by chance, and while
/// hedges are off nobody helps the queries that a frozen node has.
const LEAST_SLOWDOWN: f64 = 0.004;
/// Share of their time that attempts may wait in queues.
const QUEUED: f64 = 0.5;
/// A stall takes so many times the median, and there are stalls when this share of the attempts are.
const STALL: (f64, f64) = (8.0, 0.001);
/// Hedges are judged by how many of them won, over this time, when there were so many.
const JUDGED_OVER: Duration = Duration::from_mins(10);
const JUDGED: u32 = 100;
const LEAST_WINS: f64 = 0.01;
/// Longest a node's wish to be left alone keeps the class from hedging.
const LONGEST_PUSHBACK: Duration = Duration::from_secs(5);
/// Part of the budget that the delay aims at; the rest is for retries and chance.
const AIM: f64 = 0.98;
/// Delays kept, by number of branches and replicas.
const KEPT: usize = 24;
/// A tie delay is at most this part of the median service time.
const TIE_PART: u32 = 50;

#[derive(Debug, Clone, Copy)]
struct Planned {
    /// Power of two of the branches, and whether there is a third replica.
    shape: (u32, bool),
    at: Instant,
    delays: Delays,
}

#[derive(Debug, Clone, Copy)]
struct Wins {
    since: Instant,
    sent: u32,
    won: u32,
    off: bool,
}

/// What a class has seen and concluded.
#[derive(Debug)]
pub struct ClassState {
    attempts: Record,
    /// Without the time in the far side's queue.
    service: Record,
    /// Since the last review.
    latest: Record,
    waited: f64,
    lasted: f64,
    reviewed: Instant,
    /// What the fastest quarter usually takes, seconds.
    usual: Option<f64>,
    slow: bool,
    loaded: bool,
    pushed_until: Option<Instant>,
    wins: Wins,
    planned: Vec<Planned>,
    median: Option<Duration>,
    last_median: Option<Duration>,
    service_median: Option<Duration>,
}

impl ClassState {
    /// Nothing seen.
    pub fn new(now: Instant) -> Self {
        Self {
            attempts: Record::default(),
            service: Record::default(),
            latest: Record::default(),
            waited: 0.0,
            lasted: 0.0,
            reviewed: now,
            usual: None,
            slow: false,
            loaded: false,
            pushed_until: None,
            wins: Wins { since: now, sent: 0, won: 0, off: false },
            planned: Vec::new(),
            median: None,
            last_median: None,
            service_median: None,
        }
    }

    /// An attempt ended by itself; `queued`: its wait at the far side, when that was said.
    pub fn took(&mut self, time: Duration, queued: Option<Duration>) {
        self.attempts.took(time);
        self.latest.took(time);
        let queued = queued.unwrap_or_default().min(time);
        self.service.took(time.saturating_sub(queued));
        self.waited += queued.as_secs_f64();
        self.lasted += time.as_secs_f64();
    }

    /// An attempt was stopped.
    pub fn stopped(&mut self, after: Duration) {
        self.attempts.stopped(after);
        self.latest.stopped(after);
        self.service.stopped(after);
    }

    /// A node asked to be left alone.
    pub fn pushed_back(&mut self, now: Instant, pushback: Duration) {
        let until = now + pushback.min(LONGEST_PUSHBACK);
        self.pushed_until = Some(self.pushed_until.map_or(until, |before| before.max(until)));
    }

    /// A hedge ended.
    pub fn hedged(&mut self, won: bool) {
        self.wins.sent = self.wins.sent.saturating_add(1);
        self.wins.won = self.wins.won.saturating_add(u32::from(won));
    }

    /// Share of the hedges since the last judgement that won; `None` before there were any.
    pub fn win_ratio(&self) -> Option<f64> {
        (self.wins.sent > 0).then(|| f64::from(self.wins.won) / f64::from(self.wins.sent))
    }

    /// Half of the attempts take longer than this; `None` before enough was seen.
    pub fn median(&self) -> Option<Duration> {
        self.median
    }

    /// The same as it was last, however little was seen since.
    pub fn usual(&self) -> Option<Duration> {
        self.last_median
    }

    fn review(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.reviewed);
        if passed < REVIEW {
            return;
        }
        self.reviewed = now;
        self.slow = self.slowed(passed);
        let fade = fading(self.attempts.samples(), passed);
        self.attempts.fade(fade);
        self.service.fade(fade);
        let service = self.service.survival();
        let enough = self.attempts.samples() >= ENOUGH;
        self.median = self.attempts.survival().quantile(0.5).filter(|_| enough);
        self.last_median = self.median.or(self.last_median);
        self.service_median = service.quantile(0.5).filter(|_| enough);
        let stalls = self
            .service_median
            .is_some_and(|median| service.longer_than(median.as_secs_f64() * 1e6 * STALL.0) >= STALL.1);
        self.loaded = enough && self.waited > QUEUED * self.lasted && !stalls;
        // The queue of the last seconds counts, not that of minutes ago.
        let recent = halved(passed, 2 * REVIEW);
        self.waited *= recent;
        self.lasted *= recent;
        if now.saturating_duration_since(self.wins.since) >= JUDGED_OVER {
            let ratio = self.win_ratio().unwrap_or(1.0);
            let off = self.wins.sent >= JUDGED && ratio < LEAST_WINS;
            self.wins = Wins { since: now, sent: 0, won: 0, off };
        }
    }

    /// Whether the fastest quarter of the latest attempts is much slower than usual.
    fn slowed(&mut self, passed: Duration) -> bool {
        if self.latest.samples() < REVIEWED {
            return self.slow;
        }
        let latest = self.latest.survival();
        self.latest.clear();
        let Some(now) = latest.quantile(0.25).map(|time| time.as_secs_f64().max(1e-6)) else {
            return self.slow;
        };
        let usual = *self.usual.get_or_insert(now);
        self.usual = Some(now + (usual - now) * halved(passed, HALF_LIFE.1));
        let times = if self.slow { SLOWDOWN.1 } else { SLOWDOWN.0 };
        now / usual > times && now - usual > LEAST_SLOWDOWN * (times - 1.0)
    }

    /// Why `auto` does not hedge now.
    fn off(&self, now: Instant) -> Option<Why> {
        if self.pushed_until.is_some_and(|until| now < until) {
            Some(Why::Pushback)
        } else if self.slow {
            Some(Why::Slowdown)
        } else if self.loaded {
            Some(Why::Load)
        } else if self.wins.off {
            Some(Why::NeverWins)
        } else {
            None
        }
    }

    /// What a branch of this class does.
    pub fn decide(&mut self, now: Instant, config: &HedgeConfig, asked: &Asked) -> Decision {
        self.review(now);
        if asked.mode == HedgeMode::Off {
            return Decision::Nothing(Why::Off);
        }
        if asked.replicas < 2 || config.max_attempts < 2 {
            return Decision::Nothing(Why::Alone);
        }
        if asked.subtree {
            return self.subtree(now);
        }
        match asked.mode {
            HedgeMode::Off => Decision::Nothing(Why::Off),
            HedgeMode::Auto => self.auto(now, config, asked),
            HedgeMode::Delay(delay) => Decision::After { delays: each(delay), learned: false },
            HedgeMode::Quantile(quantile) => {
                let seen = self.attempts.samples() >= ENOUGH;
                let delay = if seen { self.attempts.survival().quantile(quantile) } else { None };
                let delay = delay.unwrap_or(config.default_delay).max(SHORTEST);
                Decision::After { delays: each(delay), learned: true }
            }
            HedgeMode::Tied => match self.tie_delay(asked.grain) {
                Some(delay) => Decision::Tied(delay),
                None => self.auto(now, config, asked),
            },
            HedgeMode::Factor(copies) => Decision::Copies(copies.min(config.max_attempts)),
        }
    }

    fn auto(&mut self, now: Instant, config: &HedgeConfig, asked: &Asked) -> Decision {
        if let Some(why) = self.off(now) {
            return Decision::Nothing(why);
        }
        let delays = self.planned(now, config, asked).unwrap_or_else(|| once(config.default_delay));
        Decision::After { delays, learned: true }
    }

    /// A copy of a subtree costs all its shards, so it is sent only when the subtree is later than it is one time in a
    /// hundred.
    fn subtree(&mut self, now: Instant) -> Decision {
        if let Some(why) = self.off(now) {
            return Decision::Nothing(why);
        }
        let known = self.attempts.samples() >= ENOUGH;
        match self.attempts.survival().quantile(0.99).filter(|_| known) {
            Some(delay) => Decision::After { delays: once(delay.max(SHORTEST)), learned: false },
            None => Decision::Nothing(Why::Unknown),
        }
    }

    /// The tie delay, when the timers are fine enough for it.
    fn tie_delay(&self, grain: Duration) -> Option<Duration> {
        let most = self.service_median? / TIE_PART;
        (grain <= most).then(|| grain.max(most / 2))
    }

    fn planned(&mut self, now: Instant, config: &HedgeConfig, asked: &Asked) -> Option<Delays> {
        let replicas = asked.replicas.min(config.max_attempts as usize);
        let shape = (asked.branches.max(1).ilog2(), replicas > 2);
        let known = self.planned.iter().position(|planned| planned.shape == shape);
        let before = known.map(|at| self.planned[at]);
        if let Some(planned) = before.filter(|planned| now < planned.at + PLANNED_FOR) {
            return Some(planned.delays);
        }
        if self.attempts.samples() < ENOUGH {
            return None;
        }
        let target = Target {
            branches: asked.branches,
            percentile: config.percentile,
            budget: asked.budget * AIM,
            replicas,
        };
        let mut delays = delay::best(&self.attempts.survival(), &target)?;
        if let Some(planned) = before.filter(|_| asked.frozen)
            && delays.first < planned.delays.first
        {
            delays = planned.delays;
        }
        let planned = Planned { shape, at: now, delays };
        match known {
            Some(at) => self.planned[at] = planned,
            None if self.planned.len() < KEPT => self.planned.push(planned),
            None => {}
        }
        Some(delays)
    }

    /// What it knows, for status pages.
    pub fn status(&self, now: Instant) -> serde_json::Value {
        let millis = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
        let planned = self.planned.iter().map(|planned| {
            serde_json::json!({
                "branches_at_least": 1_u64 << planned.shape.0,
                "delay_ms": millis(Some(planned.delays.first)),
                "second_delay_ms": millis(planned.delays.second),
                "probability": planned.delays.probability,
                "extra": planned.delays.extra,
                "expected_ms": millis(planned.delays.expected),
            })
        });
        serde_json::json!({
            "samples": self.attempts.samples().round(),
            "median_ms": millis(self.median),
            "off": self.off(now).map(Why::as_str),
            "win_ratio": self.win_ratio(),
            "planned": planned.collect::<Vec<_>>(),
        })
    }
}

/// What is left after `passed` of what halves every `half_life`.
fn halved(passed: Duration, half_life: Duration) -> f64 {
    0.5_f64.powf(passed.as_secs_f64() / half_life.as_secs_f64())
}

/// How much lighter what was seen gets: as slowly as can be, and faster while there is plenty.
fn fading(samples: f64, passed: Duration) -> f64 {
    let [fastest, slowest] = [HALF_LIFE.0, HALF_LIFE.1].map(|half_life| halved(passed, half_life));
    (PLENTY / samples.max(1.0)).clamp(fastest, slowest)
}

/// A hedge after each `delay` in which nothing came, as far as attempts are allowed.
fn each(delay: Duration) -> Delays {
    Delays { second: Some(2 * delay), ..once(delay) }
}

/// One hedge, always, after `delay`.
fn once(delay: Duration) -> Delays {
    Delays { first: delay, second: None, probability: 1.0, extra: 0.0, expected: None }
}

#[cfg(test)]
mod tests;
