//! How the chance of a false alarm is spent over looks.
//!
//! Whoever looks at a test again and again until it is significant finds something in any sample. So the whole chance
//! `alpha` that a good version is stopped is fixed beforehand, and each look may use what has become due since the last:
//! by the fraction `t` of the planned sample that is there, `alpha * t^rho` in all (Kim and DeMets, 1987, of the family
//! of Lan and DeMets, 1983). A look tests at what it newly gets (so the sum over looks bounds the false alarms whatever
//! the dependence between them: Bonferroni; somewhat less is used than is allowed). `rho` 3 keeps nearly all for the
//! end, where the sample is largest; 0.5 gives early looks a part, where something gross is stopped soon.
//!
//! Looks are taken when the sample has reached fixed fractions, not when somebody asks: asking spends nothing.

use serde::{Deserialize, Serialize};

/// Fractions of the planned sample at which is looked.
pub const LOOKS: [f64; 5] = [1.0 / 30.0, 1.0 / 15.0, 2.0 / 15.0, 1.0 / 3.0, 1.0];

/// A rule of spending.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spending {
    /// In all.
    pub alpha: f64,
    /// How late.
    pub rho: f64,
    /// First fraction at which it is used: earlier the test's approximation is poor.
    pub from: f64,
}

/// What was spent, and how far was looked.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Looks taken.
    pub looks: u32,
    /// Fraction of the last one.
    pub at: f64,
}

impl Spent {
    /// The fraction of a look that is due with `sample` queries of `planned`; `None`: none is, or all were taken.
    pub fn due(&self, sample: u64, planned: u64) -> Option<f64> {
        let t = (sample as f64 / planned.max(1) as f64).min(1.0);
        let crossed = LOOKS.iter().any(|look| *look > self.at + 1e-9 && *look <= t + 1e-9);
        crossed.then_some(t)
    }

    /// After a look at `t`.
    pub fn looked(self, t: f64) -> Self {
        Self { looks: self.looks + 1, at: t }
    }
}

impl Spending {
    fn due_by(&self, t: f64) -> f64 {
        if t + 1e-9 < self.from { 0.0 } else { self.alpha * t.powf(self.rho) }
    }

    /// What a look at `t` may use, after the one at `last`.
    pub fn at(&self, last: f64, t: f64) -> f64 {
        (self.due_by(t) - self.due_by(last)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_looks_spend_what_there_is_and_asking_spends_nothing() {
        for spending in
            [Spending { alpha: 0.01, rho: 3.0, from: 0.3 }, Spending { alpha: 0.002, rho: 0.5, from: 0.0 }]
        {
            for every in [1, 7, 130, 1_700, 5_000] {
                let (mut spent, mut sum, mut sample) = (Spent::default(), 0.0, 0);
                while sample < 9_000 {
                    sample += every;
                    while let Some(t) = spent.due(sample, 3_000) {
                        sum += spending.at(spent.at, t);
                        spent = spent.looked(t);
                    }
                }
                assert!((sum - spending.alpha).abs() < 1e-12, "{every}: {sum}");
                assert!(spent.looks as usize <= LOOKS.len(), "{every}: {spent:?}");
            }
        }
    }

    #[test]
    fn late_spending_leaves_the_end_nearly_all() {
        let tail = Spending { alpha: 0.01, rho: 3.0, from: 0.3 };
        assert_eq!(tail.at(0.0, 0.1), 0.0);
        assert!(tail.at(1.0 / 3.0, 1.0) > 0.0096);
    }
}
