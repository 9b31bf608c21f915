//! The table of `canopy lab tail`: measured values with the exact ones in brackets, and how far they are off.

use canopy_lab::tail::{
    deviation::BOUND,
    reference::Kind,
    report::{Report, Row},
};

use super::super::output::{ms, percent, ratio, table};
use crate::say::say;

/// A measured value and the exact one.
fn both(measured: f64, exact: Option<f64>) -> String {
    exact.map_or_else(|| ms(measured), |exact| format!("{} ({})", ms(measured), ms(exact)))
}

/// How far the three quantiles are off.
fn off(row: &Row) -> String {
    row.deviation.map_or_else(String::new, |off| {
        [off.p50, off.p99, off.p999].map(|off| format!("{:+.1}", 100.0 * off.by)).join(" ")
    })
}

/// Prints it.
pub fn print(report: &Report) {
    let queued = report.workload.workers > 0;
    let partial = report.rows.iter().any(|row| row.complete < 1.0);
    let exact = report.rows.iter().any(|row| row.deviation.is_some());
    let mut header = vec!["shards", "arm", "p50 ms", "p99 ms", "p99.9 ms"];
    if exact {
        header.push("off exact, %");
    }
    header.extend(["extra", "p50 x", "p99 x", "p99.9 x"]);
    if queued {
        header.extend(["done twice", "executed"]);
    }
    if partial {
        header.extend(["coverage", "complete", "false flags"]);
    }
    let rows = report.rows.iter().map(|row| {
        let right = row.exact.as_ref();
        let mut cells = vec![
            row.shards.to_string(),
            row.arm.clone(),
            both(row.times.p50, right.map(|exact| exact.p50)),
            both(row.times.p99, right.map(|exact| exact.p99)),
            both(row.times.p999, right.map(|exact| exact.p999)),
        ];
        if exact {
            cells.push(off(row));
        }
        let versus = row.versus_first.as_ref();
        cells.extend([
            percent(row.extra),
            ratio(versus.and_then(|versus| versus.p50)),
            ratio(versus.and_then(|versus| versus.p99)),
            ratio(versus.and_then(|versus| versus.p999)),
        ]);
        if queued {
            cells.extend([percent(row.twice), percent(row.executed)]);
        }
        if partial {
            cells.extend([
                format!("{:.3}%", 100.0 * row.coverage),
                percent(row.complete),
                row.false_flags.to_string(),
            ]);
        }
        cells
    });
    say!("{}", table(&header, &[1], rows));
    notes(report);
}

fn notes(report: &Report) {
    let optimum =
        report.rows.iter().any(|row| row.exact.as_ref().is_some_and(|exact| exact.kind == Kind::Optimum));
    say!(
        "in brackets: the exact value{}; x: over the first arm, same arrivals and service times{}",
        if optimum { ", for auto the best that its budget allows" } else { "" },
        if report.seeds > 4 { ", median over the seeds (upper 95 % bound)" } else { "" }
    );
    for row in &report.rows {
        if let Some(slow) = &row.any_slow {
            say!(
                "{} shards: at least one hiccup in {} of the queries, exact {}, 1-(1-q)^S {}",
                row.shards,
                percent(slow.measured),
                percent(slow.exact),
                percent(slow.formula)
            );
        }
    }
    unhedged(report);
    if report.cpu_us_per_call > 0.0 {
        say!("{:.2} us of CPU per call at a leaf", report.cpu_us_per_call);
    }
}

/// Whether the lab measures right, by the arms whose exact values are known best.
fn unhedged(report: &Report) {
    let rows = report.rows.iter().filter_map(|row| Some((row.shards, row.deviation?)));
    let quantiles = rows.flat_map(|(shards, off)| [(shards, "p50", off.p50), (shards, "p99", off.p99)]);
    let judged: Vec<_> = quantiles.filter(|(_, _, off)| off.chance.is_some()).collect();
    // What chance alone may put further away is at the edge of the hiccups and says nothing.
    let (sharp, edge): (Vec<_>, Vec<_>) = judged
        .into_iter()
        .partition(|(_, _, off)| off.chance.is_some_and(|(low, high)| -BOUND <= low && high <= BOUND));
    if let Some(most) = sharp.iter().map(|(_, _, off)| off.by.abs()).max_by(f64::total_cmp) {
        say!(
            "unhedged p50 and p99: {} of them at most {:.1} % off the exact ones ({:.0} % are allowed)",
            sharp.len(),
            100.0 * most,
            100.0 * BOUND
        );
    }
    for (shards, name, off) in edge {
        let (low, high) = off.chance.unwrap_or_default();
        say!(
            "unhedged {name} of {shards} shards: {:+.1} %, where {:+.0} to {:+.0} % is chance with so many queries",
            100.0 * off.by,
            100.0 * low,
            100.0 * high
        );
    }
}
