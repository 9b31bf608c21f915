//! Do two arms have one distribution? Two tests, because each is blind to what the other sees.
//!
//! The rank test (Mann-Whitney U, 1947) asks whether a query of the new version tends to be slower: it finds a body that
//! is 10 % slower in a thousand queries, and does not find one per cent of queries that hang, since they move no rank
//! but their own. The exceedance test asks whether more of the new version's queries are slower than the 99th percentile
//! of the control: it finds the hanging ones. Judge with both. One-sided: faster is never a breach.
//!
//! Where hanging queries are about one per cent, the 99th percentile of a sample is by chance one of them or the slowest
//! of the others, and which one costs the test power. But then there is a hole in the latencies, and the count above a
//! hole says all there is to say: so the edge is the hole's, when both arms together have one near that percentile.

use super::{
    latencies::{Latencies, floor_us},
    normal::upper_tail,
};

/// What the rank test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
    /// P(a query of the new version is slower than one of the control), ties halved.
    pub slower: f64,
    /// In standard deviations.
    pub z: f64,
    /// Chance of that, or more, when there is no difference.
    pub p: f64,
}

/// Mann-Whitney U with ties, by its normal approximation, with continuity correction.
pub fn rank_test(control: &Latencies, treatment: &Latencies) -> Option<RankTest> {
    let (n, m) = (control.len() as f64, treatment.len() as f64);
    if n < 1.0 || m < 1.0 {
        return None;
    }
    let mut both: std::collections::BTreeMap<u16, (u64, u64)> = std::collections::BTreeMap::new();
    for (bucket, count) in control.buckets() {
        both.entry(bucket).or_default().0 = count;
    }
    for (bucket, count) in treatment.buckets() {
        both.entry(bucket).or_default().1 = count;
    }
    let (mut u, mut below, mut ties) = (0.0, 0.0, 0.0);
    for (old, new) in both.into_values() {
        let (old, new) = (old as f64, new as f64);
        u += new * (below + old / 2.0);
        below += old;
        let tied = old + new;
        ties += tied * tied * tied - tied;
    }
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)).max(1.0));
    let z = if variance > 0.0 { (u - n * m / 2.0 - 0.5) / variance.sqrt() } else { 0.0 };
    Some(RankTest { slower: u / (n * m), z, p: upper_tail(z) })
}

/// What the exceedance test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exceedance {
    /// The edge, microseconds.
    pub edge_us: u64,
    /// Share of the control at or above it.
    pub control: f64,
    /// Share of the new version at or above it (or at or above `times` it).
    pub treatment: f64,
    /// Chance of that, or more, when there is no difference.
    pub p: f64,
}

/// Ratio of two neighbouring latencies that is a hole.
const HOLE: f64 = 1.5;

/// The lower end of the widest hole of both arms between half and twice the share above `quantile`; else the control's
/// quantile. The hole is found without looking at which arm a query was of, so that finding it is no look at the result.
fn edge_us(control: &Latencies, treatment: &Latencies, quantile: f64) -> u64 {
    let mut both = control.clone();
    both.add(treatment);
    let all = both.len() as f64;
    let near = (1.0 - 2.0 * (1.0 - quantile))..=(1.0 - (1.0 - quantile) / 2.0);
    let (mut below, mut last, mut widest) = (0, None, (HOLE, None));
    for (bucket, count) in both.buckets() {
        if let Some(last) = last.filter(|_| near.contains(&(below as f64 / all))) {
            let (end, next) = (floor_us(last + 1), floor_us(bucket));
            let ratio = next as f64 / end.max(1) as f64;
            if ratio > widest.0 {
                widest = (ratio, Some(end));
            }
        }
        below += count;
        last = Some(bucket);
    }
    widest.1.unwrap_or_else(|| control.edge_us(quantile))
}

/// One-sided test of two shares above the control's `quantile` (see the head for where exactly), with the pooled variance. With
/// `times` above 1 the new version is counted above `times` that edge, the control above the edge itself: is its quantile more
/// than `times` as long?
pub fn exceedance(
    control: &Latencies,
    treatment: &Latencies,
    quantile: f64,
    times: f64,
) -> Option<Exceedance> {
    let (n, m) = (control.len() as f64, treatment.len() as f64);
    if n < 1.0 || m < 1.0 {
        return None;
    }
    let edge_us = edge_us(control, treatment, quantile);
    let above = control.at_least(edge_us) as f64 / n;
    let new = treatment.at_least((edge_us as f64 * times).ceil() as u64) as f64 / m;
    let pooled = (above * n + new * m) / (n + m);
    let variance = pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m);
    let z = if variance > 0.0 { (new - above) / variance.sqrt() } else { 0.0 };
    Some(Exceedance { edge_us, control: above, treatment: new, p: upper_tail(z) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Latencies {
        let mut all = Latencies::default();
        for us in values {
            all.record(*us);
        }
        all
    }

    #[test]
    fn the_rank_test_counts_pairs_with_ties_halved() {
        // Below 256 microseconds buckets are single values.
        let test = rank_test(&of(&[10, 20, 20, 30]), &of(&[20, 30, 40])).unwrap();
        // 20: 1 + 2/2 = 2; 30: 3 + 1/2 = 3.5; 40: 4 -> U = 9.5 of 12.
        assert!((test.slower - 9.5 / 12.0).abs() < 1e-12);
        // N = 7; ties: three 20s, two 30s: 24 + 6 = 30; variance 12/12 * (8 - 30/42).
        let z = (9.5 - 6.0 - 0.5) / (8.0_f64 - 30.0 / 42.0).sqrt();
        assert!((test.z - z).abs() < 1e-12, "{test:?}");
        let same = rank_test(&of(&[7; 100]), &of(&[7; 100])).unwrap();
        assert_eq!((same.slower, same.z), (0.5, 0.0));
        assert_eq!(rank_test(&of(&[]), &of(&[1])), None);
    }

    #[test]
    fn the_exceedance_test_counts_above_the_edge() {
        let control: Vec<u64> = (0..1000).map(|at| if at < 10 { 200 } else { 10 }).collect();
        let treatment: Vec<u64> = (0..1000).map(|at| if at < 40 { 200 } else { 10 }).collect();
        let test = exceedance(&of(&control), &of(&treatment), 0.99, 1.0).unwrap();
        assert_eq!((test.edge_us, test.control, test.treatment), (11, 0.01, 0.04));
        let z = 0.03 / (0.025 * 0.975 * 0.002_f64).sqrt();
        assert!((test.p - upper_tail(z)).abs() < 1e-12);
        let longer = exceedance(&of(&control), &of(&treatment), 0.99, 20.0).unwrap();
        assert_eq!(longer.treatment, 0.0);
        assert!(longer.p > 0.99);
        assert_eq!(exceedance(&of(&[]), &of(&[1]), 0.99, 1.0), None);
    }

    #[test]
    fn the_edge_is_in_a_hole_near_the_percentile() {
        let arm = |hanging: usize| {
            let values: Vec<u64> = (0..1000).map(|at| if at < hanging { 200 } else { 10 }).collect();
            of(&values)
        };
        // The control's own percentile is one of its hanging queries.
        let test = exceedance(&arm(12), &arm(16), 0.99, 1.0).unwrap();
        assert_eq!((test.edge_us, test.control, test.treatment), (11, 0.012, 0.016));
        let even: Vec<u64> = (0..200).collect();
        assert_eq!(exceedance(&of(&even), &of(&even), 0.99, 1.0).unwrap().edge_us, 198, "there is none");
    }
}
