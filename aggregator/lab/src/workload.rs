//! What a lab asks of a tree: how many shards and replicas, how long leaves take, how fast queries come, how many. It is
//! the same for all arms of a comparison; what differs between arms is a [`crate::policy::Policy`].

use serde::{Deserialize, Serialize};

use crate::{
    draw,
    error::{Error, Result},
    latency::Latency,
    leaf::{Cancel, Slowness},
};

/// Stream of arrival draws.
const ARRIVALS: u64 = 0xa441;

/// From `from` on, so many queries come per model millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Model ms from the start.
    pub from: f64,
    /// Queries per model ms.
    pub per_ms: f64,
}

/// How the queues of leaves protect themselves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Protect {
    /// Most calls that wait at a leaf.
    pub room: u32,
    /// Longest wait in a queue that stands, model ms.
    pub shed_after: f64,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Time of one call.
    pub latency: Latency,
    /// Versions whose calls take other times; there is one version but in the labs of rollouts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<(u64, Latency)>,
    /// Shards of the corpus, each on leaves of its own.
    pub shards: u32,
    /// Replicas of each shard.
    pub replicas: u32,
    /// Workers of a leaf; 0: no queues.
    pub workers: u32,
    /// What happens to work that nobody waits for.
    pub cancel: Cancel,
    /// How their queues protect themselves; `None`: not at all.
    pub protected: Option<Protect>,
    /// How many times slower the first replica of each shard is; 1: not.
    pub slow: f64,
    /// Times when all leaves are slow.
    pub slowness: Vec<Slowness>,
    /// Arrivals, by time; the last rate stays.
    pub rates: Vec<Rate>,
    /// Queries that are measured.
    pub queries: u64,
    /// Queries before them that are not.
    pub warmup: u64,
    /// Nodes that ask, each with its own view of the load.
    pub callers: u32,
    /// Deadline of a query, model ms.
    pub deadline: f64,
    /// Time of a message from leaf to leaf, model ms.
    pub travel: f64,
    /// Seed of all draws.
    pub seed: u64,
    /// Virtual milliseconds in one model millisecond.
    pub scale: u32,
}

impl Workload {
    /// Lognormal, mean 8 ms, and this share of hiccups to 180..220 ms; two replicas, no queues.
    pub fn plain(hiccups: f64) -> Self {
        Self {
            latency: Latency::with_hiccups(hiccups),
            versions: Vec::new(),
            shards: 100,
            replicas: 2,
            workers: 0,
            cancel: Cancel::Running,
            protected: None,
            slow: 1.0,
            slowness: Vec::new(),
            rates: vec![Rate { from: 0.0, per_ms: 0.1 }],
            queries: 5000,
            warmup: 500,
            callers: 1,
            deadline: 10_000.0,
            travel: 0.05,
            seed: 1,
            scale: 20,
        }
    }

    /// The same with queues of one worker per leaf, at this load of all replicas.
    pub fn queued(hiccups: f64, load: f64) -> Self {
        let mut queued = Self { workers: 1, deadline: 60_000.0, ..Self::plain(hiccups) };
        queued.rates = vec![Rate { from: 0.0, per_ms: queued.rate_at(load) }];
        queued
    }

    /// Queries per ms that load the replicas of a shard to `load`, if each call is worked on once and all are of the
    /// model's speed.
    pub fn rate_at(&self, load: f64) -> f64 {
        load * f64::from(self.replicas) * f64::from(self.workers.max(1)) / self.latency.mean()
    }

    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        self.latency.check()?;
        self.versions.iter().try_for_each(|(_, latency)| latency.check())?;
        Error::within("shards", self.shards, 1, 2000)?;
        Error::within("replicas", self.replicas, 1, 16)?;
        Error::within("workers", self.workers, 0, 1024)?;
        Error::within("slow", self.slow, 1.0, 1000.0)?;
        Error::within("queries", self.queries, 1, 10_000_000)?;
        Error::within("warmup", self.warmup, 0, 10_000_000)?;
        Error::within("callers", self.callers, 1, 1000)?;
        Error::within("deadline", self.deadline, 1.0, 600_000.0)?;
        Error::within("travel", self.travel, 0.0, 1000.0)?;
        if self.rates.is_empty()
            || self.rates.iter().any(|rate| !(rate.per_ms > 0.0 && rate.per_ms <= 1000.0))
        {
            return Err(Error::setting("rate", "takes more than 0 and at most 1000000 queries per second"));
        }
        for slow in &self.slowness {
            Error::within("slowness", slow.factor, 0.01, 1000.0)?;
        }
        Ok(())
    }

    /// Arrival of each query, model ms, in order: a Poisson stream of the wanted rate, the same for the same seed.
    pub fn arrivals(&self) -> impl Iterator<Item = f64> {
        let mut at = 0.0;
        let mut segment = 0;
        (0..self.warmup + self.queries).map(move |query| {
            let mut work = -draw::unit(&[self.seed, ARRIVALS, query]).ln();
            loop {
                let rate = self.rates[segment].per_ms;
                let end = self.rates.get(segment + 1).map_or(f64::INFINITY, |next| next.from);
                if at + work / rate <= end {
                    at += work / rate;
                    return at;
                }
                work -= (end - at).max(0.0) * rate;
                at = at.max(end);
                segment += 1;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_to_the_rate_and_repeat() {
        let mut workload = Workload { queries: 40_000, warmup: 0, ..Workload::plain(0.0) };
        workload.rates = vec![
            Rate { from: 0.0, per_ms: 0.1 },
            Rate { from: 100_000.0, per_ms: 1.0 },
            Rate { from: 120_000.0, per_ms: 0.1 },
        ];
        let arrivals: Vec<f64> = workload.arrivals().collect();
        assert!(arrivals.is_sorted());
        let within = |from: f64, to: f64| arrivals.iter().filter(|at| from <= **at && **at < to).count();
        assert!((9_600..10_400).contains(&within(0.0, 100_000.0)));
        assert!((19_500..20_500).contains(&within(100_000.0, 120_000.0)));
        assert_eq!(arrivals, workload.arrivals().collect::<Vec<_>>());
        let other = Workload { seed: 2, ..workload };
        assert_ne!(arrivals[0], other.arrivals().next().unwrap());
    }

    #[test]
    fn a_load_counts_all_replicas() {
        let workload = Workload::queued(0.0, 0.6);
        assert!((workload.rates[0].per_ms - 0.15).abs() < 1e-12);
        assert!(Workload { rates: vec![], ..workload.clone() }.check().is_err());
        assert!(workload.check().is_ok());
    }
}
