//! The plain HTTP pages of every role: `/healthz/startup`, `/healthz/live`, `/healthz/ready`, `/metrics`,
//! `/debug/slow`, `/version`, `/status`. A router of its own over hyper, so that leaf and aggregator need no web
//! framework; the root mounts [`AdminPages::respond`] beside its own pages.
//!
//! Three probes, never one: startup = opened once; live = the process turns its event loop, depends on nobody; ready =
//! would answer a query now. The pages stay up while the process drains, so that a balancer sees it leave.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::{
    drain::Drain,
    net::Bound,
    telemetry::{Telemetry, metrics},
};

/// What a role tells of itself.
pub trait Health: Send + Sync + 'static {
    /// Opened at least once.
    fn started(&self) -> bool;
    /// Would answer a query now; the error says what is missing. With nothing registered this is an error.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>>;
    /// One JSON object: role, node, versions wanted and served, states, lag, last errors.
    fn status(&self) -> serde_json::Value;
}

/// The pages of one role.
#[derive(Clone)]
pub struct AdminPages {
    /// The role's health.
    pub health: Arc<dyn Health>,
    /// The process' telemetry.
    pub telemetry: Telemetry,
    /// Leaving makes it unready.
    pub drain: Drain,
}

/// Longest a readiness check may take.
const READY_PATIENCE: Duration = Duration::from_secs(2);

fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    response
}

fn json(value: &serde_json::Value) -> Response<Full<Bytes>> {
    page(StatusCode::OK, "application/json", format!("{value:#}\n"))
}

fn probe(result: Result<(), String>) -> Response<Full<Bytes>> {
    match result {
        Ok(()) => page(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"),
        Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", format!("{why}\n")),
    }
}

impl AdminPages {
    /// The page at `path`, or `None` when it is not one of these.
    pub async fn respond(&self, method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
        let known = [
            "/healthz/startup",
            "/healthz/live",
            "/healthz/ready",
            "/metrics",
            "/debug/slow",
            "/version",
            "/status",
        ];
        if !known.contains(&path) {
            return None;
        }
        if method != Method::GET && method != Method::HEAD {
            return Some(page(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "use GET\n"));
        }
        Some(match path {
            "/healthz/live" => probe(Ok(())),
            "/healthz/startup" => {
                probe(if self.health.started() { Ok(()) } else { Err("not started yet".to_owned()) })
            }
            "/healthz/ready" => probe(self.ready().await),
            "/metrics" => page(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                metrics::text(&self.telemetry.registry),
            ),
            "/debug/slow" => json(&serde_json::json!({ "slow": self.telemetry.slow.list() })),
            "/version" => json(&serde_json::json!({ "canopy": env!("CARGO_PKG_VERSION") })),
            _ => json(&self.health.status()),
        })
    }

    async fn ready(&self) -> Result<(), String> {
        if self.drain.leaving() {
            return Err("draining".to_owned());
        }
        let check = tokio::time::timeout(READY_PATIENCE, self.health.ready()).await;
        check.unwrap_or_else(|_| Err("the readiness check did not end in time".to_owned()))
    }
}

/// Serves the pages on `bound` until the process is idle after draining began.
pub async fn serve_admin(pages: AdminPages, bound: Bound, drain: Drain, patience: Duration) {
    let mut incoming = bound.incoming;
    let mut connections = tokio::task::JoinSet::new();
    let leave = drain.wait_idle(patience);
    tokio::pin!(leave);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut leave => break,
            accepted = incoming.next() => accepted,
        };
        let Some(accepted) = accepted else { break };
        let Ok(io) = accepted else { continue };
        let pages = pages.clone();
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let pages = pages.clone();
                async move {
                    let response = pages.respond(request.method(), request.uri().path()).await;
                    let missing =
                        || page(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "no such page\n");
                    Ok::<_, Infallible>(response.unwrap_or_else(missing))
                }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(io), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "admin connection ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
