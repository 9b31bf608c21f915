//! Workloads with a name.

use crate::{
    error::{Error, Result},
    policy::{Hedge, Policy},
    tail::Settings,
    workload::Workload,
};

/// Numbers of shards of a curve.
pub const SHARDS: [u32; 5] = [1, 10, 50, 100, 200];
/// Names of all presets.
pub const NAMES: [&str; 4] = ["course", "l1", "q0", "q1"];

/// A preset for `lab tail`.
///
/// - `course`: 8 ms, 1 % hiccups to 200 ms, 100,000 queries for each number of shards, a copy at the 95th percentile;
/// - `l1`: 8 ms, 0.5 % hiccups of 180 to 220 ms, no queues: what hedging alone can do;
/// - `q0`, `q1`: queues of one worker per leaf at 60 % load, without and with 0.5 % hiccups.
pub fn tail(name: &str) -> Result<Settings> {
    let hedged = Policy::hedge(Hedge::Quantile(0.95));
    let off = Policy::hedge(Hedge::Off);
    let auto = Policy::hedge(Hedge::Auto);
    let settings =
        |workload, arms| Settings { workload, shards: SHARDS.to_vec(), arms, seeds: 1, threads: 1 };
    match name {
        "course" => {
            let workload = Workload { queries: 100_000, warmup: 1000, ..Workload::plain(0.01) };
            Ok(settings(workload, vec![off, hedged]))
        }
        "l1" => Ok(settings(Workload::plain(0.005), vec![off, hedged, auto])),
        "q0" | "q1" => {
            let hiccups = if name == "q0" { 0.0 } else { 0.005 };
            let arms = vec![off, auto, Policy::hedge(Hedge::Tied)];
            Ok(Settings { seeds: 10, shards: vec![100], ..settings(Workload::queued(hiccups, 0.6), arms) })
        }
        _ => Err(Error::setting("preset", format!("{name:?} is not known; one of: {}", NAMES.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_sound() {
        for name in NAMES {
            tail(name).unwrap().check().unwrap();
        }
        assert!(tail("x").is_err());
    }
}
