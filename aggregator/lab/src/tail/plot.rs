//! The chart of `lab tail`. Above: each quantile against the number of shards, one line for each arm, the exact values
//! thin. Below: each quantile against the copies sent, one line for each number of shards.

use super::report::{Report, Row, Times};
use crate::{
    chart::{self, Panel, Series},
    error::Result,
};

type Quantile = (&'static str, fn(&Times) -> f64, fn(&super::reference::Exact) -> f64);

const QUANTILES: [Quantile; 3] = [
    ("p50", |times| times.p50, |exact| exact.p50),
    ("p99", |times| times.p99, |exact| exact.p99),
    ("p99.9", |times| times.p999, |exact| exact.p999),
];

/// The SVG.
pub fn svg(report: &Report) -> Result<String> {
    let against = |panel: fn(&Report, &Quantile) -> Panel| {
        QUANTILES.iter().map(|quantile| panel(report, quantile)).collect::<Vec<_>>()
    };
    chart::svg(&[against(by_shards), against(by_extra)])
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn by_shards(report: &Report, (name, measured, exact): &Quantile) -> Panel {
    let mut series = Vec::new();
    for (colour, arm) in distinct(report.rows.iter().map(|row| row.arm.clone())).into_iter().enumerate() {
        let rows = || report.rows.iter().filter(|row| row.arm == arm);
        let right = rows().filter_map(|row| Some((f64::from(row.shards), exact(row.exact.as_ref()?))));
        let points: Vec<_> = right.collect();
        if !points.is_empty() {
            series.push(Series { name: String::new(), points, colour, thin: true });
        }
        let points = rows().map(|row| (f64::from(row.shards), measured(&row.times))).collect();
        series.push(Series { name: arm, points, colour, thin: false });
    }
    Panel {
        title: format!("{name} against shards (thin: exact)"),
        x: "shards".to_owned(),
        y: "ms".to_owned(),
        ratio_y: true,
        ratio_x: true,
        series,
    }
}

fn by_extra(report: &Report, (name, measured, _): &Quantile) -> Panel {
    let shards = distinct(report.rows.iter().map(|row| row.shards));
    let line = |(colour, shards): (usize, u32)| {
        let rows = report.rows.iter().filter(|row| row.shards == shards);
        let mut points: Vec<(f64, f64)> =
            rows.map(|row: &Row| (100.0 * row.extra, measured(&row.times))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: format!("{shards} shards"), points, colour, thin: false }
    };
    Panel {
        title: format!("{name} against extra requests"),
        x: "extra requests, %".to_owned(),
        y: "ms".to_owned(),
        ratio_y: true,
        ratio_x: false,
        series: shards.into_iter().enumerate().map(line).collect(),
    }
}
