//! HTTP of an ingest: operations as lines, the token, dead letters, erasing; and the admin pages of every role beside them.

mod documents;
pub mod listen;
mod reply;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderValue, Method, Uri, header},
    response::Response,
    routing::{MethodRouter, any, get, post},
};
use canopy_common::{
    admin::AdminPages,
    drain::Drain,
    error::{ErrorClass, Failure},
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    corpora::Corpora,
    erase,
    error::{Error, Result},
    feed::blocking,
    keys::Keys,
};

/// Dead letters that are shown when nobody says how many.
const LETTERS: usize = 100;
/// Bytes of letters in one answer.
const LETTER_BYTES: usize = 32 << 20;
/// Largest body of an erasure, bytes.
const MAX_ERASE: usize = 64 << 10;

/// What the handlers share.
#[derive(Clone)]
pub struct App {
    /// What is taken.
    pub corpora: Arc<Corpora>,
    /// Who may write.
    pub keys: Arc<Keys>,
    /// Health, metrics.
    pub admin: AdminPages,
    /// A request that was begun is finished.
    pub drain: Drain,
    /// Requests that may be read at a time.
    pub writers: Arc<Semaphore>,
}

/// All routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/v1/{corpus}/documents", only(post(documents::write), "POST"))
        .route("/v1/{corpus}/token", only(get(token), "GET, HEAD"))
        .route("/v1/{corpus}/dead-letters", only(get(dead_letters), "GET, HEAD"))
        .route("/v1/{corpus}/erase", only(post(erase_key), "POST"))
        .fallback(any(beside))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

fn only(methods: MethodRouter<App>, allow: &'static str) -> MethodRouter<App> {
    methods.fallback(move |method: Method| async move {
        let failure =
            Failure::new(ErrorClass::InvalidArgument, format!("{method} is not allowed here; use {allow}"));
        let mut response = reply::failure(405, "METHOD_NOT_ALLOWED", &failure);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        response
    })
}

/// Whether the sender of a request may write to a corpus.
fn allowed(app: &App, headers: &HeaderMap, corpus: &str) -> Result<()> {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    app.keys.check(given, corpus).map(drop)
}

async fn token(State(app): State<App>, Path(corpus): Path<String>, headers: HeaderMap) -> Response {
    let answer = async {
        allowed(&app, &headers, &corpus)?;
        app.corpora.get(&corpus)?.token().await
    };
    reply::of(answer.await.map(|token| json!({ "token": token.to_string() })))
}

/// `GET /v1/{corpus}/dead-letters?last=N`: the newest, oldest of them first.
async fn dead_letters(
    State(app): State<App>,
    Path(corpus): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        allowed(&app, &headers, &corpus)?;
        let last = last(query.as_deref())?;
        let feed = app.corpora.get(&corpus)?;
        blocking(move || feed.dead.last(last, LETTER_BYTES)).await
    };
    reply::of(answer.await.map(|(letters, dropped)| json!({ "letters": letters, "dropped": dropped })))
}

fn last(query: Option<&str>) -> Result<usize> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(LETTERS) };
    let number = query.strip_prefix("last=").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::invalid("last", "expected last=N, how many of the newest to show"))
}

/// What is erased.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Erasing {
    key: String,
    order: Option<Order>,
}

/// A string or a number: 64 bits do not fit into the numbers of every client.
#[derive(Deserialize)]
#[serde(untagged)]
enum Order {
    Number(u64),
    Text(String),
}

/// `POST /v1/{corpus}/erase`.
async fn erase_key(
    State(app): State<App>,
    Path(corpus): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let _finished_though_it_drains = app.drain.busy();
    let answer = async {
        allowed(&app, &headers, &corpus)?;
        let feed = app.corpora.get(&corpus)?;
        let body = axum::body::to_bytes(body, MAX_ERASE).await;
        let body = body.map_err(|error| Error::invalid("body", format!("it can't be read: {error}")))?;
        let Erasing { key, order } = serde_json::from_slice(&body).map_err(|error| {
            Error::invalid("body", format!("expected {{\"key\":\"…\"}}, perhaps with an order: {error}"))
        })?;
        let order = match order {
            None => None,
            Some(Order::Number(order)) => Some(order),
            Some(Order::Text(text)) => {
                let wrong = |_| Error::invalid("order", "expected a whole number of 64 bits");
                Some(text.parse().map_err(wrong)?)
            }
        };
        erase::erase(&feed, &app.corpora.store, &app.corpora.cuts(&corpus), &key, order).await
    };
    reply::of(answer.await.map(|(token, steps)| {
        let step =
            |step: &erase::Step| json!({ "what": step.what, "done": step.done, "detail": step.detail });
        let steps: Vec<_> = steps.iter().map(step).collect();
        json!({ "token": token.to_string(), "steps": steps })
    }))
}

/// The admin pages, and a JSON 404 for everything else.
async fn beside(State(app): State<App>, method: Method, uri: Uri) -> Response {
    if let Some(page) = app.admin.respond(&method, uri.path()).await {
        return page.map(Body::new);
    }
    let path: String = uri.path().chars().take(100).collect();
    let message = format!("there is no page {path:?}; operations go to /v1/CORPUS/documents");
    reply::failure(404, ErrorClass::NotFound.code(), &Failure::new(ErrorClass::NotFound, message))
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    tracing::error!(panic = what, "a handler panicked");
    let failure =
        Failure::new(ErrorClass::Internal, "the handler failed; the log of this ingest has the cause");
    reply::failure(500, ErrorClass::Internal.code(), &failure)
}
