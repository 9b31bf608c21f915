//! How the chance of a false alarm is spent over looks.
//!
//! Whoever looks at a test again and again until it is significant finds something in any sample. So the whole chance
//! `alpha` that a good version is stopped is fixed beforehand, and each look may use what has become due since the last:
//! by the fraction `t` of the planned sample that is there, `alpha * t^rho` in all (Kim and DeMets, 1987, of the family
//! of Lan and DeMets, 1983). A look tests at what it newly gets (so the sum over looks bounds the false alarms whatever
//! the dependence between them: Bonferroni; somewhat less is used than is allowed). `rho` 3 keeps nearly all for the
//! end, where the sample is largest; 0.5 gives early looks a part, where something gross is stopped soon.
//!
//! Looks are taken when the sample has reached fixed sizes, not when somebody asks: asking spends nothing.
//!
//! **After the planned sample** the watch goes on in rounds, each from nothing, so that a version that breaks late is not
//! hidden behind the good queries before. Round `r` may spend a quarter of `alpha`, divided by `r (r + 1)`: over any number
//! of rounds that is a quarter. The last look of a step may use whatever its round has left.

use serde::{Deserialize, Serialize};

/// Queries of an arm at which is looked, before the planned sample.
pub const LOOKS: [u64; 4] = [100, 200, 400, 1_000];

/// Of `alpha`, what all rounds after the planned sample may spend on top.
const LATER: f64 = 0.25;

/// Part of `alpha` that a round may spend; 0: that of the planned sample.
pub fn weight(round: u32) -> f64 {
    let round = f64::from(round);
    if round < 1.0 { 1.0 } else { LATER / (round * (round + 1.0)) }
}

/// A rule of spending.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spending {
    /// In all.
    pub alpha: f64,
    /// How late.
    pub rho: f64,
    /// First sample at which it is used: earlier the test's approximation is poor.
    pub from: u64,
}

/// What was spent, and how far was looked.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Looks taken.
    pub looks: u32,
    /// Sample of the last one.
    pub at: u64,
}

impl Spent {
    /// The sample of a look that is due with `sample` queries of `planned`; `None`: none is, or all were taken.
    pub fn due(&self, sample: u64, planned: u64) -> Option<u64> {
        let sample = sample.min(planned);
        let sizes = LOOKS.into_iter().filter(|size| *size < planned).chain([planned]);
        sizes.into_iter().any(|size| size > self.at && size <= sample).then_some(sample)
    }

    /// After a look at a sample.
    pub fn looked(self, sample: u64) -> Self {
        Self { looks: self.looks + 1, at: sample }
    }
}

impl Spending {
    fn due_by(&self, sample: u64, planned: u64) -> f64 {
        if sample < self.from.min(planned) {
            return 0.0;
        }
        self.alpha * (sample as f64 / planned.max(1) as f64).min(1.0).powf(self.rho)
    }

    /// What a look at a sample may use, after the one at `last`.
    pub fn at(&self, last: u64, sample: u64, planned: u64) -> f64 {
        (self.due_by(sample, planned) - self.due_by(last, planned)).max(0.0)
    }

    /// What the last look may use: all that is left, if the sample can be judged at all.
    pub fn rest(&self, last: u64, sample: u64, planned: u64) -> f64 {
        if sample < self.from.min(planned) { 0.0 } else { (self.alpha - self.due_by(last, planned)).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_looks_spend_what_there_is_and_asking_spends_nothing() {
        for spending in
            [Spending { alpha: 0.01, rho: 3.0, from: 1_000 }, Spending { alpha: 0.002, rho: 0.5, from: 0 }]
        {
            for planned in [150, 1_000, 3_000] {
                for every in [1, 7, 130, 1_700, 5_000] {
                    let (mut spent, mut sum, mut sample) = (Spent::default(), 0.0, 0);
                    while sample < 9_000 {
                        sample += every;
                        while let Some(now) = spent.due(sample, planned) {
                            sum += spending.at(spent.at, now, planned);
                            spent = spent.looked(now);
                        }
                    }
                    assert!((sum - spending.alpha).abs() < 1e-12, "{planned} {every}: {sum}");
                    assert!(spent.looks as usize <= LOOKS.len() + 1, "{planned} {every}: {spent:?}");
                }
            }
        }
    }

    #[test]
    fn late_spending_leaves_the_end_nearly_all() {
        let tail = Spending { alpha: 0.01, rho: 3.0, from: 1_000 };
        assert_eq!(tail.at(0, 400, 3_000), 0.0);
        assert!(tail.at(1_000, 3_000, 3_000) > 0.0096);
        assert_eq!((tail.rest(400, 900, 3_000), tail.rest(400, 1_100, 3_000)), (0.0, 0.01));
        assert!((tail.at(0, 1_000, 3_000) + tail.rest(1_000, 1_100, 3_000) - 0.01).abs() < 1e-12);
    }

    #[test]
    fn all_rounds_together_spend_a_quarter_more() {
        let later: f64 = (1..100_000).map(weight).sum();
        assert!(weight(0) == 1.0 && later < 0.25 && later > 0.249_9, "{later}");
    }
}
