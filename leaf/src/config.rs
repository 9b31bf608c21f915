//! `[leaf]` of the configuration.

use canopy_common::{
    config::{Section, Size, Time},
    limit::Bounds,
};
use serde::{Deserialize, Serialize};

use crate::{executor::Room, fault::FaultConfig, overlay::OverlayConfig};

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeafConfig {
    /// Search threads; 0: one per core. More than cores only helps when the index does not fit into memory.
    /// Default: 0.
    pub threads: u32,
    /// Searches of interactive queries that may wait for a thread; more are shed at once. A longer queue answers more
    /// of a burst, later. Default: 256.
    pub queue: u32,
    /// The same for batch queries, which wait behind all interactive ones. Default: 64.
    pub batch_queue: u32,
    /// Longest wait of an interactive search in a queue that stands (one whose oldest entry has not been young for
    /// 100 ms), never more than half of its own time; then it is given back, so that its caller can ask another
    /// replica. Shorter: callers with much time learn sooner that there is an overload. Default: 2s.
    pub shed_after: Time,
    /// Searches that are taken at once whatever their latency; beyond these an adaptive limit refuses when latency
    /// doubles. At least a few per thread, or a wrong guess costs throughput. Default: 64.
    pub min_in_flight: u32,
    /// Shards verified and opened at a time; 0: one per core. Default: 0.
    pub open_threads: u32,
    /// Memory that all shards together may need, by their manifests; 0: what the machine has available. A shard that does not
    /// fit is refused before anything is brought. Default: 0B.
    pub memory: Size,
    /// How long a version that is wanted no more answers on, for queries that are still pinned to it. For how long it is wanted is
    /// the rollout's to say. Default: 1min.
    pub retain: Time,
    /// Share of one core, in percent, that verifying and warming a version may take while another is served. Less disturbs
    /// queries less and takes longer. Default: 50.
    pub warm_percent: u32,
    /// Longest that warming one shard may take; it is served then as it is. Default: 30s.
    pub warm_limit: Time,
    /// Where files of a remote store are kept; not used with a local one, unless `cache_local`. Default: cache.
    pub cache_dir: String,
    /// Copies files of a local store to `cache_dir` too, instead of mapping them in place: for one on a network mount.
    /// Default: false.
    pub cache_local: bool,
    /// Bytes a second that fetching one shard may take; 0: as fast as it goes. Default: 0B.
    pub fetch_rate: Size,
    /// Shards that finish within this time of each other share one reply. Longer saves messages, shorter shows the
    /// first hits earlier. Default: 500us.
    pub coalesce: Time,
    /// How long a view outlives the deadline of the searches that used it, so that their fetches still find it.
    /// Default: 2s.
    pub lease_grace: Time,
    /// Replaced views that are kept for such fetches at most. Default: 64.
    pub leases: u32,
    /// How much of a document's text is looked at for its snippet. Default: 128KiB.
    pub snippet_scan: Size,
    /// Searches that take at least this long are noted on the page of slow queries. Default: 250ms.
    pub slow: Time,
    /// What was written since a version was cut. Default: see `[leaf.overlay]`.
    pub overlay: OverlayConfig,
    /// Allows `[leaf.fault]`; for tests only. Default: false.
    pub allow_faults: bool,
    /// Faults on purpose; for tests only. Default: none.
    pub fault: FaultConfig,
}

impl Default for LeafConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            queue: 256,
            batch_queue: 64,
            shed_after: Time::ms(2000),
            min_in_flight: 64,
            open_threads: 0,
            memory: Size(0),
            retain: Time::ms(60_000),
            warm_percent: 50,
            warm_limit: Time::ms(30_000),
            cache_dir: "cache".to_owned(),
            cache_local: false,
            fetch_rate: Size(0),
            coalesce: Time(std::time::Duration::from_micros(500)),
            lease_grace: Time::ms(2000),
            leases: 64,
            snippet_scan: Size(128 << 10),
            slow: Time::ms(250),
            overlay: OverlayConfig::default(),
            allow_faults: false,
            fault: FaultConfig::default(),
        }
    }
}

impl LeafConfig {
    /// Sizes of the queue.
    pub fn room(&self) -> Room {
        Room {
            interactive: self.queue as usize,
            batch: self.batch_queue as usize,
            shed_after: self.shed_after.0,
        }
    }

    /// Where the limit of running searches may be: as many as are taken at once, and as many as run and wait.
    pub fn bounds(&self) -> Bounds {
        let max = self.search_threads() as u32 + self.queue + self.batch_queue;
        // Fewer than keep all threads busy would be throughput lost.
        Bounds { min: self.min_in_flight.max(2 * self.search_threads() as u32).min(max), max }
    }

    /// Search threads, cores counted.
    pub fn search_threads(&self) -> usize {
        or_cores(self.threads)
    }

    /// Opening threads, cores counted.
    pub fn opening_threads(&self) -> usize {
        or_cores(self.open_threads)
    }
}

fn or_cores(number: u32) -> usize {
    match number {
        0 => std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get),
        number => number as usize,
    }
}

impl Section for LeafConfig {
    const NAME: &'static str = "leaf";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("threads", "search threads; 0: one per core; 0..1024"),
        ("queue", "interactive searches that may wait for a thread; 1..65536"),
        ("batch_queue", "batch searches that may wait for a thread; 1..65536"),
        ("shed_after", "longest wait of an interactive search in a queue that stands; 1ms..1min"),
        ("min_in_flight", "searches taken at once whatever their latency; 1..65536"),
        ("open_threads", "shards verified and opened at a time; 0: one per core; 0..1024"),
        ("memory", "memory that all shards together may need; 0B: what the machine has"),
        ("retain", "how long a replaced version answers on; 100ms..168h"),
        ("warm_percent", "percent of a core for verifying and warming beside a served version; 1..100"),
        ("warm_limit", "longest time to warm one shard; 100ms..1h"),
        (
            "cache_dir",
            "where files of a remote store are kept; not used with a local one, unless cache_local",
        ),
        ("cache_local", "copies files of a local store too: for one on a network mount"),
        ("fetch_rate", "bytes a second that fetching one shard may take; 0B: as fast as it goes"),
        ("coalesce", "shards that finish within this time share one reply; 0s..10ms"),
        ("lease_grace", "how long a view outlives the searches that used it; 100ms..1min"),
        ("leases", "replaced views kept for late fetches; 1..4096"),
        ("snippet_scan", "how much of a text is looked at for its snippet; 4KiB..16MiB"),
        ("slow", "searches that take at least this long are noted as slow; 0s..1min"),
        (
            "overlay",
            "realtime updates of a shard: refresh 10ms..1min, checkpoint 1s..1h, max_lag 100ms..1h, max_documents, \
             max_bytes from 1MiB, policy serve or defer, purge 1s..24h",
        ),
        ("allow_faults", "allows [leaf.fault]; for tests only"),
        (
            "fault",
            "faults on purpose, for tests only: hiccup_probability 0..1, hiccup_min and hiccup_max up to 1min, delay \
             up to 1min, error_probability 0..1, kill_at",
        ),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut number = |key: &str, value: u32, low: u32, high: u32| {
            if !(low..=high).contains(&value) {
                found.push((key.to_owned(), format!("{value} is outside {low}..{high}")));
            }
        };
        number("threads", self.threads, 0, 1024);
        number("queue", self.queue, 1, 65_536);
        number("batch_queue", self.batch_queue, 1, 65_536);
        number("min_in_flight", self.min_in_flight, 1, 65_536);
        number("open_threads", self.open_threads, 0, 1024);
        number("leases", self.leases, 1, 4096);
        number("warm_percent", self.warm_percent, 1, 100);
        let mut time = |key: &str, value: Time, high: Time| {
            if value > high {
                found.push((key.to_owned(), format!("{value} is above {high}")));
            }
        };
        time("coalesce", self.coalesce, Time::ms(10));
        time("retain", self.retain, Time::ms(7 * 24 * 3_600_000));
        time("warm_limit", self.warm_limit, Time::ms(3_600_000));
        time("lease_grace", self.lease_grace, Time::ms(60_000));
        time("slow", self.slow, Time::ms(60_000));
        time("shed_after", self.shed_after, Time::ms(60_000));
        if self.shed_after < Time::ms(1) {
            found.push(("shed_after".to_owned(), format!("{} is below 1ms", self.shed_after)));
        }
        if self.warm_limit < Time::ms(100) {
            found.push(("warm_limit".to_owned(), format!("{} is below 100ms", self.warm_limit)));
        }
        // Queries that began before a swap are still on their way to the version that it replaced.
        for (key, value) in [("retain", self.retain), ("lease_grace", self.lease_grace)] {
            if value < Time::ms(100) {
                let reason = format!("{value} is below 100ms, so queries on their way at a swap would fail");
                found.push((key.to_owned(), reason));
            }
        }
        if self.cache_dir.is_empty() {
            found.push(("cache_dir".to_owned(), "it is empty; name a directory".to_owned()));
        }
        if self.fault.any() && !self.allow_faults {
            let reason = "faults are for tests only; set allow_faults = true, or remove them";
            found.push(("fault".to_owned(), reason.to_owned()));
        }
        found.extend(self.overlay.problems().into_iter().map(|(key, why)| (format!("overlay.{key}"), why)));
        found.extend(self.fault.problems().into_iter().map(|(key, why)| (format!("fault.{key}"), why)));
        let scan = self.snippet_scan;
        if !(4 << 10..=16 << 20).contains(&scan.0) {
            found.push(("snippet_scan".to_owned(), format!("{scan} is outside 4KiB..16MiB")));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_bounded() {
        assert!(LeafConfig::default().problems().is_empty());
        let keys = serde_json::to_value(LeafConfig::default()).unwrap();
        let mut keys: Vec<_> = keys.as_object().unwrap().keys().map(String::as_str).collect();
        let mut documented: Vec<_> = LeafConfig::DOCS.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        documented.sort_unstable();
        assert_eq!(keys, documented);
        let wild = LeafConfig {
            threads: 5000,
            queue: 0,
            batch_queue: 0,
            shed_after: Time::ms(0),
            min_in_flight: 0,
            open_threads: 5000,
            memory: Size(u64::MAX),
            retain: Time::ms(7 * 24 * 3_600_000 + 1),
            warm_percent: 0,
            warm_limit: Time::ms(3_600_001),
            cache_dir: String::new(),
            cache_local: true,
            fetch_rate: Size(u64::MAX),
            coalesce: Time::ms(11),
            lease_grace: Time::ms(60_001),
            leases: 0,
            snippet_scan: Size(1),
            slow: Time::ms(60_001),
            overlay: OverlayConfig { refresh: Time::ms(1), ..OverlayConfig::default() },
            allow_faults: false,
            fault: FaultConfig { delay: Time::ms(1), ..FaultConfig::default() },
        };
        // allow_faults, cache_local, memory and fetch_rate have no bounds.
        assert_eq!(wild.problems().len() + 4, documented.len(), "{:?}", wild.problems());
        let none = Time::ms(0);
        let hasty = LeafConfig { retain: none, lease_grace: none, ..LeafConfig::default() };
        let keys: Vec<_> = hasty.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["retain", "lease_grace"]);
        let allowed = LeafConfig { allow_faults: true, fault: wild.fault, ..LeafConfig::default() };
        assert!(allowed.problems().is_empty());
        assert!(LeafConfig::default().search_threads() > 0);
    }
    #[test]
    fn faults_are_read_from_every_layer_and_refused_unless_allowed() {
        let mut layers = canopy_common::config::Layers::default();
        let text = "[leaf.fault]\nhiccup_probability = 0.01\nhiccup_min = '180ms'\nhiccup_max = '220ms'";
        layers.file("c.toml", text).unwrap();
        layers.environment([("CANOPY__LEAF__FAULT__ERROR_PROBABILITY".into(), "0.5".into())]);
        layers.set("leaf.fault.delay=3ms").unwrap();
        let (config, problems) = layers.section::<LeafConfig>();
        let fault = FaultConfig {
            hiccup_probability: 0.01,
            hiccup_min: Time::ms(180),
            hiccup_max: Time::ms(220),
            delay: Time::ms(3),
            error_probability: 0.5,
            kill_at: String::new(),
        };
        assert_eq!(config.fault, fault);
        let keys: Vec<_> = problems.into_iter().map(|problem| problem.key).collect();
        assert_eq!(keys, ["leaf.fault"], "not without allow_faults");
        layers.set("leaf.allow_faults=true").unwrap();
        assert!(layers.section::<LeafConfig>().1.is_empty());
    }
}
