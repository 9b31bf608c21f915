//! The tables of `canopy lab rollout`: the 99th percentile of each arm against time and what it comes to; with `--power` what
//! the gates said of each version.

use canopy_lab::{
    power::{self, Control, Expects, report::Row},
    rollout::report::{Arm, Report},
    statistics::Figure,
};

use super::super::output::{ms, ratio, table};
use crate::say::say;

/// Rows of the table by time; more windows than that are summed up by their worst.
const ROWS: usize = 32;

/// Prints a report on loading.
pub fn loading(report: &Report) {
    let target = report.settings.target;
    let names = report.arms.iter().map(|arm| format!("{}: p99 ms", arm.arm));
    let header: Vec<String> = std::iter::once("s".to_owned()).chain(names).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let windows = report.arms.iter().map(|arm| arm.windows.len()).max().unwrap_or(0);
    let step = windows.div_ceil(ROWS).max(1);
    let rows = (0..windows).step_by(step).map(|from| {
        let worst = |arm: &Arm| {
            let lines = arm.windows.iter().skip(from).take(step);
            lines.map(|line| line.p99).fold(0.0, f64::max)
        };
        let mark =
            |value: f64| if value > target { format!("{} !", ms(value)) } else { format!("{}  ", ms(value)) };
        let first = format!("{:.0}", from as f64 * report.settings.window);
        std::iter::once(first).chain(report.arms.iter().map(|arm| mark(worst(arm)))).collect()
    });
    say!("{}", table(&header, &[], rows));
    let above = format!("s above {target} ms");
    let header = [
        "arm",
        "takes s",
        "load at once",
        above.as_str(),
        "worst window ms",
        "p99 meanwhile ms",
        "over no rollout",
    ];
    say!("{}", table(&header, &[0], report.arms.iter().map(line)));
    say!(
        "!: above the target. Windows of {} s, all seeds together; below, medians of {} seeds (upper 95 % bound, an order \
         statistic), same arrivals and service times in all arms; meanwhile: while the rollout is under way",
        report.settings.window,
        report.settings.seeds
    );
}

fn figure(value: Figure) -> String {
    let upper = value.upper.map_or_else(String::new, |upper| format!(" (<{})", ms(upper)));
    format!("{}{upper}", ms(value.median))
}

fn line(arm: &Arm) -> Vec<String> {
    let some = |yes: bool, text: String| if yes { text } else { "-".to_owned() };
    let rolled = arm.took.is_some();
    vec![
        arm.arm.clone(),
        arm.took.map_or_else(|| "-".to_owned(), |took| format!("{took:.0}")),
        some(rolled, arm.at_once.to_string()),
        figure(arm.seconds_above),
        figure(arm.worst_window),
        figure(arm.p99),
        ratio(arm.versus_none),
    ]
}

/// Prints a report on gates.
pub fn gates(report: &power::report::Report) {
    let header = [
        "version",
        "control",
        "steps",
        "stopped",
        "of it at once",
        "has to be",
        "median queries an arm",
        "found by",
        "rank test alone",
    ];
    say!("{}", table(&header, &[0, 1, 2, 5, 7], report.rows.iter().map(of_row)));
    say!(
        "{} runs of each, {} planned queries an arm; the good version is watched for {} samples in each step. Rank test alone: \
         speaks at 1 % over the whole sample",
        report.settings.runs,
        report.settings.sample,
        report.settings.rounds
    );
}

fn of_row(row: &Row) -> Vec<String> {
    let share = |count: u64| format!("{:.1}% ({count})", 100.0 * row.share(count));
    let steps: Vec<String> = row.case.steps.iter().map(ToString::to_string).collect();
    let (stopped, wanted) = match row.case.expects {
        Expects::Caught(by) => (row.in_time, format!(">= {:.0}% by {by}", 100.0 * power::POWER)),
        Expects::Quiet => (row.caught, format!("<= {:.0}%", 100.0 * power::FALSE_ALARMS)),
        Expects::FalseAlarm => (row.caught, "wrongly".to_owned()),
    };
    let mut found: Vec<(&String, &u64)> = row.by_metric.iter().collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let found: Vec<String> =
        found.into_iter().take(2).map(|(metric, count)| format!("{metric} {count}")).collect();
    vec![
        row.case.name.clone(),
        match row.case.control {
            Control::SameLeaves => "same leaves".to_owned(),
            Control::AllLeaves => "all leaves".to_owned(),
        },
        format!("{} %", steps.join(", ")),
        share(stopped),
        row.hard.to_string(),
        wanted,
        row.median_sample.map_or_else(|| "-".to_owned(), |sample| sample.to_string()),
        found.join(", "),
        row.by_ranks.map_or_else(|| "-".to_owned(), share),
    ]
}
