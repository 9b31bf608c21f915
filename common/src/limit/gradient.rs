//! How many calls may run at once, learned from their latency.
//!
//! A fixed limit is wrong twice: too high when the machine is slow, too low when it is fast. This one compares the mean
//! latency of a short window with a long-term baseline: while the quotient is within the tolerance the limit grows by
//! the square root of itself (room for a burst), and beyond it shrinks in proportion. The failure this prevents: every
//! query is taken, all are slow, and none is in time.
//!
//! Rules. The baseline follows falls at once and rises slowly, and hardly at all in a window that was crowded: else a
//! lasting overload would become the new normal. A window in which less than half of the limit was used says nothing
//! about the limit and changes nothing: the latency came from elsewhere. The limit begins in the (geometric) middle.
//! Latency moves it within its bounds only; the lower one keeps all cores busy, so a wrong guess costs queueing room, never
//! throughput. Refusals below are no guess: while more than a few calls are cut by them the limit follows the calls that
//! run, below the lower bound if need be, and comes back by roots: else a small tree under a large bound would answer every
//! query by halves, each leaf refusing others. Units: calls; seconds inside.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a window; one with few samples goes on.
pub const WINDOW: Duration = Duration::from_millis(200);
/// Samples that a window needs.
const SAMPLES: u32 = 10;
/// Quotient of latency and baseline that is still well.
const TOLERANCE: f64 = 2.0;
/// Share of the way down that one step goes.
const SMOOTHING: f64 = 0.3;
/// Share of the distance by which the baseline rises in a calm window, and in a crowded one.
const RISE: [f64; 2] = [1.0 / 32.0, 1.0 / 1024.0];

/// Share of calls that were cut by an overload below from which on a window makes the limit smaller. What is refused
/// below is refused quickly: judged by its latency alone, an overloaded tree looks fast.
const CUT: f64 = 0.05;
/// It goes to this part of the calls that ran at most, and in one step not below this part of itself.
const CUT_STEPS: [f64; 2] = [0.8, 0.5];
/// Where it stops.
const LEAST: u32 = 4;

/// Where the limit may be. Equal bounds: it is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Never lower for latency's sake.
    pub min: u32,
    /// Never higher.
    pub max: u32,
}

/// The limit. A value: its owner tells it what was seen.
#[derive(Debug, Clone)]
pub struct Gradient {
    bounds: Bounds,
    limit: f64,
    baseline: f64,
    window: Window,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    sum: f64,
    count: u32,
    cut: u32,
    most: u32,
}

impl Gradient {
    /// Begins in the middle.
    pub fn new(bounds: Bounds, now: Instant) -> Self {
        let bounds = Bounds { min: bounds.min.max(1).min(bounds.max), max: bounds.max };
        let window = Window { since: now, sum: 0.0, count: 0, cut: 0, most: 0 };
        let limit = (f64::from(bounds.min) * f64::from(bounds.max)).sqrt();
        Self { bounds, limit, baseline: 0.0, window }
    }

    /// Calls that may run at once.
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Latency that counts as well.
    pub fn baseline(&self) -> Duration {
        Duration::from_secs_f64(self.baseline)
    }

    /// A call ended after `latency`, when `in_flight` ran including it.
    pub fn ended(&mut self, now: Instant, latency: Duration, in_flight: u32) {
        self.window.sum += latency.as_secs_f64();
        self.window.count += 1;
        self.seen(now, in_flight);
    }

    /// A call ended without all it wanted, because what it asks below is overloaded: its time says nothing, that it
    /// was cut says that there are too many.
    pub fn cut(&mut self, now: Instant, in_flight: u32) {
        self.window.cut += 1;
        self.seen(now, in_flight);
    }

    /// Where refusals below may take it.
    fn least(&self) -> f64 {
        let Bounds { min, max } = self.bounds;
        f64::from(if min == max { min } else { LEAST.min(min) })
    }

    fn seen(&mut self, now: Instant, in_flight: u32) {
        self.window.most = self.window.most.max(in_flight);
        if self.window.count + self.window.cut >= SAMPLES
            && now.saturating_duration_since(self.window.since) >= WINDOW
        {
            self.step();
            self.window = Window { since: now, sum: 0.0, count: 0, cut: 0, most: 0 };
        }
    }

    fn step(&mut self) {
        let Window { count, cut, most, .. } = self.window;
        if f64::from(cut) > CUT * f64::from(count + cut) {
            let [step, most_step] = CUT_STEPS;
            let used = f64::from(most).min(self.limit) * step;
            self.limit = used.max(self.limit * most_step).max(self.least());
            return;
        }
        let short = (self.window.sum / f64::from(self.window.count)).max(1e-6);
        let crowded = f64::from(self.window.most) * 2.0 >= self.limit;
        if self.baseline == 0.0 || short < self.baseline {
            self.baseline = short;
        } else {
            self.baseline += (short - self.baseline) * RISE[usize::from(crowded)];
        }
        if !crowded {
            return;
        }
        let gradient = (TOLERANCE * self.baseline / short).clamp(0.5, 1.0);
        let change = self.limit * gradient + self.limit.sqrt() - self.limit;
        let floor = f64::from(self.bounds.min).min(self.limit);
        let next = self.limit + if change < 0.0 { change * SMOOTHING } else { change };
        self.limit = next.clamp(floor, f64::from(self.bounds.max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 8, max: 400 };

    /// `windows` windows of calls that take `ms` with `in_flight` running.
    fn run(gradient: &mut Gradient, now: &mut Instant, windows: u32, ms: u64, in_flight: u32) {
        for _ in 0..windows * SAMPLES {
            *now += WINDOW / SAMPLES;
            gradient.ended(*now, Duration::from_millis(ms), in_flight);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_shrinks_when_latency_doubles_twice_and_recovers_by_roots() {
        let mut now = Instant::now();
        let mut gradient = Gradient::new(BOUNDS, now);
        assert_eq!(gradient.limit(), 56);
        run(&mut gradient, &mut now, 50, 10, 20);
        assert_eq!((gradient.limit(), gradient.baseline().as_millis()), (56, 10), "calm: nothing to learn");
        run(&mut gradient, &mut now, 3, 90, 20);
        assert_eq!(gradient.limit(), 56, "slow, but not for being crowded");
        run(&mut gradient, &mut now, 40, 19, 400);
        assert_eq!(gradient.limit(), 400, "within the tolerance");
        run(&mut gradient, &mut now, 40, 100, 400);
        let low = gradient.limit();
        assert!((8..40).contains(&low), "{low}");
        run(&mut gradient, &mut now, 1, 12, low);
        let step = f64::from(gradient.limit()) - f64::from(low);
        assert!((0.0..=f64::from(low).sqrt()).contains(&step), "{step}");
        run(&mut gradient, &mut now, 300, 12, 400);
        assert_eq!(gradient.limit(), 400);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bounds_hold_whatever_is_seen() {
        for (min, max) in [(0, 0), (5, 1), (3, 7)] {
            let mut now = Instant::now();
            let mut gradient = Gradient::new(Bounds { min, max }, now);
            for ms in [1, 100_000, 0, 3, 100_000, 100_000] {
                run(&mut gradient, &mut now, 30, ms, 1000);
                assert!((min.max(1).min(max)..=max).contains(&gradient.limit()), "{gradient:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_does_not_become_the_new_normal_but_a_slower_machine_does() {
        let mut now = Instant::now();
        let mut crowded = Gradient::new(BOUNDS, now);
        run(&mut crowded, &mut now, 5, 10, 10);
        run(&mut crowded, &mut now, 150, 100, 400);
        assert!(crowded.baseline() < Duration::from_millis(30), "30 s of overload: {crowded:?}");
        let mut calm = Gradient::new(BOUNDS, now);
        run(&mut calm, &mut now, 5, 10, 3);
        run(&mut calm, &mut now, 150, 100, 3);
        assert!(calm.baseline() > Duration::from_millis(90), "{calm:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn quick_refusals_below_are_no_reason_to_take_on_more() {
        let mut now = Instant::now();
        let mut gradient = Gradient::new(BOUNDS, now);
        for call in 0..60 * SAMPLES {
            now += WINDOW / SAMPLES;
            if call % 2 == 0 {
                gradient.cut(now, 400);
            } else {
                gradient.ended(now, Duration::from_millis(2), 400);
            }
        }
        assert_eq!(
            (gradient.limit(), gradient.baseline()),
            (LEAST, Duration::ZERO),
            "below the bound of latency"
        );
        run(&mut gradient, &mut now, 40, 10, 400);
        assert_eq!(gradient.limit(), 400);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_far_above_what_runs_follows_it_when_calls_are_cut_by_halves_at_most() {
        let mut now = Instant::now();
        let mut gradient = Gradient::new(Bounds { min: 64, max: 1024 }, now);
        let mut limits = Vec::new();
        for _ in 0..6 {
            for _ in 0..SAMPLES {
                now += WINDOW / SAMPLES;
                gradient.cut(now, 50);
            }
            limits.push(gradient.limit());
        }
        assert_eq!(limits, [128, 64, 40, 32, 25, 20]);
        run(&mut gradient, &mut now, 1, 10, 20);
        assert_eq!(gradient.limit(), 25, "back by its root, not to the bound at once");
        let mut fixed = Gradient::new(Bounds { min: 9, max: 9 }, now);
        (0..3 * SAMPLES).for_each(|call| fixed.cut(now + WINDOW / SAMPLES * call, 9));
        assert_eq!(fixed.limit(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn few_samples_change_nothing() {
        let mut now = Instant::now();
        let mut gradient = Gradient::new(BOUNDS, now);
        for _ in 0..SAMPLES - 1 {
            now += WINDOW * 5;
            gradient.ended(now, Duration::from_secs(9), 400);
        }
        assert_eq!((gradient.limit(), gradient.baseline()), (56, Duration::ZERO));
    }
}
