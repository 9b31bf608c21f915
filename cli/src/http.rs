//! A small HTTP client for the commands: one request, one bounded answer, over the same network seam as the servers.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use canopy_common::{config::Secret, net::NetIo};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;

use crate::control;

/// Largest answer read, bytes.
const MAX_ANSWER: usize = 64 << 20;

/// An address as it is typed, `http://` and a slash at the end left out. Errors: how it is written.
pub fn address(text: &str) -> std::result::Result<String, String> {
    control::address(text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'))
}

/// A host and what it is called in error messages.
#[derive(Clone)]
pub struct Client {
    net: NetIo,
    address: String,
    patience: Duration,
    key: Option<Secret>,
}

impl Client {
    /// A client for `host:port`; an `http://` prefix is accepted.
    pub fn new(net: NetIo, address: &str, patience: Duration) -> Self {
        let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/').to_owned();
        Self { net, address, patience, key: None }
    }

    /// The same, with a key that goes along as `Authorization: Bearer`.
    #[must_use]
    pub fn with_key(self, key: Secret) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// GET of a path with query.
    pub async fn get(&self, path: &str) -> Result<Response<Bytes>> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Response<Bytes>> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {}", key.reveal()));
        }
        let request = request.body(Full::new(body))?;
        let answered = tokio::time::timeout(self.patience, self.exchange(request)).await;
        answered.map_err(|_| anyhow!("{} did not answer within {:?}", self.address, self.patience))?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>> {
        let connected = self.net.connect(&self.address).await;
        let io = connected.with_context(|| format!("nothing answers at {}", self.address))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| anyhow!(e))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    /// Waits until `/healthz/ready` says yes.
    pub async fn wait_ready(&self, patience: Duration) -> Result<()> {
        let mut last = String::from("no answer");
        let ready = async {
            loop {
                match self.get("/healthz/ready").await {
                    Ok(answer) if answer.status() == StatusCode::OK => return,
                    Ok(answer) => String::from_utf8_lossy(answer.body()).trim().clone_into(&mut last),
                    Err(error) => last = format!("{error:#}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(patience, ready).await;
        waited.map_err(|_| anyhow!("{} is not ready after {patience:?}: {last}", self.address))
    }
}

/// Percent-encodes a query value.
pub fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
