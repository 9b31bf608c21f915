//! The controller against exact numbers: a leaf that takes a lognormal time (mean 8 ms, sigma 0.5) or, with probability
//! h, 180 to 220 ms. Every number of the tables is computed here from the formula, by a fine grid, and compared with
//! what the controller finds from its coarse one.

use super::*;

/// erfc with a relative error below 2e-7 everywhere (a rational fit in t = 1/(1 + |x|/2)).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let coefficients = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let tail = t * (-x * x + sum).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

/// P(longer than `ms`).
fn leaf(ms: f64, h: f64) -> f64 {
    if ms <= 0.0 {
        return 1.0;
    }
    let (sigma, mean) = (0.5, 8.0_f64);
    let mu = mean.ln() - sigma * sigma / 2.0;
    let body = 0.5 * erfc((ms.ln() - mu) / (sigma * std::f64::consts::SQRT_2));
    let stall = ((220.0 - ms) / 40.0).clamp(0.0, 1.0);
    (1.0 - h) * body + h * stall
}

fn survival(h: f64) -> Survival {
    Survival::of(|time| leaf(time.as_secs_f64() * 1000.0, h))
}

/// The exact optimum in ms, by a grid of 0.1 ms, of one hedge or of two.
fn exact(h: f64, branches: u32, percentile: f64, budget: f64, two: bool) -> f64 {
    let late = late(branches, percentile);
    let step = 0.1;
    let table: Vec<f64> = (0..=2300).map(|n| leaf(f64::from(n) * step, h)).collect();
    let longer =
        |t: f64| if t <= 0.0 { 1.0 } else { table.get((t / step).round() as usize).copied().unwrap_or(0.0) };
    let time = |alive: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (0_i32, 4600);
        while low < high {
            let middle = i32::midpoint(low, high);
            if alive(f64::from(middle) * step) <= late { high = middle } else { low = middle + 1 }
        }
        f64::from(low) * step
    };
    let mut best = f64::INFINITY;
    for n in 10..700 {
        let first = f64::from(n) * step;
        if two {
            let left = budget - longer(first);
            let second =
                (n..2300).find(|m| longer(f64::from(*m) * step) * longer(f64::from(m - n) * step) <= left);
            let Some(second) = second.filter(|_| left >= 0.0) else { continue };
            let second = f64::from(second) * step;
            best = best.min(time(&|t| longer(t) * longer(t - first) * longer(t - second)));
        } else {
            let probability = (budget / longer(first)).min(1.0);
            best = best.min(time(&|t| longer(t) * (1.0 - probability * (1.0 - longer(t - first)))));
        }
    }
    best
}

fn found(h: f64, branches: u32, percentile: f64, budget: f64, replicas: usize) -> (Delays, f64) {
    let target = Target { branches, percentile, budget, replicas };
    let delays = best(&survival(h), &target).expect("delays");
    (delays, delays.expected.map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0))
}

#[test]
fn one_hedge_meets_the_exact_optimum_for_every_budget_and_width() {
    for h in [0.005, 0.01] {
        for budget in [0.02, 0.05, 0.1] {
            for branches in [1, 10, 50, 100] {
                let (delays, ms) = found(h, branches, 0.99, budget, 2);
                let optimum = exact(h, branches, 0.99, budget, false);
                assert!(delays.extra <= budget * 1.001, "{h} {budget} {branches}: {delays:?}");
                assert_eq!(delays.second, None);
                // At the very edge of what one hedge can do the optimum is ill-conditioned.
                if h < 0.01 || branches < 100 {
                    assert!(
                        (ms - optimum).abs() <= 0.015 * optimum + 0.3,
                        "{h} {budget} {branches}: {ms} {optimum}"
                    );
                }
            }
        }
    }
}

#[test]
fn at_a_wide_fan_out_the_hedged_tail_is_under_a_fifth_of_the_unhedged_one() {
    let unhedged = survival(0.005).time(late(100, 0.99)).unwrap() / 1000.0;
    for (budget, ratio) in [(0.02, 0.2), (0.05, 0.18), (0.1, 0.17)] {
        let (_, ms) = found(0.005, 100, 0.99, budget, 2);
        assert!(ms <= ratio * unhedged, "{budget}: {ms} of {unhedged}");
    }
}

#[test]
fn a_tiny_budget_hedges_early_and_sometimes_instead_of_always_and_too_late() {
    // Stalls are as common as the budget allows hedges: "at the quantile 1 - budget" would wait into the stall.
    let (delays, ms) = found(0.01, 1, 0.99, 0.01, 2);
    let optimum = exact(0.01, 1, 0.99, 0.01, false);
    assert!(delays.probability < 0.6 && delays.first < Duration::from_millis(25), "{delays:?}");
    assert!(delays.extra <= 0.010_01 && ms < 29.0 && (ms - optimum).abs() < 0.6, "{ms} {optimum}");
}

#[test]
fn a_third_replica_beats_stalls_that_one_hedge_cannot() {
    for budget in [0.02, 0.05, 0.1] {
        // Two stalled copies of some branch are as common as one query in a hundred at this width.
        let (one, _) = found(0.01, 200, 0.99, budget, 2);
        assert!(one.expected.is_none_or(|time| time > Duration::from_millis(150)), "{one:?}");
        let (two, ms) = found(0.01, 200, 0.99, budget, 3);
        assert!(
            two.second.is_some_and(|second| second > two.first) && two.extra <= budget * 1.001,
            "{two:?}"
        );
        assert!(ms < 50.0, "{budget}: {ms}");
    }
    for (branches, budget) in [(10, 0.05), (100, 0.02), (100, 0.05), (100, 0.1)] {
        let (two, _) = found(0.005, branches, 0.99, budget, 3);
        let one = survival(0.005);
        let policy = Policy::Two {
            first: two.first.as_secs_f64() * 1e6,
            second: two.second.expect("two hedges").as_secs_f64() * 1e6,
        };
        let rare = policy.time(&one, late(branches, 0.999)) / 1000.0;
        let optimum = exact(0.005, branches, 0.999, budget, true);
        assert!(rare <= optimum * 1.02 + 0.3, "{branches} {budget}: {rare} {optimum}");
    }
}

#[test]
fn without_stalls_hedges_help_a_little_and_cost_no_more_than_allowed() {
    let (delays, ms) = found(0.0, 100, 0.99, 0.05, 2);
    let unhedged = survival(0.0).time(late(100, 0.99)).unwrap() / 1000.0;
    assert!(ms < unhedged && delays.extra <= 0.05 * 1.001, "{ms} {unhedged}");
}

#[test]
fn what_was_never_seen_or_may_not_be_sent_gives_no_delay() {
    let target = Target { branches: 10, percentile: 0.99, budget: 0.05, replicas: 2 };
    assert_eq!(best(&survival(0.005), &Target { budget: 0.0, ..target }), None);
    assert_eq!(best(&survival(0.005), &Target { replicas: 1, ..target }), None);
    // Everything was stopped after 10 ms: nothing says how long it would have taken.
    let mut record = super::super::latency::Record::default();
    (0..1000).for_each(|_| record.stopped(Duration::from_millis(10)));
    let delays = best(&record.survival(), &target);
    assert!(delays.is_none_or(|delays| delays.first >= SHORTEST && delays.expected.is_none()), "{delays:?}");
}

#[test]
fn a_delay_is_never_shorter_than_the_timers_can_wait() {
    let fast = Survival::of(|time| leaf(time.as_secs_f64() * 100_000.0, 0.005));
    for replicas in [2, 3] {
        let target = Target { branches: 10, percentile: 0.99, budget: 0.5, replicas };
        let delays = best(&fast, &target).expect("delays");
        assert!(
            delays.first >= SHORTEST && delays.second.is_none_or(|second| second >= SHORTEST),
            "{delays:?}"
        );
    }
}
