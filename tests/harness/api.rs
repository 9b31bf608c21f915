//! The HTTP API as a client sees it.

use std::time::Duration;

use bytes::Bytes;
use canopy_cli::http::{Client, encode};
use canopy_common::net::NetIo;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// An answer of the API.
#[derive(Debug, Clone)]
pub struct Answered {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body; null when it is no JSON.
    pub json: Value,
    /// Body as it came.
    pub body: Bytes,
}

/// Hit of an answer, as far as order is concerned.
pub type Place = (String, u32);

impl Answered {
    /// Fails, showing the answer, unless it is 200.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.json);
        self
    }

    /// Fails unless it is an error with this status, code and field; gives the message.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str, field: &str) -> String {
        let error = &self.json["error"];
        assert_eq!(self.status, status, "{}", self.json);
        assert_eq!(error["code"], code, "{}", self.json);
        assert_eq!(error["field"].as_str().unwrap_or_default(), field, "{}", self.json);
        assert!(self.json["query_id"].as_str().is_some_and(|id| id.len() == 32), "{}", self.json);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.len() > 10, "{}", self.json);
        message.to_owned()
    }

    /// Keys of the hits.
    pub fn keys(&self) -> Vec<&str> {
        self.hits().map(|hit| hit["key"].as_str().unwrap_or_default()).collect()
    }

    /// The hits.
    pub fn hits(&self) -> impl Iterator<Item = &Value> {
        self.json["hits"].as_array().into_iter().flatten()
    }

    /// Keys and bits of the scores.
    pub fn places(&self) -> Vec<Place> {
        let score = |hit: &Value| (hit["score"].as_f64().unwrap_or(f64::NAN) as f32).to_bits();
        self.hits().map(|hit| (hit["key"].as_str().unwrap_or_default().to_owned(), score(hit))).collect()
    }

    /// Documents searched or proved irrelevant, of how many.
    pub fn documents(&self) -> (u64, u64, u64) {
        let documents = &self.json["coverage"]["documents"];
        let number = |name: &str| documents[name].as_u64().unwrap_or(u64::MAX);
        (number("searched"), number("pruned"), number("total"))
    }

    /// The cursor of the next page.
    pub fn next_cursor(&self) -> Option<&str> {
        self.json["next_cursor"].as_str()
    }

    /// Codes of the warnings.
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.json["warnings"].as_array().into_iter().flatten();
        warnings.map(|warning| warning["code"].as_str().unwrap_or_default()).collect()
    }

    /// What was cut.
    pub fn degraded(&self) -> Vec<&str> {
        self.json["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Fails unless the account adds up.
    #[track_caller]
    pub fn adds_up(&self) {
        let coverage = &self.json["coverage"];
        let shards = &coverage["shards"];
        let number = |name: &str| shards[name].as_u64().unwrap_or(u64::MAX);
        let outcomes = ["answered", "timed_out", "failed", "shed", "unavailable", "skipped"];
        let sum: u64 = outcomes.iter().map(|name| number(name)).sum();
        assert_eq!(sum, number("total"), "{coverage}");
        let (searched, pruned, total) = self.documents();
        let missing = coverage["missing"].as_array().into_iter().flatten();
        let missing: u64 = missing.map(|line| line["documents"].as_u64().unwrap_or(u64::MAX)).sum();
        assert_eq!(searched + pruned + missing, total, "{coverage}");
        let ratio = coverage["documents"]["ratio"].as_f64().unwrap_or(f64::NAN);
        let exact = if total == 0 { ratio } else { (searched + pruned) as f64 / total as f64 };
        // The quotient is printed exactly; the JSON reader may be one unit in the last place off.
        assert!((ratio - exact).abs() <= f64::EPSILON, "{ratio} is not {exact}");
        if self.status == 200 {
            let header = format!("{}/{total}", searched + pruned);
            assert_eq!(self.headers["x-canopy-coverage"], header, "{coverage}");
            assert_eq!(coverage["complete"] == true, self.degraded().is_empty(), "{}", self.json);
        }
    }
}

/// A root's API.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// At `host:port`.
    pub fn new(address: &str) -> Self {
        Self { client: Client::new(NetIo::tcp(), address, Duration::from_secs(70)) }
    }

    /// Its address.
    pub fn address(&self) -> &str {
        self.client.address()
    }

    /// A page by its path.
    pub async fn get(&self, path: &str) -> Answered {
        let response = self.client.get(path).await.unwrap_or_else(|error| panic!("GET {path}: {error:#}"));
        answered(response)
    }

    /// The same without a view on errors of the connection.
    pub async fn try_get(&self, path: &str) -> Option<Answered> {
        self.client.get(path).await.ok().map(answered)
    }

    /// A POST of a body.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answered {
        let response = self.client.post(path, body.into()).await;
        answered(response.unwrap_or_else(|error| panic!("POST {path}: {error:#}")))
    }

    /// A search by query string.
    pub async fn search(&self, corpus: &str, parameters: &[(&str, &str)]) -> Answered {
        self.get(&path(corpus, parameters)).await
    }

    /// A search by JSON body.
    pub async fn search_json(&self, corpus: &str, body: &Value) -> Answered {
        self.post(&format!("/v1/{corpus}/search"), body.to_string()).await
    }

    /// Value of a metric without labels; its sum over labels otherwise.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await;
        let text = String::from_utf8_lossy(&page.body).into_owned();
        let line = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let value = rest
                .strip_prefix(' ')
                .or_else(|| rest.starts_with('{').then(|| rest.rsplit(' ').next())?)?;
            value.trim().parse::<f64>().ok()
        };
        text.lines().filter_map(line).sum()
    }
}

/// Path and query of a search.
pub fn path(corpus: &str, parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("/v1/{corpus}/search?{}", pairs.join("&"))
}

fn answered(response: http::Response<Bytes>) -> Answered {
    let (parts, body) = response.into_parts();
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answered { status: StatusCode::as_u16(&parts.status), headers: parts.headers, json, body }
}
