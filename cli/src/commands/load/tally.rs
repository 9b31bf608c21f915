//! What came of the queries of a load: latency, and a count for every way they ended.
//!
//! A figure of a server that refused half of its queries is no figure, so what failed is counted by cause and made the
//! exit code of the command; what was answered in part is counted by what was missing and why. Causes come from
//! elsewhere, so as many are kept apart as a person reads, the rest is summed up.
//! Units: microseconds inside, milliseconds in reports.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::show;

/// Causes kept apart.
const CAUSES: usize = 64;
/// Causes shown to people.
const SHOWN: usize = 5;
/// Where those go that are one too many.
const OTHERS: &str = "other causes";

/// How a query ended.
#[derive(Debug)]
pub enum End {
    /// With an answer; the causes why it is partial or degraded, none when it is whole.
    Answered {
        /// Not all documents were searched.
        partial: bool,
        /// In words.
        causes: Vec<String>,
    },
    /// With an error of the root: its status and code.
    Refused(u16, String),
    /// Without any answer.
    Lost(String),
}

/// Reads how a query ended from an answer.
pub fn end(status: u16, partial: bool, body: &[u8]) -> End {
    if status == 200 {
        // Most answers are whole: only the others are taken apart.
        let whole = !partial && holds(body, br#""degraded":[]"#);
        let causes = if whole { Vec::new() } else { causes(body) };
        return End::Answered { partial, causes };
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = answer["error"]["code"].as_str().unwrap_or("without a code");
    End::Refused(status, show::plain(code))
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    // It stands behind the hits.
    body.windows(part.len()).rev().any(|window| window == part)
}

fn causes(body: &[u8]) -> Vec<String> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| show::plain(value.as_str().unwrap_or("unknown"));
    let missing = answer["coverage"]["missing"].as_array().into_iter().flatten();
    let mut causes: Vec<String> =
        missing.map(|shard| format!("{}: {}", text(&shard["outcome"]), text(&shard["reason"]))).collect();
    causes.extend(answer["degraded"].as_array().into_iter().flatten().map(text));
    causes.sort();
    causes.dedup();
    causes
}

/// Counts by cause.
#[derive(Debug, Default)]
pub struct Causes(BTreeMap<String, u64>);

impl Causes {
    fn add(&mut self, cause: String, n: u64) {
        let known = self.0.len() < CAUSES || self.0.contains_key(&cause);
        *self.0.entry(if known { cause } else { OTHERS.to_owned() }).or_default() += n;
    }

    fn merge(&mut self, other: Self) {
        for (cause, n) in other.0 {
            self.add(cause, n);
        }
    }

    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The commonest, as indented lines.
    fn lines(&self, out: &mut String) {
        let mut causes: Vec<(&String, &u64)> = self.0.iter().collect();
        causes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        for (cause, n) in causes.iter().take(SHOWN) {
            out.push_str(&format!("  {}: {cause}\n", show::count(**n)));
        }
        if causes.len() > SHOWN {
            out.push_str(&format!("  and {} causes more; --json lists them\n", causes.len() - SHOWN));
        }
    }
}

/// What came of all queries.
pub struct Tally {
    latency: Histogram<u64>,
    /// Of those that the root answered with an error.
    refusals: Histogram<u64>,
    answers: BTreeMap<String, u64>,
    failures: Causes,
    partial: u64,
    lacks: Causes,
    /// Arrivals that this tool did not send, because too many were in flight.
    pub dropped: u64,
}

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn ms(of: &Histogram<u64>, quantile: f64) -> f64 {
    of.value_at_quantile(quantile) as f64 / 1000.0
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Result<Self> {
        // 1 us to 10 min, three digits.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        let refusals = latency.clone();
        let (failures, lacks) = Default::default();
        Ok(Self { latency, refusals, answers: BTreeMap::new(), failures, partial: 0, lacks, dropped: 0 })
    }

    /// A query ended after so long.
    pub fn add(&mut self, took: Duration, end: End) {
        let us = (took.as_micros() as u64).max(1);
        self.latency.saturating_record(us);
        let name = match end {
            End::Answered { partial, causes } => {
                self.partial += u64::from(partial);
                for cause in causes {
                    self.lacks.add(cause, 1);
                }
                "200".to_owned()
            }
            End::Refused(status, code) => {
                self.refusals.saturating_record(us);
                self.failures.add(format!("answered {status} {code}"), 1);
                status.to_string()
            }
            End::Lost(cause) => {
                self.failures.add(format!("no answer: {cause}"), 1);
                "none".to_owned()
            }
        };
        *self.answers.entry(name).or_default() += 1;
    }

    /// Adds another's.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        self.latency.add(other.latency)?;
        self.refusals.add(other.refusals)?;
        for (name, n) in other.answers {
            *self.answers.entry(name).or_default() += n;
        }
        self.failures.merge(other.failures);
        self.partial += other.partial;
        self.lacks.merge(other.lacks);
        self.dropped += other.dropped;
        Ok(())
    }

    /// Queries without an answer, those among them that were not even sent.
    pub fn failed(&self) -> u64 {
        self.failures.total() + self.dropped
    }

    fn ms(&self, quantile: f64) -> f64 {
        ms(&self.latency, quantile)
    }

    /// For machines.
    pub fn json(&self, way: &str, elapsed: Duration) -> Value {
        let quantiles = |of: &Histogram<u64>| -> serde_json::Map<_, _> {
            QUANTILES.iter().map(|(name, quantile)| ((*name).to_owned(), json!(ms(of, *quantile)))).collect()
        };
        let (latency, refusals) = (quantiles(&self.latency), quantiles(&self.refusals));
        json!({
            "loop": way, "queries": self.latency.len(), "dropped": self.dropped,
            "qps": self.latency.len() as f64 / elapsed.as_secs_f64(), "answers": self.answers,
            "failed": self.failed(), "failures": self.failures.0,
            "partial": self.partial, "lacks": self.lacks.0, "latency_ms": latency,
            "refusals_ms": refusals,
            "mean_ms": self.latency.mean() / 1000.0, "seconds": elapsed.as_secs_f64(),
            "percentiles_ms": (1..=100).map(|percent| self.ms(f64::from(percent) / 100.0)).collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn text(&self, elapsed: Duration) -> String {
        let (sent, seconds) = (self.latency.len(), elapsed.as_secs_f64());
        let mut out = format!(
            "{sent} queries in {seconds:.1} s, {:.1}/s, {} answered, {} of these in part\n",
            sent as f64 / seconds,
            sent - self.failures.total(),
            self.partial
        );
        if self.failures.total() > 0 {
            out.push_str(&format!("failed: {}\n", show::count(self.failures.total())));
            self.failures.lines(&mut out);
        }
        if self.dropped > 0 {
            out.push_str(&format!("not sent, too many in flight: {}\n", show::count(self.dropped)));
        }
        if self.lacks.total() > 0 {
            out.push_str("answers lacked, by cause:\n");
            self.lacks.lines(&mut out);
        }
        let line: Vec<String> =
            QUANTILES.iter().map(|(name, quantile)| format!("{name} {:.2}", self.ms(*quantile))).collect();
        let mean = self.latency.mean() / 1000.0;
        out.push_str(&format!(
            "latency from the intended arrival, ms: {}, mean {mean:.2}\n",
            line.join("  ")
        ));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(degraded: &[&str], reasons: &[&str]) -> Vec<u8> {
        let missing: Vec<Value> =
            reasons.iter().map(|reason| json!({ "outcome": "timed_out", "reason": reason })).collect();
        json!({ "degraded": degraded, "coverage": { "missing": missing } }).to_string().into_bytes()
    }

    #[test]
    fn every_end_is_counted_by_its_cause_and_what_failed_is_known() {
        let mut tally = Tally::new().unwrap();
        let refused = json!({ "error": { "code": "OVERLOADED" } }).to_string().into_bytes();
        let ends = [
            end(200, false, &body(&[], &[])),
            end(200, true, &body(&["partial"], &["no answer in time", "no answer in time"])),
            end(200, false, &body(&["snippets_skipped"], &[])),
            end(503, false, &refused),
            end(503, false, &refused),
            end(502, false, b"<html>"),
            End::Lost("connection refused".to_owned()),
        ];
        for end in ends {
            tally.add(Duration::from_millis(3), end);
        }
        tally.dropped = 2;
        assert_eq!(tally.failed(), 6);
        let json = tally.json("open", Duration::from_secs(1));
        assert_eq!(json["answers"], json!({ "200": 3, "503": 2, "502": 1, "none": 1 }));
        let failures = json!({ "answered 503 OVERLOADED": 2, "answered 502 without a code": 1,
            "no answer: connection refused": 1 });
        assert_eq!(json["failures"], failures);
        let lacks = json!({ "partial": 1, "timed_out: no answer in time": 1, "snippets_skipped": 1 });
        assert_eq!((&json["lacks"], &json["partial"]), (&lacks, &json!(1)));
        let text = tally.text(Duration::from_secs(1));
        for part in ["3 answered, 1 of these in part", "failed: 4", "2: answered 503 OVERLOADED", "not sent"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn causes_are_bounded() {
        let mut causes = Causes::default();
        for n in 0..1000 {
            causes.add(format!("cause {n}"), 1);
        }
        assert_eq!((causes.0.len(), causes.total()), (CAUSES + 1, 1000));
        let mut out = String::new();
        causes.lines(&mut out);
        assert!(out.starts_with("  936: other causes\n") && out.lines().count() == SHOWN + 1, "{out}");
    }
}
