//! What can be said of a comparison after a few seeds: the median of the ratios, and how high it may really be.

use serde::{Deserialize, Serialize};

use crate::draw;

/// Resamples of the bound.
const RESAMPLES: u64 = 2000;

/// Ratio of two arms over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median over the seeds.
    pub median: f64,
    /// Upper 95 % bound of that median, by resampling; absent with fewer than five seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

impl Ratio {
    /// Of one ratio per seed; `None` when there is none.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let upper = (ratios.len() >= 5).then(|| {
            let medians = (0..RESAMPLES).map(|round| {
                let pick = |n| ratios[(draw::unit(&[0xb007, round, n]) * ratios.len() as f64) as usize];
                median((0..ratios.len() as u64).map(pick).collect())
            });
            let mut medians: Vec<f64> = medians.collect();
            medians.sort_by(f64::total_cmp);
            medians[(0.95 * medians.len() as f64) as usize]
        });
        Some(Self { median: median(ratios.to_vec()), upper })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_above_the_median_and_within_what_was_seen() {
        let ratios = [0.5, 0.52, 0.55, 0.56, 0.6, 0.61, 0.7, 0.49, 0.53, 0.54];
        let ratio = Ratio::of(&ratios).unwrap();
        assert!((ratio.median - 0.545).abs() < 1e-9);
        let upper = ratio.upper.unwrap();
        assert!(upper > ratio.median && upper < 0.65, "{upper}");
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&[1.0, 3.0]), Some(Ratio { median: 2.0, upper: None }));
    }
}
