//! How far measured quantiles are off the exact ones, and whether that is more than chance: the instrument's own test,
//! made in every run that has something exact to compare with.
//!
//! Of n queries, a share p lies below the measured quantile give or take `sqrt(p (1 - p) / n)`; what that is in time
//! depends on where the quantile lies. In the body it is a percent. At the edge of the hiccups (1 % of them and the 99th
//! percentile of one shard) the smallest share more or less is the difference between 30 and 180 ms, and no number of
//! queries makes it 5 %. So a quantile is right when it is within 5 %, or between the exact quantiles four standard
//! errors to either side.

use serde::{Deserialize, Serialize};

use super::{
    reference::{self, Exact, Kind},
    report::{AnySlow, Times},
};
use crate::{policy::Policy, workload::Workload};

/// Most that an unhedged quantile may be off.
pub const BOUND: f64 = 0.05;
/// Standard errors that are chance.
const CHANCE: f64 = 4.0;

/// A measured value over the exact one, less 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Off {
    /// That.
    pub by: f64,
    /// What chance alone makes of it, least and most; only where nothing was done about the tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chance: Option<(f64, f64)>,
}

impl Off {
    /// Whether it is within the bound, or chance.
    pub fn right(&self) -> bool {
        let chance = self.chance.unwrap_or((0.0, 0.0));
        chance.0.min(-BOUND) <= self.by && self.by <= chance.1.max(BOUND)
    }
}

/// How far the quantiles of a row are off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// Median.
    pub p50: Off,
    /// 99 %.
    pub p99: Off,
    /// 99.9 %.
    pub p999: Off,
}

/// Of an arm whose policy has exact values.
pub fn of(
    workload: &Workload,
    policy: &Policy,
    queries: u64,
    times: &Times,
    exact: Option<&Exact>,
) -> Option<Deviation> {
    let exact = exact.filter(|exact| exact.kind == Kind::Exact)?;
    let unhedged = reference::unhedged(workload, policy);
    let off = |measured: f64, right: f64, p: f64| {
        let error = CHANCE * (p * (1.0 - p) / queries as f64).sqrt();
        let chance = unhedged.as_ref().map(|scatter| {
            let at = |p: f64| scatter.quantile(p.clamp(1e-9, 1.0 - 1e-9), workload.shards) / right - 1.0;
            (at(p - error), at(p + error))
        });
        Off { by: measured / right - 1.0, chance }
    };
    Some(Deviation {
        p50: off(times.p50, exact.p50, 0.5),
        p99: off(times.p99, exact.p99, 0.99),
        p999: off(times.p999, exact.p999, 0.999),
    })
}

/// What an unhedged row measures wrongly, in words.
pub fn faults(
    shards: u32,
    queries: u64,
    deviation: Option<&Deviation>,
    slow: Option<&AnySlow>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(deviation) = deviation {
        for (name, off) in [("p50", deviation.p50), ("p99", deviation.p99)] {
            if off.chance.is_some() && !off.right() {
                faults.push(format!("{shards} shards: {name} is {:+.1} % off the exact one", 100.0 * off.by));
            }
        }
    }
    if let Some(slow) = slow {
        let error = (slow.exact * (1.0 - slow.exact) / queries as f64).sqrt();
        if (slow.measured - slow.exact).abs() > CHANCE * error {
            faults.push(format!(
                "{shards} shards: {:.2} % of the queries saw a hiccup where {:.2} % is right",
                100.0 * slow.measured,
                100.0 * slow.exact
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Hedge;

    fn deviation(hiccups: f64, shards: u32, p99: f64, queries: u64) -> Deviation {
        let workload = Workload { shards, ..Workload::plain(hiccups) };
        let policy = Policy::hedge(Hedge::Off);
        let exact = reference::of(&workload, &policy);
        let right = exact.as_ref().unwrap();
        let times = Times { p50: right.p50, p90: 0.0, p95: 0.0, p99, p999: right.p999, max: 0.0, mean: 0.0 };
        of(&workload, &policy, queries, &times, exact.as_ref()).unwrap()
    }

    #[test]
    fn in_the_body_five_percent_is_too_far_and_at_an_edge_chance_is_not() {
        let body = deviation(0.0, 1, 25.0 * 1.1, 50_000);
        assert!(!body.p99.right() && body.p50.right());
        assert_eq!(faults(1, 50_000, Some(&body), None).len(), 1);
        // A hundredth of the calls hiccups, and the 99th percentile of one shard is where they begin.
        assert!(deviation(0.01, 1, 60.0, 100_000).p99.right());
        assert!(!deviation(0.01, 1, 30.0, 100_000).p99.right());
        assert!(!deviation(0.01, 100, 60.0, 100_000).p99.right());
    }

    #[test]
    fn a_share_of_hiccups_that_chance_does_not_explain_is_a_fault() {
        let slow = |measured| AnySlow { measured, exact: 0.634, formula: 0.634 };
        assert!(faults(100, 100_000, None, Some(&slow(0.636))).is_empty());
        let said = faults(100, 100_000, None, Some(&slow(0.645)));
        assert!(said[0].starts_with("100 shards: 64.50 % of the queries saw a hiccup"), "{said:?}");
    }
}
