//! `lab rollout --power`: what the gates of a rollout find, and how often they cry wolf. Versions that are worse in one way
//! each, and one that is not, go through the production gates ([`canopy_topology::gates`]) with latencies of the production
//! engine, over many runs that differ in their seed alone.
//!
//! The trap is in the control. At 1 % of the queries one row of leaves holds the new version, so a query that is pinned to it
//! has one replica to ask and none to hedge to; a query pinned to the old one has all. Compared with those, a perfectly good
//! version has the worse tail. So the case without a fault is run twice: with a control over all leaves, which must be seen
//! to raise the alarm, else nothing is shown; and with the control that the tree uses, held to the leaves of the trial.
//!
//! The routing snapshots are those that the state machine makes at each step. Queries that are in neither arm are not
//! sent: leaves have no queues here, so they would change nothing but the time that a run takes. The shadow step has no
//! hits to compare and is left out.

mod drive;
pub mod report;

use serde::{Deserialize, Serialize};

use crate::{
    arm,
    error::{Error, Result},
    jobs,
    latency::{Body, Latency},
    policy::{Hedge, Policy},
    workload::Workload,
};
use report::{Report, Row};

/// Queries of each arm by which a slower body has to be found.
const BODY_BY: u64 = 1_000;
/// Least share of the runs in which a fault has to be found.
pub const POWER: f64 = 0.8;
/// Most of the runs in which a good version may be stopped.
pub const FALSE_ALARMS: f64 = 0.02;

/// Whom the control asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The leaves that hold both versions.
    SameLeaves,
    /// All that hold the old one.
    AllLeaves,
}

/// What a case has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expects {
    /// It is found in so many queries of each arm.
    Caught(u64),
    /// It is not stopped.
    Quiet,
    /// It is stopped although it is good.
    FalseAlarm,
}

/// A version, and how it is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// In words.
    pub name: String,
    /// Time of one of its calls.
    pub latency: Latency,
    /// Of its queries, the share without a hit.
    pub zero_results: f64,
    /// Whom the control asks.
    pub control: Control,
    /// Steps that are judged, per cent of the queries.
    pub steps: Vec<u8>,
    /// How long each is judged, in planned samples.
    pub rounds: u32,
    /// What it has to show.
    pub expects: Expects,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is asked of the tree; how many queries follows from the sample.
    pub workload: Workload,
    /// What the engine does about the tail.
    pub policy: Policy,
    /// Planned queries of each arm in a step.
    pub sample: u64,
    /// Steps that are judged, per cent of the queries.
    pub steps: Vec<u8>,
    /// How long the good version is judged in each of them, in planned samples.
    pub rounds: u32,
    /// Of the calls of a worse version, the share of hiccups.
    pub hiccups: f64,
    /// Of the calls of a slower version, how many times longer the usual ones take.
    pub slower: f64,
    /// Of the queries of every version, the share without a hit.
    pub zero_results: f64,
    /// And of one with a broken field.
    pub broken: f64,
    /// Runs of each case.
    pub runs: u32,
    /// Threads.
    #[serde(skip)]
    pub threads: usize,
}

impl Default for Settings {
    /// One shard with six replicas and 1 % hiccups; 4,600 queries an arm at 1, 10 and 50 %.
    fn default() -> Self {
        Self {
            workload: Workload { shards: 1, replicas: 6, scale: 5, ..Workload::plain(0.01) },
            policy: Policy::hedge(Hedge::Auto),
            sample: 4_600,
            steps: vec![1, 10, 50],
            rounds: 2,
            hiccups: 0.02,
            slower: 1.1,
            zero_results: 0.02,
            broken: 0.2,
            runs: 20,
            threads: 1,
        }
    }
}

impl Settings {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        Error::within("sample", self.sample, 100, 1_000_000)?;
        Error::within("runs", self.runs, 1, 100_000)?;
        Error::within("rounds", self.rounds, 1, 100)?;
        Error::within("replicas", self.workload.replicas, 2, 16)?;
        for share in [self.zero_results, self.broken] {
            Error::within("zero-results", share, 0.0, 1.0)?;
        }
        Error::within("slower", self.slower, 1.0, 100.0)?;
        let growing = self.steps.windows(2).all(|pair| pair[0] < pair[1]);
        if self.steps.is_empty() || !growing || self.steps.iter().any(|step| !(1..100).contains(step)) {
            let why = "takes growing shares from 1 to 99 per cent; at 100 there is no control, at 0 nothing to compare";
            return Err(Error::setting("steps", why));
        }
        self.policy.check()?;
        for case in self.cases() {
            self.workload(&case, self.workload.seed).check()?;
        }
        Ok(())
    }

    /// What is run: three faults in the first step, then the good version in all of them with either control.
    pub fn cases(&self) -> Vec<Case> {
        let good = self.workload.latency;
        let first = self.steps.first().copied().unwrap_or(1);
        let fault = |name: String, latency, zero_results, by| Case {
            name,
            latency,
            zero_results,
            control: Control::SameLeaves,
            steps: vec![first],
            rounds: 1,
            expects: Expects::Caught(by),
        };
        let percent = |share: f64| (share * 10_000.0).round() / 100.0;
        let more = format!("hiccups {} -> {} %", percent(good.hiccups.share), percent(self.hiccups));
        let slower = format!("body + {} %", percent(self.slower - 1.0));
        let broken = format!("no hit {} -> {} %", percent(self.zero_results), percent(self.broken));
        let nothing = |name: &str, control, expects| Case {
            name: name.to_owned(),
            latency: good,
            zero_results: self.zero_results,
            control,
            steps: self.steps.clone(),
            rounds: self.rounds,
            expects,
        };
        let hiccups = crate::latency::Hiccups { share: self.hiccups, ..good.hiccups };
        vec![
            fault(more, Latency { hiccups, ..good }, self.zero_results, self.sample),
            fault(slower, self.slower_body(), self.zero_results, self.sample.min(BODY_BY)),
            fault(broken, good, self.broken, self.sample),
            nothing("no fault", Control::SameLeaves, Expects::Quiet),
            Case {
                steps: vec![first],
                rounds: 1,
                ..nothing("no fault, control over all", Control::AllLeaves, Expects::FalseAlarm)
            },
        ]
    }

    fn slower_body(&self) -> Latency {
        let times = self.slower;
        let body = match self.workload.latency.body {
            Body::Lognormal { mean, sigma } => Body::Lognormal { mean: mean * times, sigma },
            Body::Exponential { mean } => Body::Exponential { mean: mean * times },
            Body::Fixed { mean } => Body::Fixed { mean: mean * times },
        };
        Latency { body, ..self.workload.latency }
    }

    /// Queries that a run of a case sends at most, about.
    fn queries_of(&self, case: &Case) -> u64 {
        let each = self.sample * 2 * u64::from(case.rounds);
        self.workload.warmup + each * case.steps.len() as u64
    }

    /// Queries that will be sent at most, about.
    pub fn queries(&self) -> u64 {
        self.cases().iter().map(|case| self.queries_of(case) * u64::from(self.runs)).sum()
    }

    /// More queries than are needed.
    fn workload(&self, case: &Case, seed: u64) -> Workload {
        let versions = vec![(crate::rollout::service::NEW, case.latency)];
        let queries = self.queries_of(case) / 10 * 12 + 10_000;
        Workload { versions, queries, seed, ..self.workload.clone() }
    }
}

/// Runs all cases. `progress` hears of queries that were sent or not needed.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    settings.check()?;
    let cases = settings.cases();
    let seeds = settings.workload.seed..settings.workload.seed.saturating_add(u64::from(settings.runs));
    let of = |case| seeds.clone().map(|seed| (case, seed)).collect::<Vec<_>>();
    let all: Vec<(&Case, u64)> = cases.iter().flat_map(of).collect();
    let runs = jobs::run(&all, settings.threads, |(case, seed)| {
        let run =
            arm::alone(|| format!("the case {}", case.name), *seed, drive::drive(settings, case, *seed))?;
        progress(settings.queries_of(case));
        Ok(run)
    })?;
    let runs = runs.chunks(settings.runs as usize);
    let rows = cases.iter().zip(runs).map(|(case, runs)| Row::of(case, runs)).collect();
    Ok(Report::of(settings, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_differ_from_the_good_version_in_one_thing() {
        let settings = Settings::default();
        settings.check().unwrap();
        let names: Vec<String> = settings.cases().into_iter().map(|case| case.name).collect();
        assert_eq!(names[..3], ["hiccups 1 -> 2 %", "body + 10 %", "no hit 2 -> 20 %"]);
        let refused = |settings: Settings, name: &str| {
            let text = settings.check().unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        };
        refused(Settings { steps: vec![1, 100], ..Settings::default() }, "steps: takes growing");
        refused(Settings { runs: 0, ..Settings::default() }, "runs: 0");
        refused(Settings { sample: 5, ..Settings::default() }, "sample: 5");
        let workload = Workload { replicas: 1, ..Settings::default().workload };
        refused(Settings { workload, ..Settings::default() }, "replicas: 1");
    }
}
