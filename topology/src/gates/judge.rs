//! The judgement on a version: its arm beside the control's, metric by metric, with every number.
//!
//! The control arm is an equal sample of the same time, pinned to the live version on the same leaves: what happens to
//! the whole tree happens to both. A metric finds a breach when its difference is above its limit and the chance of such a
//! difference in a good version is below what the look may spend. The worst finding is the verdict; without one it is
//! pass when what the gate needs is there, else wait.
//!
//! The two floors are means over the queries that were asked of both versions, which are fewer than those of the arms: their
//! looks are taken at their own counts. Judged queries are asked once and all of them: no look is spent on them.

use serde::{Deserialize, Serialize};

use super::{
    agreement::Mean,
    judged::{self, Paired},
    latencies::Latencies,
    policy::GatePolicy,
    rank::{exceedance, rank_test},
    share::{Count, grown},
    spending::{Spending, Spent, weight},
};
use crate::rollout::Verdict;

/// What was seen of one arm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Arm {
    /// Queries.
    pub queries: u64,
    /// That ended in an error.
    pub errors: u64,
    /// That were answered in part.
    pub partial: u64,
    /// That had no hit.
    pub zero_results: u64,
    /// How long they took.
    pub latencies: Latencies,
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Pinned to the live version.
    pub control: Arm,
    /// Pinned to the new one.
    pub treatment: Arm,
    /// Overlap@10 of the answers of both to one query.
    pub overlap: Mean,
    /// Their rank-biased overlap.
    pub rank_biased_overlap: Mean,
    /// The judged queries, once they were all asked.
    pub judged: Option<Paired>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name.
    pub metric: String,
    /// What it says.
    pub verdict: Verdict,
    /// Of the control; for a floor, the floor.
    pub control: f64,
    /// Of the new version.
    pub treatment: f64,
    /// What is allowed.
    pub limit: f64,
    /// Chance of this in a good version; `None`: not tested in this look.
    pub p: Option<f64>,
    /// What the look may spend.
    pub alpha: f64,
    /// Whether the limit is a floor, not compared with the control.
    #[serde(default)]
    pub floor: bool,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Judgement {
    /// The worst finding.
    pub verdict: Verdict,
    /// Queries of the smaller arm since the gate was opened.
    pub sample: u64,
    /// Of these, what this look is about: those since the round began.
    pub since: u64,
    /// Number of the look.
    pub look: u32,
    /// Every metric.
    pub findings: Vec<Finding>,
    /// What was not judged, and why.
    pub skipped: Vec<String>,
}

impl Arm {
    /// Adds those of another root.
    pub fn add(&mut self, other: &Self) {
        self.count(other);
        self.latencies.add(&other.latencies);
    }

    /// Adds the counts alone.
    pub(super) fn count(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.queries, other.queries);
        add(&mut self.errors, other.errors);
        add(&mut self.partial, other.partial);
        add(&mut self.zero_results, other.zero_results);
    }
}

impl Comparison {
    /// Adds what another root saw. Judged queries are asked by one root: the first result stays. One of hardly any query is none:
    /// it would let everything pass.
    pub fn add(&mut self, other: &Self) {
        self.control.add(&other.control);
        self.treatment.add(&other.treatment);
        self.overlap.add(&other.overlap);
        self.rank_biased_overlap.add(&other.rank_biased_overlap);
        let enough = |judged: &Paired| judged.difference.queries >= judged::FEWEST_PAIRS;
        self.judged = self.judged.or(other.judged.filter(enough));
    }
}

impl Judgement {
    /// In words, worst first: for the audit log.
    pub fn reason(&self) -> String {
        let mut order: Vec<&Finding> = self.findings.iter().collect();
        order.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        let mut words: Vec<String> = order.into_iter().map(Finding::words).collect();
        if !self.skipped.is_empty() {
            words.push(format!("not judged: {}", self.skipped.join(", ")));
        }
        let of = match self.since {
            since if since == self.sample => String::new(),
            since => format!("the last {since} of "),
        };
        format!("look {} at {of}{} queries an arm: {}", self.look, self.sample, words.join("; "))
    }
}

impl Finding {
    fn words(&self) -> String {
        let said = match self.verdict {
            Verdict::HardBreach => "HARD BREACH ",
            Verdict::SoftBreach => "soft breach ",
            Verdict::Pass | Verdict::Wait => "",
        };
        let p = self.p.map_or(String::new(), |p| format!(", p {p:.2e} of {:.2e}", self.alpha));
        let Self { metric, control, treatment, limit, .. } = self;
        // A floor has no value of before.
        if self.floor {
            return format!("{said}{metric} {treatment:.4} (floor {limit:.4}{p})");
        }
        format!("{said}{metric} {control:.4} -> {treatment:.4} (limit {limit:.4}{p})")
    }
}

/// What the looks of a gate have spent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Looks {
    /// 0: until the planned sample; then one round after the other, each from nothing.
    pub round: u32,
    /// Over the arms.
    pub arms: Spent,
    /// Over the queries that were asked of both versions.
    pub floors: Spent,
}

/// A look.
pub(super) struct Look<'a> {
    pub policy: &'a GatePolicy,
    /// Before it.
    pub looks: Looks,
    /// The sample of the arms, when a look at them is due.
    pub arms: Option<u64>,
    /// And of the queries asked of both.
    pub floors: Option<u64>,
    /// Whether it may use all that is left.
    pub last: bool,
    pub seen: &'a Comparison,
}

impl Look<'_> {
    /// Every metric that can be judged.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.shares();
        if self.policy.latency {
            findings.extend(self.tail());
            findings.extend(self.body());
        }
        findings.extend(self.floors());
        findings.extend(self.ndcg());
        findings
    }

    /// What this look may spend by a rule.
    fn alpha(&self, spending: &Spending, spent: Spent, due: Option<u64>) -> f64 {
        let (planned, last) = (self.policy.sample, spent.at);
        let alpha = match due {
            None => return 0.0,
            Some(sample) if self.last => spending.rest(last, sample, planned),
            Some(sample) => spending.at(last, sample, planned),
        };
        alpha * weight(self.looks.round)
    }

    fn of_arms(&self, spending: &Spending) -> f64 {
        self.alpha(spending, self.looks.arms, self.arms)
    }

    fn finding(metric: &str, values: [f64; 2], limit: f64, p: Option<f64>, alpha: f64) -> Finding {
        let [control, treatment] = values;
        let p = p.filter(|_| alpha > 0.0);
        let (metric, verdict) = (metric.to_owned(), Verdict::Pass);
        Finding { metric, verdict, control, treatment, limit, p, alpha, floor: false }
    }

    fn shares(&self) -> Vec<Finding> {
        let (old, new, limits) = (&self.seen.control, &self.seen.treatment, &self.policy.limits);
        let count = |arm: &Arm, events| Count { events, queries: arm.queries };
        let rows = [
            ("errors", old.errors, new.errors, 0.0),
            ("partial", old.partial, new.partial, 0.0),
            ("zero results", old.zero_results, new.zero_results, limits.zero_results),
        ];
        let of = |(metric, before, after, tolerance): (&str, u64, u64, f64)| {
            let (before, after) = (count(old, before), count(new, after));
            let p = grown(before, after, tolerance);
            let shares = [before.share(), after.share()];
            let mut found =
                Self::finding(metric, shares, tolerance, Some(p), self.of_arms(&self.policy.share));
            let hard = if tolerance > 0.0 { tolerance } else { limits.share_hard };
            if found.significant() {
                let grew = after.share() - before.share();
                found.verdict = if grew >= hard { Verdict::HardBreach } else { Verdict::SoftBreach };
            }
            found
        };
        rows.into_iter().map(of).collect()
    }

    /// Is the tail heavier; and, when it is, by more than the ratio?
    fn tail(&self) -> Option<Finding> {
        let limits = &self.policy.limits;
        let (old, new) = (&self.seen.control.latencies, &self.seen.treatment.latencies);
        let test = exceedance(old, new, limits.tail_quantile, 1.0)?;
        let longer = exceedance(old, new, limits.tail_quantile, limits.tail_ratio)?;
        let metric = format!(
            "share at or above {:.1} ms (p99 {:.1} -> {:.1} ms)",
            test.edge_us as f64 / 1e3,
            old.quantile_us(limits.tail_quantile) / 1e3,
            new.quantile_us(limits.tail_quantile) / 1e3
        );
        let shares = [test.control, test.treatment];
        let limit = test.control * limits.exceedance_ratio;
        let mut found = Self::finding(&metric, shares, limit, Some(test.p), self.of_arms(&self.policy.tail));
        if found.significant() && test.treatment >= limit {
            let hard = longer.p < found.alpha;
            found.verdict = if hard { Verdict::HardBreach } else { Verdict::SoftBreach };
        }
        Some(found)
    }

    fn body(&self) -> Option<Finding> {
        let limits = &self.policy.limits;
        let (old, new) = (&self.seen.control.latencies, &self.seen.treatment.latencies);
        let test = rank_test(old, new)?;
        let medians = [old.quantile_us(0.5) / 1e3, new.quantile_us(0.5) / 1e3];
        let limit = medians[0] * limits.median_ratio;
        let mut found =
            Self::finding("median ms", medians, limit, Some(test.p), self.of_arms(&self.policy.body));
        if found.significant() && medians[1] >= limit {
            let hard = medians[1] >= medians[0] * limits.median_ratio_hard;
            found.verdict = if hard { Verdict::HardBreach } else { Verdict::SoftBreach };
        }
        Some(found)
    }

    fn floors(&self) -> Vec<Finding> {
        let limits = &self.policy.limits;
        let alpha = self.alpha(&self.policy.floor, self.looks.floors, self.floors);
        let rows = [
            ("overlap@10", &self.seen.overlap, limits.overlap),
            ("rank-biased overlap", &self.seen.rank_biased_overlap, limits.rank_biased_overlap),
        ];
        let of = |(metric, mean, floors): (&str, &Mean, [f64; 2])| {
            let below = |floor: f64| {
                let error = mean.error().max(1e-9);
                super::normal::upper_tail((floor - mean.mean()) / error)
            };
            let p = below(floors[0]);
            let values = [floors[0], mean.mean()];
            let found = Self::finding(metric, values, floors[0], Some(p), alpha);
            let mut found = Finding { floor: true, ..found };
            if found.significant() {
                let hard = below(floors[1]) < found.alpha;
                found.verdict = if hard { Verdict::HardBreach } else { Verdict::SoftBreach };
            }
            found
        };
        rows.into_iter().filter(|(_, mean, _)| mean.queries > 0).map(of).collect()
    }

    /// A loss counts when it is above the limit and no chance by the paired test.
    fn ndcg(&self) -> Option<Finding> {
        let paired = self.seen.judged.as_ref()?;
        let [soft, hard] = self.policy.limits.ndcg_loss;
        let (old, loss) = (paired.before.mean(), -paired.difference.mean());
        let metric = format!("nDCG@10 over {} judged queries", paired.difference.queries);
        let values = [old, paired.after.mean()];
        let mut found = Self::finding(&metric, values, old - soft, Some(paired.p()), judged::ALPHA);
        if found.significant() && loss > soft {
            found.verdict = if loss > hard { Verdict::HardBreach } else { Verdict::SoftBreach };
        }
        Some(found)
    }
}

impl Finding {
    fn significant(&self) -> bool {
        self.p.is_some_and(|p| p < self.alpha)
    }
}
