//! The chart of `lab overload`: goodput against time, and how often clients asked.

use super::report::{Line, Report};
use crate::{
    chart::{self, Panel, Series},
    error::Result,
};

/// The SVG.
pub fn svg(report: &Report) -> Result<String> {
    let line = |colour: usize, name: &str, lines: &[Line], value: fn(&Line) -> u64, thin| Series {
        name: name.to_owned(),
        points: lines.iter().enumerate().map(|(second, line)| (second as f64, value(line) as f64)).collect(),
        colour,
        thin,
    };
    let panel = |title: &str, value: fn(&Line) -> u64| {
        let mut series = Vec::new();
        if let Some(first) = report.arms.first() {
            series.push(line(6, "offered", &first.seconds, |line| line.offered, true));
        }
        for (colour, arm) in report.arms.iter().enumerate() {
            series.push(line(colour, arm.protection.as_str(), &arm.seconds, value, false));
        }
        Panel {
            title: title.to_owned(),
            x: "s".to_owned(),
            y: "queries per second".to_owned(),
            ratio_y: false,
            ratio_x: false,
            series,
        }
    };
    chart::svg(&[vec![
        panel("answered in time", |line| line.good),
        panel("asked, repetitions included", |line| line.attempts),
    ]])
}
