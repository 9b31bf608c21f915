//! What `lab rollout --power` reports: one row for each version, with what speaks against the gates in words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Case, Expects, FALSE_ALARMS, POWER, Settings, drive::Run};
use crate::statistics::at_least;

/// A share that is off by less than this chance explains is not held against the gates.
const CHANCE: f64 = 1e-3;
/// Most of the runs in which the rank test alone may find hiccups; more, and the exceedance test were not needed.
const BLIND: f64 = 0.05;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `rollout-power`.
    pub lab: String,
    /// What was run.
    pub settings: Settings,
    /// Rows.
    pub rows: Vec<Row>,
    /// What speaks against the gates; empty: nothing.
    pub faults: Vec<String>,
}

/// A version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is, and how it is compared.
    pub case: Case,
    /// Runs.
    pub runs: u64,
    /// In which it was stopped.
    pub caught: u64,
    /// Of them, in which it was turned back at once.
    pub hard: u64,
    /// In which it was stopped by as many queries of each arm as it has to be.
    pub in_time: u64,
    /// Queries of the smaller arm when it was stopped, the lower median of those runs.
    pub median_sample: Option<u64>,
    /// In which the rank test alone would have spoken over the whole sample.
    pub by_ranks: Option<u64>,
    /// By step, per cent of the queries: in which it was stopped there.
    pub by_step: BTreeMap<u8, u64>,
    /// By metric.
    pub by_metric: BTreeMap<String, u64>,
    /// The first seed that went otherwise than it has to.
    pub against: Option<u64>,
    /// What the gates said last in that run.
    pub said: Option<String>,
}

impl Row {
    pub(super) fn of(case: &Case, runs: &[Run]) -> Self {
        let by = if let Expects::Caught(by) = case.expects { by } else { u64::MAX };
        let caught: Vec<_> = runs.iter().filter_map(|run| run.caught.as_ref()).collect();
        let mut samples: Vec<u64> = caught.iter().map(|caught| caught.sample).collect();
        samples.sort_unstable();
        let (mut by_step, mut by_metric) = (BTreeMap::new(), BTreeMap::new());
        for caught in &caught {
            *by_step.entry(caught.percent).or_default() += 1;
            *by_metric.entry(caught.metric.clone()).or_default() += 1;
        }
        // The last look of a sample comes with the batch that completes it.
        let in_time = |run: &&Run| run.caught.as_ref().is_some_and(|caught| within(caught.sample, by));
        let quiet = case.expects == Expects::Quiet;
        let against = runs.iter().find(|run| in_time(run) == quiet);
        let ranks: Vec<bool> = runs.iter().filter_map(|run| run.by_ranks).collect();
        Self {
            case: case.clone(),
            runs: runs.len() as u64,
            caught: caught.len() as u64,
            hard: caught.iter().filter(|caught| caught.hard).count() as u64,
            in_time: runs.iter().filter(in_time).count() as u64,
            median_sample: samples.get(samples.len().saturating_sub(1) / 2).copied(),
            by_ranks: (!ranks.is_empty()).then(|| ranks.iter().filter(|spoke| **spoke).count() as u64),
            by_step,
            by_metric,
            against: against.map(|run| run.seed),
            said: against.map(|run| run.said.clone()),
        }
    }

    /// Of the runs, a share.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.runs.max(1) as f64
    }

    fn fault(&self) -> Option<String> {
        let (name, runs) = (&self.case.name, self.runs);
        let seed = self.against.map_or_else(String::new, |seed| format!(" (seed {seed})"));
        match self.case.expects {
            Expects::Caught(by) => {
                // So few are caught, though the chance were what it has to be.
                let missed = runs - self.in_time;
                (at_least(missed, runs, 1.0 - POWER) < CHANCE).then(|| {
                    format!("{name}: {} of {runs} runs are caught by {by} queries an arm{seed}", self.in_time)
                })
            }
            Expects::Quiet => (at_least(self.caught, runs, FALSE_ALARMS) < CHANCE)
                .then(|| format!("{name}: {} of {runs} runs are stopped{seed}", self.caught)),
            Expects::FalseAlarm => (self.share(self.caught) < 0.5).then(|| {
                format!("{name}: only {} of {runs} runs raise the alarm, so nothing is shown", self.caught)
            }),
        }
    }
}

/// The batch that completes a sample brings a few more.
fn within(sample: u64, by: u64) -> bool {
    sample as f64 <= by as f64 * 1.05
}

impl Report {
    pub(super) fn of(settings: &Settings, rows: Vec<Row>) -> Self {
        let mut faults: Vec<String> = rows.iter().filter_map(Row::fault).collect();
        // Of the faults, the first is one that moves no rank.
        let seen = rows.first().and_then(|row| Some((row, row.by_ranks?)));
        if let Some((row, ranks)) = seen.filter(|(row, ranks)| at_least(*ranks, row.runs, BLIND) < CHANCE) {
            let (name, runs) = (&row.case.name, row.runs);
            faults.push(format!("{name}: the rank test alone finds {ranks} of {runs}, so nothing is shown"));
        }
        Self { lab: "rollout-power".to_owned(), settings: settings.clone(), rows, faults }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::drive::Catch;

    fn run(seed: u64, sample: Option<u64>) -> Run {
        let caught =
            sample.map(|sample| Catch { percent: 1, sample, metric: "median ms".to_owned(), hard: false });
        Run { seed, caught, said: String::new(), by_ranks: Some(false) }
    }

    #[test]
    fn what_chance_does_not_explain_is_held_against_the_gates() {
        let settings = Settings::default();
        let cases = settings.cases();
        let rows = |caught: usize, alarms: usize| {
            let of = |count: usize| {
                (0..100).map(|at| run(at, (at < count as u64).then_some(900 + at))).collect::<Vec<_>>()
            };
            vec![
                Row::of(&cases[0], &of(caught)),
                Row::of(&cases[3], &of(alarms)),
                Row::of(&cases[4], &of(99)),
            ]
        };
        let good = Report::of(&settings, rows(75, 4));
        assert!(good.faults.is_empty(), "{:?}", good.faults);
        assert_eq!((good.rows[0].median_sample, good.rows[0].in_time), (Some(937), 75));
        assert_eq!((good.rows[0].by_ranks, good.rows[1].against), (Some(0), Some(0)));
        let bad = Report::of(&settings, rows(60, 12)).faults;
        assert!(bad[0].starts_with("hiccups 1 -> 2 %: 60 of 100 runs are caught by 4600"), "{bad:?}");
        assert!(bad[0].ends_with("(seed 60)"), "{bad:?}");
        assert!(bad[1].starts_with("no fault: 12 of 100 runs are stopped (seed 0)"), "{bad:?}");
    }

    #[test]
    fn what_comes_too_late_is_not_in_time() {
        let settings = Settings::default();
        let late = Row::of(&settings.cases()[1], &[run(1, Some(1_040)), run(2, Some(4_600)), run(3, None)]);
        assert_eq!((late.caught, late.in_time, late.against), (2, 1, Some(2)));
        assert_eq!(late.by_metric["median ms"], 2);
    }
}
