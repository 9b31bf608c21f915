//! The judgement on a version: its arm beside the control's, metric by metric, with every number.
//!
//! The control arm is an equal sample of the same time, pinned to the live version on the same leaves: what happens to
//! the whole tree happens to both. A metric finds a breach when its difference is above its limit and the chance of such a
//! difference in a good version is below what the look may spend. The worst finding is the verdict; without one it is
//! pass when the planned sample is there, else wait.

use serde::{Deserialize, Serialize};

use super::{
    agreement::Mean,
    latencies::Latencies,
    policy::GatePolicy,
    rank::{exceedance, rank_test},
    share::{Count, grown},
    spending::{Spending, Spent},
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
    /// nDCG@10 of the live and of the new version over the judged queries.
    pub ndcg: Option<[f64; 2]>,
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
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The worst finding.
    pub verdict: Verdict,
    /// Queries of the smaller arm.
    pub sample: u64,
    /// Number of the look; the same as before: none was due.
    pub look: u32,
    /// Every metric.
    pub findings: Vec<Finding>,
}

impl Arm {
    /// Adds those of another root.
    pub fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.errors += other.errors;
        self.partial += other.partial;
        self.zero_results += other.zero_results;
        self.latencies.add(&other.latencies);
    }
}

impl Judgement {
    /// In words, worst first: for the audit log.
    pub fn reason(&self) -> String {
        let mut order: Vec<&Finding> = self.findings.iter().collect();
        order.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        let words: Vec<String> = order.into_iter().map(Finding::words).collect();
        format!("look {} at {} queries an arm: {}", self.look, self.sample, words.join("; "))
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
        format!(
            "{said}{} {:.4} -> {:.4} (limit {:.4}{p})",
            self.metric, self.control, self.treatment, self.limit
        )
    }
}

/// Judges, and says what was spent for it.
pub fn judge(policy: &GatePolicy, spent: Spent, seen: &Comparison) -> (Spent, Judgement) {
    let sample = seen.control.queries.min(seen.treatment.queries);
    let due = spent.due(sample, policy.sample);
    let look = Look { policy, last: spent.at, due, seen };
    let mut findings = look.shares();
    if policy.latency {
        findings.extend(look.tail());
        findings.extend(look.body());
    }
    findings.extend(look.floors());
    findings.extend(look.ndcg());
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass);
    let lacks_times =
        policy.latency && (seen.control.latencies.is_empty() || seen.treatment.latencies.is_empty());
    let there = sample >= policy.sample && !lacks_times;
    let verdict = if worst == Verdict::Pass && !there { Verdict::Wait } else { worst };
    let spent = due.map_or(spent, |sample| spent.looked(sample));
    (spent, Judgement { verdict, sample, look: spent.looks, findings })
}

struct Look<'a> {
    policy: &'a GatePolicy,
    last: u64,
    due: Option<u64>,
    seen: &'a Comparison,
}

impl Look<'_> {
    /// What this look may spend by a rule.
    fn alpha(&self, spending: &Spending) -> f64 {
        self.due.map_or(0.0, |sample| spending.at(self.last, sample, self.policy.sample))
    }

    fn finding(
        &self,
        metric: &str,
        values: [f64; 2],
        limit: f64,
        p: Option<f64>,
        spending: &Spending,
    ) -> Finding {
        let alpha = self.alpha(spending);
        let [control, treatment] = values;
        let p = p.filter(|_| alpha > 0.0);
        Finding { metric: metric.to_owned(), verdict: Verdict::Pass, control, treatment, limit, p, alpha }
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
            let mut found = self.finding(metric, shares, tolerance, Some(p), &self.policy.share);
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
        let mut found = self.finding(&metric, shares, limit, Some(test.p), &self.policy.tail);
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
        let mut found = self.finding("median ms", medians, limit, Some(test.p), &self.policy.body);
        if found.significant() && medians[1] >= limit {
            let hard = medians[1] >= medians[0] * limits.median_ratio_hard;
            found.verdict = if hard { Verdict::HardBreach } else { Verdict::SoftBreach };
        }
        Some(found)
    }

    fn floors(&self) -> Vec<Finding> {
        let limits = &self.policy.limits;
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
            let mut found = self.finding(metric, values, floors[0], Some(p), &self.policy.floor);
            if found.significant() {
                let hard = below(floors[1]) < found.alpha;
                found.verdict = if hard { Verdict::HardBreach } else { Verdict::SoftBreach };
            }
            found
        };
        rows.into_iter().filter(|(_, mean, _)| mean.queries > 0).map(of).collect()
    }

    /// The judged queries are all there are: their mean is no estimate, and no look is spent on it.
    fn ndcg(&self) -> Option<Finding> {
        let [old, new] = self.seen.ndcg?;
        let [soft, hard] = self.policy.limits.ndcg_loss;
        let loss = old - new;
        let verdict = match loss {
            loss if loss > hard => Verdict::HardBreach,
            loss if loss > soft => Verdict::SoftBreach,
            _ => Verdict::Pass,
        };
        let (metric, p, alpha) = ("nDCG@10".to_owned(), None, 0.0);
        Some(Finding { metric, verdict, control: old, treatment: new, limit: old - soft, p, alpha })
    }
}

impl Finding {
    fn significant(&self) -> bool {
        self.p.is_some_and(|p| p < self.alpha)
    }
}
