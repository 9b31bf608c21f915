//! What `lab rollout` reports: of each arm how long the target was missed and by how much, and every window in time.

use serde::{Deserialize, Serialize};

use super::{Plan, Settings, drive::Run, service::Mark};
use crate::{
    draw,
    statistics::{Figure, Ratio},
};

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `rollout`.
    pub lab: String,
    /// What was run.
    pub settings: Settings,
    /// Arms; the first has no rollout.
    pub arms: Vec<Arm>,
    /// What is wrong with this run, in words; empty: nothing.
    pub faults: Vec<String>,
}

/// One arm. Figures are medians over the seeds, with their upper bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name.
    pub arm: String,
    /// How the version comes to the leaves.
    pub plan: Plan,
    /// Queries, all seeds.
    pub queries: u64,
    /// From the first leaf's loading until all queries have the new version, s; of no rollout: nothing.
    pub took: Option<f64>,
    /// Most replicas of a shard that loaded at once.
    pub at_once: usize,
    /// Seconds in windows whose 99th percentile was above the target.
    pub seconds_above: Figure,
    /// 99th percentile of the worst window, ms.
    pub worst_window: Figure,
    /// 99th percentile of the queries that came while it was under way, ms.
    pub p99: Figure,
    /// The same over those of the arm without a rollout that came at the same time.
    pub versus_none: Option<Ratio>,
    /// Queries that some shard did not answer.
    pub incomplete: u64,
    /// Answers with a shard from another version than the query's.
    pub mixed: u64,
    /// Calls for a version that the leaf does not hold.
    pub not_held: u64,
    /// By time, all seeds together.
    pub windows: Vec<Line>,
    /// What the service noted, with the first seed.
    pub marks: Vec<Mark>,
    /// All that happened, mixed into one number: the same seeds have the same one.
    pub history: String,
}

/// One window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Begins, s.
    pub from: f64,
    /// Queries that came in it.
    pub queries: u64,
    /// Their median, ms.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// Share of them that was pinned to the new version.
    pub new: f64,
}

/// The smallest of sorted microseconds that a share of them does not exceed, ms; 0 of none.
fn quantile(sorted: &[u32], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(0.0, |us| f64::from(*us) / 1000.0)
}

fn figure(values: &[f64]) -> Figure {
    Figure::of(values).unwrap_or(Figure { median: f64::NAN, upper: None })
}

impl Run {
    fn worst(&self) -> f64 {
        self.windows.iter().map(|window| quantile(&window.times, 0.99)).fold(0.0, f64::max)
    }

    /// 99th percentile of what came from one time to another, model ms.
    fn p99(&self, settings: &Settings, (from, to): (f64, f64)) -> f64 {
        let window = settings.window * 1000.0;
        let first = (from / window) as usize;
        let last = ((to / window).ceil() as usize).clamp(first, self.windows.len());
        let windows = &self.windows[first.min(last)..last];
        let mut times: Vec<u32> = windows.iter().flat_map(|window| window.times.iter().copied()).collect();
        times.sort_unstable();
        quantile(&times, 0.99)
    }
}

impl Arm {
    fn of(settings: &Settings, plan: Plan, runs: &[Run], none: &[Run]) -> Self {
        let each = |value: &dyn Fn(&Run) -> f64| figure(&runs.iter().map(value).collect::<Vec<_>>());
        let above = |run: &Run| {
            let above = run.windows.iter().filter(|window| quantile(&window.times, 0.99) > settings.target);
            above.count() as f64 * settings.window
        };
        let whole = (0.0, settings.end() * 1000.0);
        let under_way = |run: &Run| run.took.unwrap_or(whole);
        let ratios = runs.iter().zip(none).filter(|(run, _)| run.took.is_some()).map(|(run, none)| {
            let time = under_way(run);
            run.p99(settings, time) / none.p99(settings, time)
        });
        let sum = |value: fn(&Run) -> u64| runs.iter().map(value).sum::<u64>();
        Self {
            arm: plan.to_string(),
            plan,
            queries: sum(|run| run.windows.iter().map(|window| window.times.len() as u64).sum()),
            took: runs.first().and_then(|run| run.took).map(|(from, to)| (to - from) / 1000.0),
            at_once: runs.iter().map(|run| run.most).max().unwrap_or(0),
            seconds_above: each(&above),
            worst_window: each(&Run::worst),
            p99: each(&|run| run.p99(settings, under_way(run))),
            versus_none: Ratio::of(&ratios.collect::<Vec<_>>()),
            incomplete: sum(|run| run.incomplete),
            mixed: sum(|run| run.mixed),
            not_held: sum(|run| run.not_held),
            windows: lines(settings, runs),
            marks: runs.first().map(|run| run.marks.clone()).unwrap_or_default(),
            history: format!("{:016x}", draw::bits(&runs.iter().map(|run| run.history).collect::<Vec<_>>())),
        }
    }
}

fn lines(settings: &Settings, runs: &[Run]) -> Vec<Line> {
    let windows = runs.iter().map(|run| run.windows.len()).max().unwrap_or(0);
    let line = |at: usize| {
        let mut times = Vec::new();
        let mut new = 0;
        for window in runs.iter().filter_map(|run| run.windows.get(at)) {
            times.extend_from_slice(&window.times);
            new += window.new;
        }
        times.sort_unstable();
        Line {
            from: at as f64 * settings.window,
            queries: times.len() as u64,
            p50: quantile(&times, 0.5),
            p99: quantile(&times, 0.99),
            new: new as f64 / times.len().max(1) as f64,
        }
    };
    (0..windows).map(line).collect()
}

impl Report {
    pub(super) fn of(settings: &Settings, plans: &[Plan], runs: &[&[Run]]) -> Self {
        let none = runs.first().copied().unwrap_or_default();
        let arms: Vec<Arm> =
            plans.iter().zip(runs).map(|(plan, runs)| Arm::of(settings, *plan, runs, none)).collect();
        let faults = faults(settings, &arms);
        Self { lab: "rollout".to_owned(), settings: settings.clone(), arms, faults }
    }
}

fn faults(settings: &Settings, arms: &[Arm]) -> Vec<String> {
    let mut faults = Vec::new();
    for arm in arms {
        let counts = [
            (arm.mixed, "answers of mixed versions"),
            (arm.not_held, "calls for a version that the leaf does not hold"),
            (arm.incomplete, "queries that some shard did not answer"),
        ];
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        faults.extend(some.map(|(count, what)| format!("{}: {count} {what}", arm.arm)));
    }
    let steady = arms.first().map_or(0.0, |arm| arm.p99.median);
    if steady > settings.target {
        faults.push(format!(
            "without a rollout the 99th percentile is {steady:.1} ms, above the target of {} ms; lower --rate or raise \
             --target-p99",
            settings.target
        ));
    }
    faults
}
