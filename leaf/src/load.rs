//! What this leaf does, for the topology service: how many shards it was asked, how many failed, how long they took lately, and
//! which shards are asked most.
//!
//! The lag is that of the shard that is furthest behind the log.
//!
//! Rules: counts are since the process started, so that a report that is lost loses nothing; what was refused because of load
//! says nothing about the leaf's health and is left out. A latency is of the last seconds in which there was enough to do.
//! Units: microseconds where named so.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use canopy_common::ids::ShardId;
use canopy_topology::{link::Work, placement::Capacity};
use parking_lot::Mutex;
use prometheus::core::Metric;
use tokio::time::{Duration, Instant};

use crate::{config::LeafConfig, metrics::Metrics, shards::Shards};

/// Least time that a latency is of.
const WINDOW: Duration = Duration::from_secs(1);
/// Searches below which a latency says nothing.
const LEAST: u64 = 20;
/// Latencies older than this are not told any more.
const OLD: Duration = Duration::from_secs(10);

/// Cumulative counts of searches up to each bound, seconds.
type Buckets = Vec<(f64, u64)>;

/// Measures it.
pub struct Meter {
    metrics: Metrics,
    capacity: Capacity,
    window: Mutex<Window>,
}

struct Window {
    since: Instant,
    buckets: Buckets,
    p90_us: f64,
}

impl Meter {
    /// Of a leaf. What the machine has available is read once, when nothing is held yet.
    pub fn new(config: &LeafConfig, metrics: Metrics) -> Self {
        let available = || canopy_common::memory::available().unwrap_or(0);
        let memory = if config.memory.0 == 0 { available() } else { config.memory.0 };
        let cores = u32::try_from(config.search_threads()).unwrap_or(u32::MAX);
        // What is free on a disk says nothing about what this leaf holds there already: it is not told.
        let capacity = Capacity { memory, disk: 0, cores };
        let window = Mutex::new(Window { since: Instant::now(), buckets: Vec::new(), p90_us: 0.0 });
        Self { metrics, capacity, window }
    }

    /// What it can hold.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// What it did.
    pub fn work(&self, shards: &Shards, now_us: i64) -> Work {
        let outcome = |word: &str| self.metrics.outcomes.with_label_values(&[word]).get();
        let errors = outcome("failed");
        Work {
            queries: errors + outcome("answered") + outcome("timed_out"),
            errors,
            latency_p90_us: self.latency(),
            lag_ms: lag_ms(shards, now_us),
            shards: asked(shards)
                .into_iter()
                .map(|((corpus, shard), queries)| (corpus, shard, queries))
                .collect(),
        }
    }

    fn latency(&self) -> f64 {
        let (mut window, now) = (self.window.lock(), Instant::now());
        let age = now.saturating_duration_since(window.since);
        if age < WINDOW {
            return window.p90_us;
        }
        let buckets = buckets(&self.metrics);
        if let Some(p90_us) = p90_us(&window.buckets, &buckets) {
            *window = Window { since: now, buckets, p90_us };
        } else if age > OLD {
            *window = Window { since: now, buckets, p90_us: 0.0 };
        }
        window.p90_us
    }
}

fn buckets(metrics: &Metrics) -> Buckets {
    let metric = metrics.service.metric();
    let histogram = metric.get_histogram();
    histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())).collect()
}

/// The bound below which nine of ten of the searches between two moments were; `None`: too few.
fn p90_us(before: &Buckets, after: &Buckets) -> Option<f64> {
    let old = |at: usize| before.get(at).map_or(0, |(_, count)| *count);
    let new = |at: usize| after[at].1.saturating_sub(old(at));
    let all = new(after.len().checked_sub(1)?);
    if all < LEAST {
        return None;
    }
    let wanted = all as f64 * 0.9;
    let at = (0..after.len()).find(|at| new(*at) as f64 >= wanted)?;
    let (low, below) = if at == 0 { (0.0, 0) } else { (after[at - 1].0, new(at - 1)) };
    // Between two bounds as if they were spread evenly.
    let part = (wanted - below as f64) / (new(at) - below).max(1) as f64;
    Some((low + (after[at].0 - low) * part) * 1e6)
}

/// Queries of each shard that is served, most first.
pub fn busiest(shards: &Shards, most: usize) -> Vec<serde_json::Value> {
    let mut all: Vec<_> = asked(shards).into_iter().filter(|(_, queries)| *queries > 0).collect();
    all.sort_by_key(|(_, queries)| std::cmp::Reverse(*queries));
    all.truncate(most);
    let each = all.into_iter().map(|((corpus, shard), queries)| {
        serde_json::json!({ "corpus": corpus, "shard": shard.to_string(), "queries": queries })
    });
    each.collect()
}

/// Lag of the shard that is furthest behind the log; `None`: none follows it.
pub fn lag_ms(shards: &Shards, now_us: i64) -> Option<u64> {
    let views = shards.directory.snapshot();
    let views = views.all().map(|serving| serving.view());
    views.filter(|view| !view.offsets.is_empty()).map(|view| view.lag.ms(now_us)).max()
}

fn asked(shards: &Shards) -> BTreeMap<(String, ShardId), u64> {
    let mut asked = BTreeMap::new();
    for serving in shards.directory.snapshot().all() {
        let shard = (serving.corpus.to_string(), serving.shard.clone());
        *asked.entry(shard).or_default() += serving.asked.load(Ordering::Relaxed);
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_of_what_came_since_the_last_look() {
        let at = |counts: [u64; 3]| [0.001, 0.01, 0.1].into_iter().zip(counts).collect::<Buckets>();
        assert_eq!(p90_us(&at([0; 3]), &at([19; 3])), None, "too few to say");
        let fast = p90_us(&Vec::new(), &at([100; 3])).unwrap();
        assert!((fast - 900.0).abs() < 1.0, "{fast}");
        // A thousand fast ones before do not hide a hundred slow ones.
        let slow = p90_us(&at([1000; 3]), &at([1000, 1000, 1100])).unwrap();
        assert!((slow - 91_000.0).abs() < 100.0, "{slow}");
        assert_eq!(p90_us(&at([5; 3]), &Vec::new()), None);
    }

    #[test]
    fn a_leaf_says_what_it_can_hold_and_did() {
        let registry = prometheus::Registry::new();
        let metrics = Metrics::new(&registry);
        let config =
            LeafConfig { memory: canopy_common::config::Size(5000), threads: 3, ..LeafConfig::default() };
        let meter = Meter::new(&config, metrics.clone());
        assert_eq!(meter.capacity(), Capacity { memory: 5000, disk: 0, cores: 3 });
        for (word, count) in [("answered", 7), ("failed", 2), ("shed", 5)] {
            metrics.outcomes.with_label_values(&[word]).inc_by(count);
        }
        let leases = crate::lease::Leases::new(1, Duration::from_secs(1), 4);
        let work = meter.work(&Shards::new("leaf-1".into(), leases), 0);
        assert_eq!(work.lag_ms, None);
        assert_eq!((work.queries, work.errors, work.latency_p90_us), (9, 2, 0.0));
    }
}
