//! `[root]` of the configuration: defaults and limits of what clients may ask, and the rank profiles.
//!
//! Listen addresses belong to the topology. A limit here can only be tightened: the contract's own bounds (k 1000,
//! offset 10,000, 60 s) stay what they are.

use std::collections::BTreeMap;

use canopy_common::config::{Section, Size, Time};
use serde::{Deserialize, Serialize};

pub use crate::query_log::QueryLogConfig;

/// Largest page the contract allows, hits.
pub const MAX_K: u32 = 1000;
/// Deepest place that `offset + k` may reach; a cursor goes on from there.
pub const MAX_OFFSET: u32 = 10_000;
/// Longest deadline a client may ask for, milliseconds.
pub const MAX_TIMEOUT_MS: u32 = 60_000;
/// Name of the profile that is used when none is asked for.
pub const DEFAULT_PROFILE: &str = "default";

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RootConfig {
    /// Deadline of a query that names none. Default: 350ms.
    pub default_timeout: Time,
    /// Largest page. Default: 1000.
    pub max_k: u32,
    /// Deepest `offset + k`. Default: 10000.
    pub max_offset: u32,
    /// Largest request body. Default: 64KiB.
    pub max_body: Size,
    /// Largest estimated answer; a request for more is refused before any work. Default: 16MiB.
    pub max_answer: Size,
    /// Queries that run at once at most; below it the limit adapts to latency. Default: 1024.
    pub max_in_flight: u32,
    /// The adaptive limit never goes below this for latency's sake; only leaves that refuse bring it lower. Default: 64.
    pub min_in_flight: u32,
    /// Queries of each priority that may wait for one to end; more are refused at once. Default: 64.
    pub queue: u32,
    /// How long they wait at most; who would wait for more than half of it is refused on arrival. Longer answers more of
    /// a burst, later. Default: 50ms.
    pub queue_wait: Time,
    /// Whether answers are cut under load before queries are refused: first the snippets, then batch queries; an
    /// answer says what it lacks. Default: true.
    pub degrade: bool,
    /// Whether queries of a shape (structure without words) that was never seen before are tried on one leaf first. If
    /// that leaf is lost, the shape is refused. Costs unseen shapes the time of one leaf. Default: false.
    pub canary: bool,
    /// Client connections held at once; one more waits to be accepted. Default: 8192.
    pub max_connections: u32,
    /// Queries that took at least this long go to `/debug/slow`. Default: 250ms.
    pub slow_threshold: Time,
    /// Longest snippet, characters. Default: 240.
    pub snippet_chars: u32,
    /// Values of a facet that names no size. Default: 10.
    pub facet_size: u32,
    /// Facets that the search page shows, where the corpus has them. Default: host, lang.
    pub page_facets: Vec<String>,
    /// Terms that one prefix, wildcard or fuzzy word may become. Default: 128.
    pub max_expansions: u32,
    /// Shortest time between two readiness queries. Default: 1s.
    pub probe_interval: Time,
    /// Directory for the statistics of versions in a remote store; they are fetched once. Default: canopy-root-cache.
    pub cache_dir: String,
    /// Origins whose pages may read answers in a browser, such as `https://example.org`; empty: only the root's own
    /// pages. Default: none.
    pub cors_origins: Vec<String>,
    /// Whether requests may use what is for operators: hedge modes that multiply the load. Default: false.
    pub operator_parameters: bool,
    /// Rank profiles by name; `default` is used when a query names none.
    pub profiles: BTreeMap<String, Profile>,
    /// A sample of the queries, written down. Default: off.
    pub query_log: QueryLogConfig,
}

/// How hits are ranked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Weight of a document's static rank (0..1), added to its text score. Default: 0.
    pub prior_weight: f32,
}

impl Default for RootConfig {
    fn default() -> Self {
        Self {
            default_timeout: Time::ms(350),
            max_k: MAX_K,
            max_offset: MAX_OFFSET,
            max_body: Size(64 << 10),
            max_answer: Size(16 << 20),
            max_in_flight: 1024,
            min_in_flight: 64,
            queue: 64,
            queue_wait: Time::ms(50),
            degrade: true,
            canary: false,
            max_connections: 8192,
            slow_threshold: Time::ms(250),
            snippet_chars: 240,
            facet_size: 10,
            page_facets: vec!["host".to_owned(), "lang".to_owned()],
            max_expansions: 128,
            probe_interval: Time::ms(1000),
            cache_dir: "canopy-root-cache".to_owned(),
            cors_origins: Vec::new(),
            operator_parameters: false,
            profiles: BTreeMap::from([(DEFAULT_PROFILE.to_owned(), Profile::default())]),
            query_log: QueryLogConfig::default(),
        }
    }
}

impl Section for RootConfig {
    const NAME: &'static str = "root";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("default_timeout", "deadline of a query that names none; 1ms..60s"),
        ("max_k", "largest page, hits; 1..1000"),
        ("max_offset", "deepest offset + k; 1..10000"),
        ("max_body", "largest request body; 16KiB..16MiB"),
        ("max_answer", "largest estimated answer; 64KiB..1GiB"),
        ("max_in_flight", "queries that run at once at most; 1..100000"),
        (
            "min_in_flight",
            "the adaptive limit of queries at once goes no lower unless leaves refuse; 1..100000",
        ),
        ("queue", "queries of each priority that may wait for one to end; 0..100000"),
        ("queue_wait", "how long they wait at most, half of it as foreseen; 0s..10s"),
        ("degrade", "whether answers are cut under load before queries are refused"),
        ("canary", "whether queries of an unseen shape are tried on one leaf first"),
        ("max_connections", "client connections held at once; 1..1000000"),
        ("slow_threshold", "queries that took this long go to /debug/slow; 0s..60s"),
        ("snippet_chars", "longest snippet, characters; 40..2000"),
        ("facet_size", "values of a facet that names no size; 1..1000"),
        ("page_facets", "facets of the search page, field names; at most 8"),
        ("max_expansions", "terms one prefix, wildcard or fuzzy word may become; 1..1024"),
        ("probe_interval", "shortest time between two readiness queries; 100ms..60s"),
        ("cache_dir", "directory for statistics fetched from a remote store"),
        ("cors_origins", "origins whose pages may read answers in a browser"),
        ("operator_parameters", "whether requests may choose hedge modes that multiply the load"),
        ("profiles", "rank profiles by name: prior_weight 0..100"),
        (
            "query_log",
            "a sample of the queries: path ({node} is the root's name; empty: off), sample 0..1, max_file 64KiB..16GiB, \
             keep 0..1000 closed files",
        ),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut check = |key: &str, inside: bool, bounds: &str| {
            if !inside {
                found.push((key.to_owned(), format!("is outside {bounds}")));
            }
        };
        let time = |value: Time, low: u64, high: u64| (Time::ms(low)..=Time::ms(high)).contains(&value);
        check("default_timeout", time(self.default_timeout, 1, 60_000), "1ms..60s");
        check("max_k", (1..=MAX_K).contains(&self.max_k), "1..1000");
        check("max_offset", (1..=MAX_OFFSET).contains(&self.max_offset), "1..10000");
        check("max_body", (16 << 10..=16 << 20).contains(&self.max_body.0), "16KiB..16MiB");
        check("max_answer", (64 << 10..=1 << 30).contains(&self.max_answer.0), "64KiB..1GiB");
        check("max_in_flight", (1..=100_000).contains(&self.max_in_flight), "1..100000");
        check("min_in_flight", (1..=100_000).contains(&self.min_in_flight), "1..100000");
        check("queue", self.queue <= 100_000, "0..100000");
        check("queue_wait", time(self.queue_wait, 0, 10_000), "0s..10s");
        check("max_connections", (1..=1_000_000).contains(&self.max_connections), "1..1000000");
        check("slow_threshold", time(self.slow_threshold, 0, 60_000), "0s..60s");
        check("snippet_chars", (40..=2000).contains(&self.snippet_chars), "40..2000");
        check("facet_size", (1..=1000).contains(&self.facet_size), "1..1000");
        check("page_facets", self.page_facets.len() <= 8, "0..8 names");
        check("max_expansions", (1..=1024).contains(&self.max_expansions), "1..1024");
        check("probe_interval", time(self.probe_interval, 100, 60_000), "100ms..60s");
        found.extend(self.name_problems());
        found.extend(self.query_log.problems());
        found
    }
}

impl RootConfig {
    fn name_problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if self.cache_dir.is_empty() {
            found.push(("cache_dir".to_owned(), "name a directory".to_owned()));
        }
        for origin in &self.cors_origins {
            let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ', '*'])) {
                let reason = format!("{origin:?} is not an origin; write scheme://host[:port]");
                found.push(("cors_origins".to_owned(), reason));
            }
        }
        if !self.profiles.contains_key(DEFAULT_PROFILE) {
            found.push(("profiles".to_owned(), "there must be one named default".to_owned()));
        }
        for (name, profile) in &self.profiles {
            if !canopy_common::ids::valid_name(name) {
                found.push((format!("profiles.{name}"), "a name is 1 to 64 of a-z, 0-9, - and _".to_owned()));
            }
            if !(0.0..=100.0).contains(&profile.prior_weight) {
                found.push((format!("profiles.{name}.prior_weight"), "is outside 0..100".to_owned()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::config::Layers;

    #[test]
    fn the_defaults_are_valid_and_every_key_is_documented() {
        let config = RootConfig::default();
        assert_eq!(config.problems(), []);
        let lines = Layers::default().print(&config);
        let documented: Vec<&str> = RootConfig::DOCS.iter().map(|doc| doc.0).collect();
        assert_eq!(lines.len(), documented.len());
        for (key, ..) in lines {
            assert!(documented.contains(&key.trim_start_matches("root.")), "{key}");
        }
    }

    #[test]
    fn all_nonsense_is_named() {
        let mut layers = Layers::default();
        let text = "[root]\nmax_k = 5000\ndefault_timeout = '2min'\ncors_origins = ['*']\n\
                    profiles = {fresh = {prior_weight = -1.0}, Bad = {}}";
        layers.file("c.toml", text).unwrap();
        let (_, problems) = layers.section::<RootConfig>();
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        let expected = [
            "root.default_timeout",
            "root.max_k",
            "root.cors_origins",
            "root.profiles.Bad",
            "root.profiles.fresh.prior_weight",
        ];
        assert_eq!(keys, expected);
    }
}
