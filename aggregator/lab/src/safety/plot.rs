//! The chart of `lab safety`, against the load: the ratios with their upper bounds thin and the allowed one black, what was
//! sent of the budget, and hedges without bounds beside those that are judged. The step has no place on that axis.

use super::{
    EXTRA,
    report::{Report, Row},
};
use crate::{
    chart::{self, Panel, Series},
    error::Result,
    statistics::Ratio,
};

/// The colour of what is allowed.
const ALLOWED: usize = 6;

/// The SVG.
pub fn svg(report: &Report) -> Result<String> {
    let line = |name: &str, colour, thin, value: &dyn Fn(&Row) -> Option<f64>| {
        let steady = report.rows.iter().filter(|row| row.then.is_none());
        let points = steady.filter_map(|row| Some((100.0 * row.load, value(row)?))).collect();
        Series { name: name.to_owned(), points, colour, thin }
    };
    let panel = |title: &str, y: &str, ratio_y, series| Panel {
        title: title.to_owned(),
        x: "load, %".to_owned(),
        y: y.to_owned(),
        ratio_y,
        ratio_x: false,
        series,
    };
    let ratios: [(&str, fn(&Row) -> Ratio); 3] =
        [("p50", |row| row.p50), ("mean", |row| row.mean), ("p99", |row| row.p99)];
    let mut harm = vec![line("allowed", ALLOWED, true, &|row| Some(row.bound))];
    for (colour, (name, ratio)) in ratios.into_iter().enumerate() {
        harm.push(line(name, colour, false, &|row| Some(ratio(row).median)));
        harm.push(line("", colour, true, &|row| ratio(row).upper));
    }
    let cost = vec![
        line("allowed", ALLOWED, true, &|_| Some(EXTRA)),
        line("sent", 0, false, &|row| Some(row.extra_of_budget)),
    ];
    let danger = vec![
        line("as judged", 0, false, &|row| Some(row.p99.median)),
        line("without bounds", 1, false, &|row| Some(row.uncapped.as_ref()?.p99)),
    ];
    chart::svg(&[vec![
        panel("latency over that without hedges (thin: upper bound)", "times", false, harm),
        panel("extra requests", "times the budget", false, cost),
        panel("p99 over that without hedges", "times", true, danger),
    ]])
}
