//! What can be said of a comparison after a few seeds: the median of the ratios, and how high it may really be.
//!
//! The bound is an order statistic, which assumes nothing about the distribution of the ratios: of n seeds, k or more lie
//! above the true median with the chance that a fair coin falls so k times of n. So with ten seeds the ninth smallest
//! ratio is above it with 98.9 %, the eighth with only 94.5 %. Five seeds are the fewest whose largest says anything
//! (96.9 %).

use serde::{Deserialize, Serialize};

/// How sure the bound is.
const CONFIDENCE: f64 = 0.95;

/// Ratio of two arms over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median over the seeds.
    pub median: f64,
    /// Upper 95 % bound of that median; absent with fewer than five seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// A figure that is no ratio, over several seeds: the same median and the same bound.
pub type Figure = Ratio;

impl Ratio {
    /// Of one ratio per seed; `None` when there is none.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let last = sorted.get(middle)?;
        let median = if sorted.len() % 2 == 1 { *last } else { f64::midpoint(sorted[middle - 1], *last) };
        Some(Self { median, upper: bound(sorted.len()).map(|at| sorted[at]) })
    }
}

/// Index of the order statistic that is above the median with [`CONFIDENCE`].
fn bound(n: usize) -> Option<usize> {
    let (mut chance, mut below) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0);
    for at in 0..n {
        // Chance that exactly `at` of n are below the median.
        below += chance;
        if below >= CONFIDENCE {
            return Some(at);
        }
        chance *= (n - at) as f64 / (at + 1) as f64;
    }
    None
}

/// Chance of `events` or more of `n`, each of chance `p`.
pub fn at_least(events: u64, n: u64, p: f64) -> f64 {
    if events == 0 {
        return 1.0;
    }
    if events > n || p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    // By logarithms: the first terms of many may be too small for a number.
    let (mut term, mut below) = (n as f64 * (1.0 - p).ln(), 0.0);
    for at in 0..events {
        below += term.exp();
        term += ((n - at) as f64 / (at + 1) as f64).ln() + (p / (1.0 - p)).ln();
    }
    (1.0 - below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;

    #[test]
    fn the_bound_is_the_order_statistic_of_the_books() {
        let table =
            [(1, None), (4, None), (5, Some(4)), (8, Some(6)), (10, Some(8)), (20, Some(14)), (30, Some(19))];
        for (n, at) in table {
            assert_eq!(bound(n), at, "{n}");
        }
        let ratios = [0.5, 0.52, 0.55, 0.56, 0.6, 0.61, 0.7, 0.49, 0.53, 0.54];
        let ratio = Ratio::of(&ratios).unwrap();
        assert!((ratio.median - 0.545).abs() < 1e-9);
        assert_eq!(ratio.upper, Some(0.61));
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&[1.0, 3.0]), Some(Ratio { median: 2.0, upper: None }));
    }

    #[test]
    fn the_chance_of_so_many_events_is_binomial() {
        assert_eq!((at_least(0, 10, 0.3), at_least(11, 10, 0.3)), (1.0, 0.0));
        assert!((at_least(1, 10, 0.5) - (1.0 - 0.5_f64.powi(10))).abs() < 1e-12);
        assert!((at_least(2, 2, 0.3) - 0.09).abs() < 1e-12);
        // 10 of 500 at 2 %: the median.
        assert!((0.5..0.6).contains(&at_least(10, 500, 0.02)), "{}", at_least(10, 500, 0.02));
        assert!(at_least(25, 500, 0.02) < 1e-3);
    }

    #[test]
    fn the_bound_is_above_the_true_median_as_often_as_it_says() {
        let rounds = 4000;
        let above = (0..rounds).filter(|round| {
            // A skewed distribution whose median is 1.
            let ratios: Vec<f64> =
                (0..10).map(|n| (2.0 * draw::unit(&[3, *round, n]) - 1.0).exp().powi(3)).collect();
            Ratio::of(&ratios).unwrap().upper.unwrap() >= 1.0
        });
        let share = above.count() as f64 / rounds as f64;
        assert!((0.98..0.997).contains(&share), "{share}");
    }
}
