//! What is known of one node's speed and queue, and what one more call to it would cost.
//!
//! Three things are measured, all with the traffic itself: the response time of calls, and from the report that every
//! reply carries the calls in flight at the node and the wait in its queue. What was reported last is true for about as
//! long as a queue takes to change, two response times; after that only what is usual counts, smoothed over 32 reports.
//! The service time is that of each call, its response less its own wait, and is smoothed as such: the difference of two
//! smoothed values is next to nothing whenever the wait runs ahead of the response, and a node whose queue has just grown
//! would look fast.
//!
//! Cost, after C3: `wait + q^2 x service`, where `q` is 1, plus 2 for each own call, plus the calls of others, plus
//! `penalty / service`. The power makes a queue count more than speed, and the weight of the own calls stands for other
//! callers who see the same and act the same: both keep callers from running to one node together. (With C3's cube, the
//! 99th percentile beside a slow replica is a tenth longer.) A failed or refused call is a penalty of all the time it had,
//! in units of queue, half gone after 500 ms: a node that refuses at once never looks fast (invariant 5).
//!
//! Replicas are also compared by how long a call takes for its class: `relative` is 1 for a node on which calls take
//! what such calls take. One that serves the dear ones is not slow.
//!
//! Nothing stands for ever: a node that is not asked can't show that it is well again. A response time drifts towards
//! the typical one of its set and a usual queue to none, both with a half-life of seconds. A node without measurements
//! counts as typical. Everything is microseconds; all inputs are bounded, so no cost is ever NaN.

use std::time::Duration;

use tokio::time::Instant;

/// Part of a new sample in a smoothed time, and in the usual number of calls.
const NEW: f64 = 0.125;
const NEW_USUAL: f64 = 1.0 / 32.0;
/// How much an own call counts in the queue.
const OWN: f64 = 2.0;
/// Least service time, microseconds: below this all nodes are equally fast.
const LEAST_US: f64 = 250.0;
/// Service time of nodes when none of a set was ever measured, microseconds.
const UNKNOWN_US: f64 = 1000.0;
/// Longest time that enters an estimate.
const MOST: Duration = Duration::from_mins(1);
/// Most times that a call is said to take longer than usual.
const MOST_RELATIVE: f64 = 1e4;
/// What was reported last is half gone after so many response times, between these, seconds.
const REPORT_HALF_LIFE: (f64, f64, f64) = (2.0, 0.005, 0.25);
/// Half-life of a usual queue that nobody refreshed, seconds.
const USUAL_HALF_LIFE: f64 = 10.0;
/// Half-life of the distance of an old response time from the typical one, seconds.
const RESPONSE_HALF_LIFE: f64 = 5.0;
/// Half-life of a penalty, seconds.
const PENALTY_HALF_LIFE: f64 = 0.5;

fn micros(time: Duration) -> f64 {
    time.min(MOST).as_micros() as f64
}

fn half(age: Duration, half_life: f64) -> f64 {
    (-age.as_secs_f64() / half_life).exp2()
}

/// A value that is true for a moment only.
#[derive(Debug, Clone, Copy)]
struct Fading {
    usual: f64,
    last: f64,
    at: Instant,
}

impl Fading {
    fn take(this: &mut Option<Self>, value: f64, new: f64, now: Instant) {
        let usual = this.map_or(value, |before| before.usual + new * (value - before.usual));
        *this = Some(Self { usual, last: value, at: now });
    }

    /// `half_life` of what was said last, in seconds; `None`: only what is usual.
    fn now(this: Option<Self>, half_life: Option<f64>, now: Instant) -> f64 {
        let Some(Self { usual, last, at }) = this else { return 0.0 };
        let age = now.saturating_duration_since(at);
        let last = half_life.map_or(0.0, |half_life| (last - usual) * half(age, half_life));
        (usual * half(age, USUAL_HALF_LIFE) + last).max(0.0)
    }
}

/// What is known of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Estimate {
    response: Option<(f64, Instant)>,
    service: Option<f64>,
    answered: Option<f64>,
    relative: Option<f64>,
    wait: Option<Fading>,
    others: Option<Fading>,
    penalty: Option<(f64, Instant)>,
}

/// The same at one instant, in microseconds and calls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// Smoothed response time and how old it is.
    pub response: Option<(f64, Duration)>,
    /// Smoothed time without the wait.
    pub service: Option<f64>,
    /// Smoothed response time, over what is usual for each call.
    pub relative: Option<f64>,
    /// Wait in its queue.
    pub wait: f64,
    /// Calls of other callers in flight there.
    pub others: f64,
    /// For failures.
    pub penalty: f64,
}

/// A smoothed value after one more sample, which counts as `new`.
fn smoothed(before: Option<f64>, sample: f64, new: f64) -> f64 {
    before.map_or(sample, |before| before + new * (sample - before))
}

impl Estimate {
    /// A call was answered after `took`, of which it had waited `queued`.
    pub fn answered(&mut self, took: Duration, queued: Duration, now: Instant) {
        let new = self.newness(now);
        self.would_take(took, now);
        self.service = Some(smoothed(self.service, micros(took.saturating_sub(queued)), new));
        self.answered = Some(smoothed(self.answered, micros(took), new));
    }

    fn would_take(&mut self, took: Duration, now: Instant) {
        let (before, new) = (self.response.map(|(before, _)| before), self.newness(now));
        self.response = Some((smoothed(before, micros(took), new), now));
    }

    /// Part of a new sample: the older what is known, the larger. A node that is asked now and then only, because its first
    /// calls were slow, would else stand by them for many calls.
    fn newness(&self, now: Instant) -> f64 {
        let age = self.response.map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(at));
        1.0 - (1.0 - NEW) * half(age, RESPONSE_HALF_LIFE)
    }

    /// A call was given up after `waited`, for no fault of its own: it would have taken longer. Never improves.
    pub fn outlasted(&mut self, waited: Duration, now: Instant) {
        if self.response.is_none_or(|(before, _)| micros(waited) > before) {
            self.would_take(waited, now);
        }
        let served = micros(waited) - Fading::now(self.wait, None, now);
        if self.service.is_none_or(|before| served > before) {
            self.service = Some(smoothed(self.service, served.max(0.0), NEW));
        }
    }

    /// A call took so many times as long as is usual for its class.
    pub fn compared(&mut self, relative: f64) {
        self.relative = Some(smoothed(self.relative, relative.clamp(0.0, MOST_RELATIVE), NEW));
    }

    /// A reply said how long it waited and how many calls were in flight; `own` of them are ours.
    pub fn reported(&mut self, wait: Duration, in_flight: u32, own: u32, now: Instant) {
        let others = f64::from(in_flight.saturating_sub(own).min(1 << 20));
        Fading::take(&mut self.wait, micros(wait), NEW, now);
        Fading::take(&mut self.others, others, NEW_USUAL, now);
    }

    /// A call that had `budget` failed or was refused. A smaller penalty never replaces a larger one.
    pub fn penalised(&mut self, budget: Duration, now: Instant) {
        let still = self.penalty(now);
        self.penalty = Some((still.max(micros(budget)), now));
    }

    fn penalty(&self, now: Instant) -> f64 {
        self.penalty
            .map_or(0.0, |(penalty, at)| penalty * half(now.saturating_duration_since(at), PENALTY_HALF_LIFE))
    }

    /// Smoothed response time of the calls that were answered.
    pub fn usual(&self) -> Option<Duration> {
        self.answered.map(|usual| Duration::from_micros(usual as u64))
    }

    /// Smoothed response time.
    pub fn response(&self) -> Option<Duration> {
        self.response.map(|(response, _)| Duration::from_micros(response as u64))
    }

    /// All of it, now.
    pub fn read(&self, now: Instant) -> Reading {
        let (times, least, most) = REPORT_HALF_LIFE;
        let fresh = self.response.map_or(most, |(response, _)| (times * response / 1e6).clamp(least, most));
        Reading {
            response: self.response.map(|(response, at)| (response, now.saturating_duration_since(at))),
            service: self.service,
            relative: self.relative,
            wait: Fading::now(self.wait, None, now),
            others: Fading::now(self.others, Some(fresh), now),
            penalty: self.penalty(now),
        }
    }
}

/// How the nodes of a set typically are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typical {
    /// Response time.
    pub response: f64,
    /// Service time.
    pub service: f64,
    /// Response time over what is usual for each call, where that is known of some.
    pub relative: Option<f64>,
}

/// Until one was measured.
const UNKNOWN: Typical = Typical { response: UNKNOWN_US, service: UNKNOWN_US, relative: None };

fn lower_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// What is typical of a set: of each value the lower median of those that were measured.
pub fn typical<'a>(readings: impl Iterator<Item = &'a Reading> + Clone) -> Option<Typical> {
    let median =
        |of: &dyn Fn(&Reading) -> Option<f64>| lower_median(readings.clone().filter_map(of).collect());
    let response = median(&|reading| reading.response.map(|(response, _)| response))?;
    let service = median(&|reading| reading.service).unwrap_or(response);
    Some(Typical { response, service, relative: median(&|reading| reading.relative) })
}

impl Reading {
    /// Drifts from what was measured to what is typical.
    fn drifted(&self, measured: Option<f64>, typical: f64) -> f64 {
        let age = self.response.map_or(Duration::ZERO, |(_, age)| age);
        measured.map_or(typical, |measured| typical + (measured - typical) * half(age, RESPONSE_HALF_LIFE))
    }

    fn service(&self, typical: Option<Typical>) -> f64 {
        self.drifted(self.service, typical.unwrap_or(UNKNOWN).service).max(LEAST_US)
    }

    /// What one more call costs where `own` of ours are in flight, among nodes that are typically so. Only compares
    /// with other costs.
    pub fn cost(&self, own: u32, typical: Option<Typical>) -> f64 {
        let service = self.service(typical);
        let queue = 1.0 + OWN * f64::from(own) + self.others + self.penalty / service;
        self.wait + queue * queue * service
    }

    /// How long one more call would take, about.
    pub fn expected(&self, own: u32, typical: Option<Typical>) -> f64 {
        let measured = self.response.map(|(response, _)| response);
        let response = self.drifted(measured, typical.unwrap_or(UNKNOWN).response);
        let service = self.service(typical);
        response.max(service * (1.0 + f64::from(own) + self.others)) + self.penalty
    }

    /// What a call costs when no other runs there.
    pub fn idle(&self, typical: Option<Typical>) -> f64 {
        Self { wait: 0.0, others: 0.0, ..*self }.cost(0, typical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const TYPICAL: Typical = Typical { response: 8000.0, service: 8000.0, relative: None };

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_queue_has_just_grown_does_not_look_fast() {
        let mut estimate = Estimate::default();
        for wait in [0, 0, 0, 0, 200, 400, 600, 800] {
            let now = Instant::now();
            estimate.reported(MS(wait), 1 + wait as u32 / 8, 0, now);
            estimate.answered(MS(wait + 8), MS(wait), now);
            let reading = estimate.read(now);
            assert_eq!(reading.service, Some(8000.0));
            assert!(reading.cost(0, Some(TYPICAL)) >= 8000.0 + reading.wait);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cost_grows_with_calls_time_and_reports_which_fade() {
        let mut estimate = Estimate::default();
        let cost = |estimate: &Estimate, own| estimate.read(Instant::now()).cost(own, Some(TYPICAL)) as u64;
        assert_eq!(cost(&estimate, 0), 8000, "unmeasured counts as typical");
        assert_eq!(cost(&estimate, 1), 9 * 8000);
        estimate.answered(MS(16), MS(0), Instant::now());
        assert_eq!(cost(&estimate, 0), 16_000);
        estimate.reported(MS(0), 3, 1, Instant::now());
        assert_eq!(cost(&estimate, 0), 9 * 16_000, "two calls of others");
        estimate.reported(MS(0), 10, 0, Instant::now());
        let now = cost(&estimate, 0);
        tokio::time::advance(MS(500)).await;
        let later = cost(&estimate, 0);
        assert!(
            now > 100 * 16_000 && later < 12 * 16_000,
            "what was said last fades to the usual: {now} {later}"
        );
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!(cost(&estimate, 0), 8000, "nothing stands for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_beginning_is_forgotten_by_few_calls_where_few_come() {
        let mut estimate = Estimate::default();
        estimate.answered(MS(200), MS(0), Instant::now());
        for _ in 0..4 {
            tokio::time::advance(MS(3000)).await;
            estimate.answered(MS(8), MS(0), Instant::now());
        }
        let after = estimate.read(Instant::now()).service.unwrap();
        assert!(after < 30_000.0, "{after}");
        // Of those that come one after the other no single one says much.
        estimate.answered(MS(200), MS(0), Instant::now());
        assert!(estimate.read(Instant::now()).service.unwrap() < 55_000.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_costs_all_its_time_and_never_improves_a_node() {
        let now = Instant::now();
        let mut estimate = Estimate::default();
        estimate.answered(MS(20), MS(0), now);
        let before = estimate.read(now).cost(0, None);
        estimate.penalised(MS(300), now);
        let failed = estimate.read(now).cost(0, None);
        assert!(failed > 200.0 * before, "a queue of 15 calls, squared: {failed}");
        estimate.penalised(MS(1), now);
        assert_eq!(estimate.read(now).cost(0, None), failed);
        estimate.outlasted(MS(1), now);
        assert_eq!(estimate.read(now).cost(0, None), failed);
        estimate.outlasted(MS(100), now);
        assert_eq!(estimate.response(), Some(MS(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn absurd_reports_stay_finite() {
        let now = Instant::now();
        let mut estimate = Estimate::default();
        estimate.reported(Duration::MAX, u32::MAX, 0, now);
        estimate.answered(Duration::MAX, Duration::MAX, now);
        estimate.penalised(Duration::MAX, now);
        assert!(estimate.read(now).cost(u32::MAX, Some(TYPICAL)).is_finite());
    }

    #[test]
    fn the_typical_time_is_the_lower_median_of_the_measured() {
        let reading = |us: f64| Reading { response: Some((us, Duration::ZERO)), ..Reading::default() };
        let of = |times: &[f64]| {
            let readings: Vec<Reading> = times.iter().map(|us| reading(*us)).collect();
            typical(readings.iter()).map(|typical| typical.response)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[5.0]), Some(5.0));
        assert_eq!(of(&[9.0, 5.0]), Some(5.0));
        assert_eq!(of(&[9.0, 5.0, 7.0]), Some(7.0));
        assert_eq!(typical([Reading::default()].iter()), None);
    }
}
