//! What a root saw of a trial, to and from the wire.

use canopy_proto::topology as wire;

use super::{Arm, Comparison, agreement::Mean, judged::Paired, latencies::Latencies};
use crate::routing::Trial;

/// Queries of an arm that one report tells of at most: sums of them stay sums.
const MOST_QUERIES: u64 = 1 << 32;

/// What one root saw of one trial.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// Of which corpus.
    pub corpus: String,
    /// The version on trial, and the other.
    pub versions: (u64, u64),
    /// Number of the gate, as the snapshot's trial says it.
    pub gate: u64,
    /// What was seen.
    pub comparison: Comparison,
}

impl Seen {
    /// Nothing yet.
    pub fn of(corpus: &str, trial: &Trial) -> Self {
        Self {
            corpus: corpus.to_owned(),
            versions: (trial.version.0, trial.control.0),
            gate: trial.gate,
            comparison: Comparison::default(),
        }
    }

    /// Whether it is of the same gate of the same trial.
    pub fn same(&self, other: &Self) -> bool {
        self.corpus == other.corpus && self.versions == other.versions && self.gate == other.gate
    }

    /// Adds what was seen of the same trial.
    pub fn add(&mut self, other: &Comparison) {
        self.comparison.add(other);
    }

    /// Its message.
    pub fn to_wire(&self) -> wire::Trial {
        let Comparison { control, treatment, overlap, rank_biased_overlap, judged } = &self.comparison;
        wire::Trial {
            corpus: self.corpus.clone(),
            version: self.versions.0,
            control: self.versions.1,
            treatment: Some(arm_to_wire(treatment)),
            compared: Some(arm_to_wire(control)),
            overlap: Some(mean_to_wire(overlap)),
            rank_biased_overlap: Some(mean_to_wire(rank_biased_overlap)),
            gate: self.gate,
            judged: judged.as_ref().map(judged_to_wire),
        }
    }

    /// From its message; numbers that can't be are left out.
    pub fn from_wire(trial: &wire::Trial) -> Self {
        let comparison = Comparison {
            control: arm_from_wire(trial.compared.as_ref()),
            treatment: arm_from_wire(trial.treatment.as_ref()),
            overlap: mean_from_wire(trial.overlap.as_ref()),
            rank_biased_overlap: mean_from_wire(trial.rank_biased_overlap.as_ref()),
            judged: trial.judged.as_ref().map(judged_from_wire),
        };
        let (corpus, versions) = (trial.corpus.clone(), (trial.version, trial.control));
        Self { corpus, versions, gate: trial.gate, comparison }
    }
}

fn arm_to_wire(arm: &Arm) -> wire::Arm {
    let (buckets, counts) = arm.latencies.buckets().map(|(bucket, count)| (u32::from(bucket), count)).unzip();
    wire::Arm {
        queries: arm.queries,
        errors: arm.errors,
        partial: arm.partial,
        zero_results: arm.zero_results,
        buckets,
        counts,
    }
}

fn arm_from_wire(arm: Option<&wire::Arm>) -> Arm {
    let Some(arm) = arm else { return Arm::default() };
    let queries = arm.queries.min(MOST_QUERIES);
    let most = |count: u64| count.min(queries);
    let counts = arm.counts.iter().copied().map(most);
    Arm {
        queries,
        errors: most(arm.errors),
        partial: most(arm.partial),
        zero_results: most(arm.zero_results),
        latencies: Latencies::from_buckets(arm.buckets.iter().copied().zip(counts)),
    }
}

fn judged_to_wire(judged: &Paired) -> wire::JudgedMeans {
    let Paired { before, after, difference } = judged;
    let [before, after, difference] = [before, after, difference].map(|mean| Some(mean_to_wire(mean)));
    wire::JudgedMeans { before, after, difference }
}

fn judged_from_wire(judged: &wire::JudgedMeans) -> Paired {
    let [before, after, difference] =
        [&judged.before, &judged.after, &judged.difference].map(|mean| mean_from_wire(mean.as_ref()));
    Paired { before, after, difference }
}

fn mean_to_wire(mean: &Mean) -> wire::Mean {
    wire::Mean { queries: mean.queries, sum: mean.sum, squares: mean.squares }
}

fn mean_from_wire(mean: Option<&wire::Mean>) -> Mean {
    match mean {
        Some(mean) if mean.sum.is_finite() && mean.squares.is_finite() => {
            Mean { queries: mean.queries, sum: mean.sum, squares: mean.squares }
        }
        _ => Mean::default(),
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Version;

    use super::*;

    #[test]
    fn what_was_seen_comes_over_and_adds_up() {
        let trial = Trial { version: Version(8), control: Version(7), shadow: 0, compared: 0, gate: 3 };
        let mut seen = Seen::of("web", &trial);
        let arm = &mut seen.comparison.treatment;
        (arm.queries, arm.errors, arm.partial, arm.zero_results) = (100, 1, 2, 3);
        (1..=100).for_each(|ms| arm.latencies.record(ms * 1000));
        seen.comparison.overlap.record(0.5);
        seen.comparison.judged.get_or_insert_default().record(0.5, 0.25);
        let mut read = Seen::from_wire(&seen.to_wire());
        assert_eq!(read, seen);
        assert!(read.same(&seen) && !read.same(&Seen { gate: 4, ..seen.clone() }));
        read.add(&seen.comparison);
        assert_eq!(
            (read.comparison.treatment.queries, read.comparison.treatment.latencies.len()),
            (200, 200)
        );
    }

    #[test]
    fn nonsense_is_cut_down() {
        let arm = wire::Arm {
            queries: 5,
            errors: 9,
            buckets: vec![1, 70_000],
            counts: vec![2, 3],
            ..Default::default()
        };
        let mean = wire::Mean { queries: 1, sum: f64::NAN, squares: 0.0 };
        let trial = wire::Trial { treatment: Some(arm.clone()), overlap: Some(mean), ..Default::default() };
        let seen = Seen::from_wire(&trial).comparison;
        assert_eq!((seen.treatment.errors, seen.treatment.latencies.len()), (5, 2));
        assert_eq!(seen.overlap, Mean::default());
        let endless =
            wire::Arm { queries: u64::MAX, errors: 7, buckets: vec![1, 2], counts: vec![u64::MAX; 2], ..arm };
        let trial = wire::Trial { treatment: Some(endless), ..trial };
        let (mut sum, one) = (Comparison::default(), Seen::from_wire(&trial).comparison);
        (0..3).for_each(|_| sum.add(&one));
        assert_eq!((sum.treatment.queries, sum.treatment.errors), (3 * MOST_QUERIES, 21));
        assert_eq!(sum.treatment.latencies.len(), 6 * MOST_QUERIES);
    }
}
