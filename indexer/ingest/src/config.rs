//! `[ingest]` of the configuration.

use canopy_common::config::{Secret, Section, Size, Time};
use serde::{Deserialize, Serialize};

/// Which engine keeps the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// In this process, on its disk.
    #[default]
    Embedded,
    /// NATS `JetStream`.
    JetStream,
}

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestConfig {
    /// Where logs are: `embedded`, on the disk of this one process, or `jetstream`, on a NATS cluster. Default: embedded.
    pub engine: EngineKind,
    /// Where logs and dead letters are kept, below it a directory for each corpus. Default: ingest.
    pub directory: String,
    /// Address of NATS, such as `nats://nats.example:4222`, or several with commas; used with `jetstream`. Default: none.
    pub nats_url: String,
    /// User of NATS. Default: none.
    pub nats_user: String,
    /// Password of NATS. Default: none.
    pub nats_password: Secret,
    /// Copies of each stream that NATS keeps; 3 survive the loss of a server. Default: 1.
    pub nats_replicas: u32,
    /// Corpora that are taken; empty: all of the store. They come and go without a restart. Default: none.
    pub corpora: Vec<String>,
    /// Room that only deletes may use: with a full disk documents can still go. With `jetstream` it is of `max_log`. Default: 256MiB.
    pub reserve: Size,
    /// Largest log of a corpus; 0: as much as the disk has. Default: 0B.
    pub max_log: Size,
    /// Operations that may wait for the slowest leaf; beyond these nothing is taken. Default: 1000000.
    pub queue: u64,
    /// Longest that the slowest connected leaf may be behind; beyond it nothing is taken; 0: any. Default: 5min.
    pub max_lag: Time,
    /// How long a leaf that left is waited for, with its queue. Default: 5min.
    pub forget_followers: Time,
    /// Longest line, that is, one operation. Default: 20MiB.
    pub max_line: Size,
    /// Most lines of one request. Their answers are kept until it ends. Default: 100000.
    pub max_lines: u32,
    /// Operations that are made durable together; of one key in them only the last one is written. Default: 1000.
    pub batch: u32,
    /// Bytes of lines after which a batch is written though it is not full. Default: 8MiB.
    pub batch_bytes: Size,
    /// Requests that are read at a time; each may need `max_line` and `batch_bytes` of memory. More are refused. Default: 32.
    pub writers: u32,
    /// Longest wait for more of a request. Default: 30s.
    pub body_patience: Time,
    /// Dead letters that are kept of a corpus, at least. Default: 10000.
    pub dead_letters: u32,
    /// File of keys, one `NAME KEY` a line (or `NAME KEY CORPUS,CORPUS`): whoever writes sends one as `Authorization: Bearer KEY`. It is
    /// read again when it changes. Empty: everybody who reaches the port may write. Default: none.
    pub keys_file: String,
    /// How often the store is looked at for corpora and schemas. Default: 2s.
    pub poll: Time,
    /// How often what no version needs is trimmed off the logs. Default: 1min.
    pub trim: Time,
    /// Connections of HTTP at a time. Default: 1024.
    pub max_connections: u32,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            engine: EngineKind::Embedded,
            directory: "ingest".to_owned(),
            nats_url: String::new(),
            nats_user: String::new(),
            nats_password: Secret::default(),
            nats_replicas: 1,
            corpora: Vec::new(),
            reserve: Size(256 << 20),
            max_log: Size(0),
            queue: 1_000_000,
            max_lag: Time::ms(300_000),
            forget_followers: Time::ms(300_000),
            max_line: Size(20 << 20),
            max_lines: 100_000,
            batch: 1000,
            batch_bytes: Size(8 << 20),
            writers: 32,
            body_patience: Time::ms(30_000),
            dead_letters: 10_000,
            keys_file: String::new(),
            poll: Time::ms(2000),
            trim: Time::ms(60_000),
            max_connections: 1024,
        }
    }
}

impl Section for IngestConfig {
    const NAME: &'static str = "ingest";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("engine", "where logs are: embedded (on this disk) or jetstream (NATS)"),
        ("directory", "where logs and dead letters are kept"),
        ("nats_url", "address of NATS, with jetstream; nats://HOST:PORT"),
        ("nats_user", "user of NATS"),
        ("nats_password", "password of NATS; never shown"),
        ("nats_replicas", "copies of each stream that NATS keeps; 1..5"),
        ("corpora", "corpora that are taken; empty: all of the store"),
        ("reserve", "room on the disk that only deletes may use; 0B..1TiB"),
        ("max_log", "largest log of a corpus; 0B: as much as the disk has"),
        ("queue", "operations that may wait for the slowest leaf; 1..1000000000"),
        ("max_lag", "longest that the slowest leaf may be behind; 0s: any; 0s..24h"),
        ("forget_followers", "how long a leaf that left is waited for; 1s..24h"),
        ("max_line", "longest line, one operation; 1KiB..64MiB"),
        ("max_lines", "most lines of one request; 1..1000000"),
        ("batch", "operations that are made durable together; 1..100000"),
        ("batch_bytes", "bytes after which a batch is written; 1KiB..256MiB"),
        ("writers", "requests that are read at a time; 1..4096"),
        ("body_patience", "longest wait for more of a request; 100ms..10min"),
        ("dead_letters", "dead letters that are kept of a corpus, at least; 1..1000000"),
        ("keys_file", "file of keys, one NAME KEY a line; empty: everybody may write"),
        ("poll", "how often the store is looked at for corpora and schemas; 50ms..10min"),
        ("trim", "how often what no version needs is trimmed; 100ms..24h"),
        ("max_connections", "connections of HTTP at a time; 1..65536"),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = self.texts();
        let mut number = |key: &str, value: u64, low: u64, high: u64| {
            if !(low..=high).contains(&value) {
                found.push((key.to_owned(), format!("{value} is outside {low}..{high}")));
            }
        };
        number("nats_replicas", self.nats_replicas.into(), 1, 5);
        number("queue", self.queue, 1, 1_000_000_000);
        number("max_lines", self.max_lines.into(), 1, 1_000_000);
        number("batch", self.batch.into(), 1, 100_000);
        number("writers", self.writers.into(), 1, 4096);
        number("dead_letters", self.dead_letters.into(), 1, 1_000_000);
        number("max_connections", self.max_connections.into(), 1, 65_536);
        let mut size = |key: &str, value: Size, low: u64, high: u64| {
            if !(low..=high).contains(&value.0) {
                found.push((key.to_owned(), format!("{value} is outside {}..{}", Size(low), Size(high))));
            }
        };
        size("reserve", self.reserve, 0, 1 << 40);
        size("max_line", self.max_line, 1 << 10, 64 << 20);
        size("batch_bytes", self.batch_bytes, 1 << 10, 256 << 20);
        let mut time = |key: &str, value: Time, low: Time, high: Time| {
            if !(low..=high).contains(&value) {
                found.push((key.to_owned(), format!("{value} is outside {low}..{high}")));
            }
        };
        let day = Time::ms(24 * 3_600_000);
        time("max_lag", self.max_lag, Time::ms(0), day);
        time("forget_followers", self.forget_followers, Time::ms(1000), day);
        time("body_patience", self.body_patience, Time::ms(100), Time::ms(600_000));
        time("poll", self.poll, Time::ms(50), Time::ms(600_000));
        time("trim", self.trim, Time::ms(100), day);
        found
    }
}

impl IngestConfig {
    fn texts(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut wrong = |key: &str, why: &str| found.push((key.to_owned(), why.to_owned()));
        if self.directory.is_empty() {
            wrong("directory", "it is empty; name a directory");
        }
        if self.engine == EngineKind::JetStream && self.nats_url.is_empty() {
            wrong("nats_url", "it is empty; jetstream needs nats://HOST:PORT");
        }
        if self.nats_user.is_empty() && !self.nats_password.is_empty() {
            wrong("nats_user", "it is empty, but there is a password");
        }
        if let Some(name) = self.corpora.iter().find(|name| !canopy_common::ids::valid_name(name)) {
            let shown: String = name.chars().take(80).collect();
            wrong("corpora", &format!("{shown:?} must be 1 to 64 of a-z, 0-9, - and _"));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_bounded() {
        assert!(IngestConfig::default().problems().is_empty());
        let keys = serde_json::to_value(IngestConfig::default()).unwrap();
        let mut keys: Vec<_> = keys.as_object().unwrap().keys().map(String::as_str).collect();
        let mut documented: Vec<_> = IngestConfig::DOCS.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        documented.sort_unstable();
        assert_eq!(keys, documented);
        let wild = IngestConfig {
            engine: EngineKind::JetStream,
            directory: String::new(),
            nats_url: String::new(),
            nats_user: String::new(),
            nats_password: Secret::new("x"),
            nats_replicas: 0,
            corpora: vec!["../up".to_owned()],
            reserve: Size(u64::MAX),
            max_log: Size(u64::MAX),
            queue: 0,
            max_lag: Time::ms(24 * 3_600_000 + 1),
            forget_followers: Time::ms(0),
            max_line: Size(0),
            max_lines: 0,
            batch: 0,
            batch_bytes: Size(0),
            writers: 0,
            body_patience: Time::ms(0),
            dead_letters: 0,
            keys_file: String::new(),
            poll: Time::ms(0),
            trim: Time::ms(0),
            max_connections: 0,
        };
        // engine, nats_password, max_log and keys_file have no bounds.
        assert_eq!(wild.problems().len() + 4, documented.len(), "{:?}", wild.problems());
    }

    #[test]
    fn engines_are_named_in_small_letters() {
        let config = read(r#"{"engine":"jetstream","nats_url":"nats://n:4222"}"#);
        assert_eq!(config.engine, EngineKind::JetStream);
        assert!(config.problems().is_empty());
    }

    fn read(json: &str) -> IngestConfig {
        serde_json::from_str(json).unwrap()
    }
}
