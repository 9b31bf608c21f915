//! `[store]`: where versions live, how the store is reached and whose versions are taken.

use canopy_common::config::{Secret, Section, Time};
use serde::{Deserialize, Serialize};

use super::address::Address;

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Directory, `file://` URL, or `s3://bucket/prefix`. Default: `canopy-data`.
    pub url: String,
    /// Address of the S3 service, such as `https://minio.example:9000`; empty: Amazon's of the region. Default: empty.
    pub endpoint: String,
    /// Region of the bucket. Default: `us-east-1`.
    pub region: String,
    /// Access key; better in `access_key_file`. Without keys the machine's own role is asked for some. Default: none.
    pub access_key: Secret,
    /// Secret of the access key; better in `secret_key_file`. Default: none.
    pub secret_key: Secret,
    /// Token of temporary keys. Default: none.
    pub session_token: Secret,
    /// File that holds the access key; goes before `access_key`. Default: none.
    pub access_key_file: String,
    /// File that holds the secret; goes before `secret_key`. Default: none.
    pub secret_key_file: String,
    /// Allows an endpoint without TLS: whoever is on the way can read and change everything. Default: false.
    pub allow_http: bool,
    /// Longest wait for a connection. Default: 5s.
    pub connect_timeout: Time,
    /// Longest that one request may take; it moves at most 8 MiB. Default: 1min.
    pub timeout: Time,
    /// Tries after the first one, with growing pauses. More hide longer failures, and are as much longer in telling. Default: 4.
    pub retries: u32,
    /// Public keys, as base64 or as paths of files: only versions that one of them signed are taken. Default: none, which takes
    /// any version.
    pub verify_keys: Vec<String>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: "canopy-data".to_owned(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            access_key: Secret::default(),
            secret_key: Secret::default(),
            session_token: Secret::default(),
            access_key_file: String::new(),
            secret_key_file: String::new(),
            allow_http: false,
            connect_timeout: Time::ms(5000),
            timeout: Time::ms(60_000),
            retries: 4,
            verify_keys: Vec::new(),
        }
    }
}

impl StoreConfig {
    /// Of a URL, everything else by default.
    pub fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }
}

impl Section for StoreConfig {
    const NAME: &'static str = "store";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("url", "where versions live: a directory, a file:// URL, or s3://bucket/prefix"),
        (
            "endpoint",
            "address of the S3 service; empty: Amazon's of the region; AWS_ENDPOINT_URL when not set",
        ),
        ("region", "region of the bucket; AWS_REGION when not set"),
        (
            "access_key",
            "access key of S3, never shown; better in access_key_file; AWS_ACCESS_KEY_ID when not set",
        ),
        (
            "secret_key",
            "its secret, never shown; better in secret_key_file; AWS_SECRET_ACCESS_KEY when not set",
        ),
        ("session_token", "token of temporary keys, never shown; AWS_SESSION_TOKEN when not set"),
        ("access_key_file", "file that holds the access key; goes before access_key"),
        ("secret_key_file", "file that holds the secret; goes before secret_key"),
        ("allow_http", "allows an endpoint without TLS"),
        ("connect_timeout", "longest wait for a connection to the store; 10ms..1min"),
        ("timeout", "longest that one request to the store may take; 100ms..10min"),
        ("retries", "tries of a request after the first one; 0..20"),
        ("verify_keys", "public keys (base64, or files): only versions that one of them signed are taken"),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut wrong = |key: &str, reason: String| found.push((key.to_owned(), reason));
        match Address::parse(&self.url) {
            Err(error) => wrong("url", error.to_string().trim_start_matches("store: ").to_owned()),
            Ok(Address::S3 { .. }) => {
                if self.region.is_empty() {
                    wrong(
                        "region",
                        "is empty; name the bucket's, or us-east-1 for a store that has none".to_owned(),
                    );
                }
                let http = self.endpoint.starts_with("http://");
                if !self.endpoint.is_empty() && !http && !self.endpoint.starts_with("https://") {
                    wrong("endpoint", format!("{:?} is no http:// or https:// address", self.endpoint));
                }
                if http && !self.allow_http {
                    let reason = "without TLS whoever is on the way can change what is read; use https://, or set allow_http = true";
                    wrong("endpoint", reason.to_owned());
                }
            }
            Ok(Address::Directory(_)) => {}
        }
        let half = |one: &str, other: &str| format!("is given without {one}; give both or {other}");
        let access = !self.access_key.is_empty() || !self.access_key_file.is_empty();
        let secret = !self.secret_key.is_empty() || !self.secret_key_file.is_empty();
        if access && !secret {
            wrong("access_key", half("the secret", "none"));
        }
        if secret && !access {
            wrong("secret_key", half("the access key", "none"));
        }
        let mut time = |key: &str, value: Time, low: Time, high: Time| {
            if value < low || value > high {
                wrong(key, format!("{value} is outside {low}..{high}"));
            }
        };
        time("connect_timeout", self.connect_timeout, Time::ms(10), Time::ms(60_000));
        time("timeout", self.timeout, Time::ms(100), Time::ms(600_000));
        if self.retries > 20 {
            wrong("retries", format!("{} is above 20", self.retries));
        }
        if self.verify_keys.len() > crate::signature::MAX_KEYS {
            wrong(
                "verify_keys",
                format!("{} keys; give at most {}", self.verify_keys.len(), crate::signature::MAX_KEYS),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_bounded() {
        assert!(StoreConfig::default().problems().is_empty());
        let keys = serde_json::to_value(StoreConfig::default()).unwrap();
        let mut keys: Vec<_> = keys.as_object().unwrap().keys().map(String::as_str).collect();
        let mut documented: Vec<_> = StoreConfig::DOCS.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        documented.sort_unstable();
        assert_eq!(keys, documented);
        let wild = StoreConfig {
            endpoint: "minio:9000".to_owned(),
            region: String::new(),
            access_key: Secret::new("a"),
            connect_timeout: Time::ms(1),
            timeout: Time::ms(1),
            retries: 21,
            verify_keys: vec![String::new(); 65],
            ..StoreConfig::at("s3://bucket/x")
        };
        let named: Vec<_> = wild.problems().into_iter().map(|(key, _)| key).collect();
        let all =
            ["region", "endpoint", "access_key", "connect_timeout", "timeout", "retries", "verify_keys"];
        assert_eq!(named, all);
        let plain =
            StoreConfig { endpoint: "http://minio:9000".to_owned(), ..StoreConfig::at("s3://bucket") };
        assert!(plain.problems()[0].1.contains("allow_http"));
        assert!(StoreConfig { allow_http: true, ..plain }.problems().is_empty());
        assert_eq!(StoreConfig::at("gs://bucket").problems()[0].0, "url");
        assert_eq!(StoreConfig::at("").problems()[0].0, "url");
    }
}
