//! `[gather]` and `[aggregator]` of the configuration. The engine is the same at the root and at each aggregator, so
//! its settings stand in one section, `[gather]`; what only the aggregator's process needs is in `[aggregator]`.

use std::collections::BTreeMap;

use canopy_common::config::{Overrides, Section, Size, Time};
use serde::{Deserialize, Serialize};

use crate::{
    hedge::{HedgeMode, mode::MAX_ATTEMPTS},
    pick::Strategy,
};

/// The engine's section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatherConfig {
    /// Most branches that one node asks itself; with more, and aggregators known, a level of aggregators is put in
    /// between. Small: deep trees, one more hop. Large: one node handles every reply. Default: 64.
    pub fanout_max: u32,
    /// Most shards of one branch. A set of shards with the same replicas that is larger is split, and each part picks
    /// its own replica, so that the set's replicas share the work of one query. Default: 32.
    pub branch_shards: u32,
    /// How the replica of a branch is chosen. `adaptive`: the cheapest of up to four by service time, queue and failures; with
    /// a session the better of its first two by rendezvous. `affinity`: by rendezvous of session or query, with bounded load.
    /// Also `power_of_two`, `least_outstanding`, `round_robin`, `random`. Default: adaptive.
    pub pick: Strategy,
    /// Time the root keeps back from the search for merging and fetching the page; never more than a quarter of the
    /// query's deadline. Levels below keep back 1 % (0.5 to 5 ms), for merging alone. Default: 40ms.
    pub reserve: Time,
    /// `completion=adaptive`: share of the documents from which on stragglers get only a part of the remaining time.
    /// A request's `min_coverage` raises it. 1: always wait for all. Default: 0.95.
    pub enough_coverage: f64,
    /// That part of the remaining time when one shard is pending. Default: 0.2.
    pub wait_min: f64,
    /// That part when as many shards are pending as `enough_coverage` allows. Default: 0.3.
    pub wait_max: f64,
    /// How a search hedges when it does not say: `off`, `auto`, `delay:MS`, `quantile:P`, `tied` or `factor:N`. `auto`
    /// sends a second attempt after the delay for which `extra_work` pays, by what was seen, and nothing where that
    /// would do harm. Default: auto.
    pub hedge: HedgeMode,
    /// The delay before a hedge until enough was seen to compute one. Default: 50ms.
    pub hedge_default_delay: Time,
    /// Percentile of the whole query that `auto` works for. Default: 0.99.
    pub hedge_percentile: f64,
    /// Attempts of one branch in all, hedges and retries included. 1: neither. Default: 3.
    pub max_attempts: u32,
    /// Extra work: shards asked once more (hedges and retries), per shard asked. Small: slow and failed attempts are
    /// waited for. Large: a system that is overloaded gets that much more. Default: 0.05.
    pub extra_work: f64,
    /// Shards that may be asked once more per second in any case, for quiet clients. Default: 10.
    pub extra_work_floor: u32,
    /// Most that is saved up. Default: 256.
    pub extra_work_burst: u32,
    /// Memory that the replies of one query may hold while they are merged; a query over it loses the replies that
    /// are too many (they count as failed), other queries lose nothing. Default: 256MiB.
    pub merge_memory: Size,
    /// Settings that are others for one corpus, by its name; what is not named there follows the section. Limits of the
    /// node as a whole (`pick`, `extra_work_floor`, `extra_work_burst`) are the same for all. Default: none.
    pub corpora: BTreeMap<String, Overrides>,
}

/// What may be different for a corpus.
const OF_A_CORPUS: [&str; 12] = [
    "fanout_max",
    "branch_shards",
    "reserve",
    "enough_coverage",
    "wait_min",
    "wait_max",
    "hedge",
    "hedge_default_delay",
    "hedge_percentile",
    "max_attempts",
    "extra_work",
    "merge_memory",
];

impl Default for GatherConfig {
    fn default() -> Self {
        Self {
            fanout_max: 64,
            branch_shards: 32,
            pick: Strategy::Adaptive,
            reserve: Time::ms(40),
            enough_coverage: 0.95,
            wait_min: 0.2,
            wait_max: 0.3,
            hedge: HedgeMode::Auto,
            hedge_default_delay: Time::ms(50),
            hedge_percentile: 0.99,
            max_attempts: MAX_ATTEMPTS,
            extra_work: 0.05,
            extra_work_floor: 10,
            extra_work_burst: 256,
            merge_memory: Size(256 << 20),
            corpora: BTreeMap::new(),
        }
    }
}

impl GatherConfig {
    /// The settings that every corpus of its own settings has.
    pub fn for_corpora(&self) -> BTreeMap<String, Self> {
        let base = self.for_others();
        self.corpora.iter().map(|(corpus, overrides)| (corpus.clone(), overrides.over(&base))).collect()
    }

    /// The settings of the other corpora.
    fn for_others(&self) -> Self {
        Self { corpora: BTreeMap::new(), ..self.clone() }
    }
}

fn outside<T: PartialOrd + std::fmt::Display>(value: T, low: T, high: T) -> Option<String> {
    (!(low <= value && value <= high)).then(|| format!("{value} is outside {low}..{high}"))
}

impl Section for GatherConfig {
    const NAME: &'static str = "gather";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        (
            "fanout_max",
            "most branches one node asks itself; more put a level of aggregators in between; 2..4096",
        ),
        ("branch_shards", "most shards of one branch; larger sets are split over their replicas; 1..1024"),
        (
            "pick",
            "how a replica is chosen: adaptive, affinity, power_of_two, least_outstanding, round_robin or random",
        ),
        (
            "reserve",
            "time the root keeps back for merge and fetch, at most a quarter of the deadline; 1ms..10s",
        ),
        (
            "enough_coverage",
            "share of the documents after which stragglers get a part of the time left; 0.01..1",
        ),
        ("wait_min", "that part when one shard is pending; 0..1, not above wait_max"),
        ("wait_max", "that part when as many are pending as enough_coverage allows; 0..1"),
        ("hedge", "how a search hedges: off, auto, delay:MS, quantile:P, tied or factor:N"),
        ("hedge_default_delay", "delay before a hedge until enough was seen; 1ms..60s"),
        ("hedge_percentile", "percentile of the query that auto works for; 0.5..0.9999"),
        ("max_attempts", "attempts of one branch in all, hedges and retries included; 1..3"),
        ("extra_work", "shards asked once more, per shard asked; 0..1"),
        ("extra_work_floor", "shards that may be asked once more per second in any case; 0..100000"),
        ("extra_work_burst", "most that is saved up, in shards; 1..1000000"),
        ("merge_memory", "memory that the replies of one query may hold; 1MiB..64GiB"),
        (
            "corpora",
            "settings of single corpora: [gather.corpora.NAME] with the keys above that are of a query",
        ),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let checks = [
            ("fanout_max", outside(self.fanout_max, 2, 4096)),
            ("branch_shards", outside(self.branch_shards, 1, 1024)),
            ("reserve", outside(self.reserve, Time::ms(1), Time::ms(10_000))),
            ("enough_coverage", outside(self.enough_coverage, 0.01, 1.0)),
            ("wait_min", outside(self.wait_min, 0.0, self.wait_max)),
            ("wait_max", outside(self.wait_max, 0.0, 1.0)),
            ("hedge_default_delay", outside(self.hedge_default_delay, Time::ms(1), Time::ms(60_000))),
            ("hedge_percentile", outside(self.hedge_percentile, 0.5, 0.9999)),
            ("max_attempts", outside(self.max_attempts, 1, MAX_ATTEMPTS)),
            ("extra_work", outside(self.extra_work, 0.0, 1.0)),
            ("extra_work_floor", outside(self.extra_work_floor, 0, 100_000)),
            ("extra_work_burst", outside(self.extra_work_burst, 1, 1_000_000)),
            ("merge_memory", outside(self.merge_memory, Size(1 << 20), Size(64 << 30))),
        ];
        let checks = checks.into_iter().filter_map(|(key, problem)| Some((key.to_owned(), problem?)));
        let base = self.for_others();
        let corpora = self.corpora.iter().flat_map(|(corpus, overrides)| {
            let problems = overrides.problems(&base, &OF_A_CORPUS).into_iter();
            problems.map(move |(key, reason)| (format!("corpora.{corpus}.{key}"), reason))
        });
        checks.chain(corpora).collect()
    }
}

/// The aggregator's section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AggregatorConfig {
    /// Searches and fetches that run at once; one more is refused before any work, and its caller asks another
    /// aggregator. The limit adapts to latency below this. Default: 4096.
    pub max_in_flight: u32,
    /// The adaptive limit never goes below this; not above `max_in_flight`. Default: 256.
    pub min_in_flight: u32,
    /// Searches that took at least this long go to `/debug/slow`. Default: 250ms.
    pub slow_threshold: Time,
}

impl Default for AggregatorConfig {
    fn default() -> Self {
        Self { max_in_flight: 4096, min_in_flight: 256, slow_threshold: Time::ms(250) }
    }
}

impl Section for AggregatorConfig {
    const NAME: &'static str = "aggregator";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("max_in_flight", "searches and fetches that run at once; one more is shed; 1..1000000"),
        ("min_in_flight", "the adaptive limit never goes below this; 1..1000000"),
        ("slow_threshold", "searches that took at least this long go to /debug/slow; 1ms..60s"),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let checks = [
            ("max_in_flight", outside(self.max_in_flight, 1, 1_000_000)),
            ("min_in_flight", outside(self.min_in_flight, 1, 1_000_000)),
            ("slow_threshold", outside(self.slow_threshold, Time::ms(1), Time::ms(60_000))),
        ];
        checks.into_iter().filter_map(|(key, problem)| Some((key.to_owned(), problem?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_own_bounds() {
        assert_eq!(GatherConfig::default().problems(), []);
        assert_eq!(AggregatorConfig::default().problems(), []);
    }

    #[test]
    fn nonsense_is_listed_whole() {
        let config = GatherConfig {
            fanout_max: 1,
            branch_shards: 0,
            enough_coverage: f64::NAN,
            wait_min: 0.5,
            wait_max: 0.4,
            hedge_percentile: 99.0,
            max_attempts: 4,
            extra_work: -0.1,
            merge_memory: Size(7),
            ..GatherConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|problem| problem.0).collect();
        let expected = [
            "fanout_max",
            "branch_shards",
            "enough_coverage",
            "wait_min",
            "hedge_percentile",
            "max_attempts",
            "extra_work",
            "merge_memory",
        ];
        assert_eq!(keys, expected);
        let config = AggregatorConfig { max_in_flight: 0, ..AggregatorConfig::default() };
        assert_eq!(config.problems()[0].0, "max_in_flight");
    }

    #[test]
    fn a_corpus_has_settings_of_its_own_and_what_is_wrong_with_them_is_named() {
        let read = |value| serde_json::from_value::<GatherConfig>(value).unwrap();
        let config = read(serde_json::json!({
            "reserve": "30ms", "corpora": { "news": { "hedge": "off", "extra_work": 0.2 } },
        }));
        assert_eq!(config.problems(), []);
        let news = &config.for_corpora()["news"];
        assert_eq!((news.hedge, news.extra_work, news.reserve), (HedgeMode::Off, 0.2, Time::ms(30)));
        let wrong = read(serde_json::json!({ "corpora": {
            "news": { "hedge": "often", "extra_work": 3.0, "pick": "random" },
            "web": { "wait_max": 0.1, "hegde": 1 },
        } }));
        let keys: Vec<String> = wrong.problems().into_iter().map(|problem| problem.0).collect();
        let expected = ["news.pick", "news.hedge", "news.extra_work", "web.hegde", "web.wait_min"];
        assert_eq!(keys, expected.map(|key| format!("corpora.{key}")));
    }

    #[test]
    fn every_key_is_documented() {
        fn same<T: Section>() {
            let value = serde_json::to_value(T::default()).unwrap();
            let mut keys: Vec<&String> = value.as_object().unwrap().keys().collect();
            let mut documented: Vec<&str> = T::DOCS.iter().map(|entry| entry.0).collect();
            keys.sort();
            documented.sort_unstable();
            assert_eq!(keys, documented);
        }
        same::<GatherConfig>();
        same::<AggregatorConfig>();
    }
}
