//! The chart of `lab rollout`, against time: the 99th percentile of each arm with the target thin, and the share of the
//! queries that the new version answers.

use super::report::{Arm, Line, Report};
use crate::{
    chart::{self, Panel, Series},
    error::Result,
};

/// The colour of the target.
const TARGET: usize = 6;

/// The SVG.
pub fn svg(report: &Report) -> Result<String> {
    let line = |(colour, arm): (usize, &Arm), value: fn(&Line) -> f64| {
        let points = arm.windows.iter().map(|line| (line.from, value(line))).collect();
        Series { name: arm.arm.clone(), points, colour, thin: false }
    };
    let panel = |title: &str, y: &str, series| Panel {
        title: title.to_owned(),
        x: "s".to_owned(),
        y: y.to_owned(),
        ratio_y: false,
        ratio_x: false,
        series,
    };
    let target = report.settings.target;
    let points = vec![(0.0, target), (report.settings.end(), target)];
    let mut times = vec![Series { name: "target".to_owned(), points, colour: TARGET, thin: true }];
    times.extend(report.arms.iter().enumerate().map(|arm| line(arm, |line| line.p99)));
    let arms = report.arms.iter().enumerate().skip(1);
    let shares = arms.map(|arm| line(arm, |line| 100.0 * line.new)).collect();
    chart::svg(&[vec![
        panel("p99 of the queries that came in a window", "ms", times),
        panel("answered from the new version", "% of the queries", shares),
    ]])
}
