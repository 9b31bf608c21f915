//! What `lab safety` reports: one row for each load, with what breaks a bound in words. All times are model milliseconds.

use serde::{Deserialize, Serialize};

use super::Settings;
use crate::{policy::Policy, statistics::Ratio, tail::report::Times, workload::Workload};

/// Queries of an arm from which on a broken bound says something.
const ENOUGH: u64 = 5000;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `safety`.
    pub lab: String,
    /// What was asked of the tree; its rates are those of each row.
    pub workload: Workload,
    /// The policy that is judged.
    pub policy: Policy,
    /// Seeds of each row.
    pub seeds: u32,
    /// Rows, by load.
    pub rows: Vec<Row>,
    /// Every bound that is broken, in words; empty: the policy is safe.
    pub broken: Vec<String>,
}

/// An arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Latencies of all seeds together.
    pub times: Times,
    /// Copies that came to the leaves per first call, mean of the seeds.
    pub extra: f64,
    /// Share of the workers' time that was taken.
    pub executed: f64,
    /// All that happened, mixed into one number: the same seeds have the same one.
    pub history: String,
}

/// Hedges that nothing bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Uncapped {
    /// What it measured.
    pub arm: Arm,
    /// Median of the ratios of the 99th percentile to the arm without hedges.
    pub p99: f64,
    /// Work that came to the leaves, as a share of what they can do.
    pub demand: f64,
    /// More came than can be done, so that queues grow for as long as it lasts, and it is seen.
    pub diverges: bool,
}

/// The arms at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The load in words.
    pub place: String,
    /// Load.
    pub load: f64,
    /// Load of the measured queries, after a step.
    pub then: Option<f64>,
    /// Most that the ratios may be.
    pub bound: f64,
    /// Without hedges.
    pub off: Arm,
    /// As judged.
    pub judged: Arm,
    /// Median latency, over the arm without hedges.
    pub p50: Ratio,
    /// Mean, likewise.
    pub mean: Ratio,
    /// 99th percentile, likewise.
    pub p99: Ratio,
    /// Seed with the highest ratio of the 99th percentile.
    pub worst_seed: u64,
    /// Copies over the budget, all seeds.
    pub extra_of_budget: f64,
    /// The same of the seed with the most.
    pub most_extra_of_budget: f64,
    /// Some seed sent more than the budget and all that the bucket can hold.
    pub overdrawn: bool,
    /// Most that it may be.
    pub extra_bound: f64,
    /// Without bounds, when that was run.
    pub uncapped: Option<Uncapped>,
    /// What breaks a bound here.
    pub broken: Vec<String>,
}

impl Row {
    pub(super) fn judge(&mut self) {
        let ratios = [("p50", self.p50), ("mean", self.mean), ("p99", self.p99)];
        for (name, ratio) in ratios {
            let upper = ratio.upper.unwrap_or(f64::INFINITY);
            if upper > self.bound {
                self.broken.push(format!(
                    "at {}: {name} may be {upper:.3} x the one without hedges, at most {:.2} is safe (p99 was worst \
                     with seed {})",
                    self.place, self.bound, self.worst_seed
                ));
            }
        }
        if self.extra_of_budget > self.extra_bound {
            self.broken.push(format!(
                "at {}: {:.2} x the budget was sent, at most {:.2} is allowed",
                self.place, self.extra_of_budget, self.extra_bound
            ));
        }
        if self.overdrawn {
            self.broken.push(format!(
                "at {}: with one seed {:.2} x the budget was sent, which is more than the bucket can hold too",
                self.place, self.most_extra_of_budget
            ));
        }
    }
}

impl Report {
    pub(super) fn of(settings: &Settings, rows: Vec<Row>) -> Self {
        let mut broken: Vec<String> = rows.iter().flat_map(|row| row.broken.clone()).collect();
        // From 60 % on the danger must be seen, else nothing was shown.
        let heavy = |row: &&Row| row.then.is_none() && row.load >= 0.595;
        let unseen =
            rows.iter().filter(heavy).filter(|row| row.uncapped.as_ref().is_some_and(|wild| !wild.diverges));
        broken.extend(unseen.map(|row| format!("at {}: hedges without bounds do not diverge", row.place)));
        let queries = settings.workload.queries;
        if !broken.is_empty() && queries < ENOUGH {
            let above = queries.div_ceil(100);
            broken.push(format!(
                "{queries} queries in each arm are too few for these bounds: {above} of them are above the 99th percentile, and \
                 queues that grow need time to be seen; before it counts, run it with --queries {ENOUGH} or more"
            ));
        }
        Self {
            lab: "safety".to_owned(),
            workload: settings.workload.clone(),
            policy: settings.policy.clone(),
            seeds: settings.seeds,
            rows,
            broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(upper: f64) -> Ratio {
        Ratio { median: 0.9, upper: Some(upper) }
    }

    fn row(p99: f64, extra_of_budget: f64) -> Row {
        let times = Times { p50: 1.0, p90: 1.0, p95: 1.0, p99: 1.0, p999: 1.0, max: 1.0, mean: 1.0 };
        let arm = Arm { times, extra: 0.05, executed: 0.8, history: String::new() };
        let mut row = Row {
            place: "80%".to_owned(),
            load: 0.8,
            then: None,
            bound: 1.05,
            off: arm.clone(),
            judged: arm.clone(),
            p50: ratio(1.0),
            mean: ratio(1.0),
            p99: ratio(p99),
            worst_seed: 7,
            extra_of_budget,
            most_extra_of_budget: extra_of_budget,
            overdrawn: extra_of_budget > 1.15,
            extra_bound: 1.1,
            uncapped: Some(Uncapped { arm, p99: 9.0, demand: 1.2, diverges: true }),
            broken: Vec::new(),
        };
        row.judge();
        row
    }

    #[test]
    fn a_broken_bound_is_said_with_the_seed_that_was_worst() {
        assert!(row(1.05, 1.1).broken.is_empty());
        let broken = row(1.06, 1.2).broken;
        assert_eq!(broken.len(), 3);
        assert!(broken[0].contains("at 80%: p99 may be 1.060") && broken[0].contains("seed 7"), "{broken:?}");
        assert!(broken[1].contains("1.20 x the budget"), "{broken:?}");
        assert!(broken[2].contains("more than the bucket can hold"), "{broken:?}");
        let mut tame = row(1.0, 1.0);
        tame.uncapped.as_mut().unwrap().diverges = false;
        let report = Report::of(&Settings::default(), vec![row(1.0, 1.0), tame]);
        assert_eq!(report.broken, ["at 80%: hedges without bounds do not diverge"]);
        let mut short = Settings::default();
        short.workload.queries = 150;
        let broken = Report::of(&short, vec![row(1.06, 1.0)]).broken;
        assert!(
            broken[1].starts_with("150 queries in each arm are too few for these bounds: 2 of"),
            "{broken:?}"
        );
        assert!(Report::of(&short, vec![row(1.0, 1.0)]).broken.is_empty());
    }
}
