//! The HTTP front door: search in GET and POST, the list of corpora, the pages for people, and the admin pages beside
//! them. Routes stand here on one screen; each handler only turns HTTP into the call that gRPC makes too.
//!
//! Dropping a handler cancels its query down to the leaves: hyper drops it when the client's connection closes.

pub mod listen;
pub mod params;
mod refusal;
pub mod reply;

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, Query, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get},
};
use canopy_common::{
    admin::AdminPages,
    error::{ErrorClass, Failure},
    ids::QueryId,
    telemetry::trace,
};
use canopy_proto::v1::QueryRequest;
use serde_json::json;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use crate::{
    error::{Error, Result},
    pages,
    search::{Asked, Root},
};

/// Longest wait for a request body.
const BODY_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The corpus of an address, as far as it could be read.
type Corpus = std::result::Result<Path<String>, PathRejection>;

/// What the handlers share.
#[derive(Clone)]
pub struct App {
    /// Answers queries.
    pub root: Arc<Root>,
    /// Health, metrics, slow queries.
    pub admin: AdminPages,
}

/// All routes. Layers, outer to inner: catch panic > headers for browsers > routes.
pub fn router(app: App) -> Router {
    let search = get(search_get).post(search_post).options(search_options);
    Router::new()
        .route("/v1", only(get(corpora), "GET, HEAD"))
        .route("/v1/{corpus}/search", only(search, "GET, HEAD, POST, OPTIONS"))
        .route("/", only(get(pages::search), "GET, HEAD"))
        .route("/favicon.ico", only(get(pages::icon), "GET, HEAD"))
        .route("/assets/{name}", only(get(pages::asset), "GET, HEAD"))
        .fallback(any(beside))
        .layer(middleware::from_fn_with_state(app.clone(), for_browsers))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

fn only(methods: MethodRouter<App>, allow: &'static str) -> MethodRouter<App> {
    methods.fallback(move |method: Method| async move {
        let failure =
            Failure::new(ErrorClass::InvalidArgument, format!("{method} is not allowed here; use {allow}"));
        let mut response = reply::bare(405, "METHOD_NOT_ALLOWED", &failure);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        response
    })
}

/// `GET /v1/{corpus}/search`.
async fn search_get(State(app): State<App>, corpus: Corpus, uri: Uri, headers: HeaderMap) -> Response {
    let arrival = Instant::now();
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(&uri);
    let request = pairs
        .map_err(|error| Failure::invalid("query", format!("the query string is not readable: {error}")))
        .and_then(|Query(pairs)| params::from_pairs(&named(corpus)?, pairs));
    answer(&app, arrival, &headers, request.map_err(Error::from)).await
}

/// `POST /v1/{corpus}/search`.
async fn search_post(State(app): State<App>, corpus: Corpus, headers: HeaderMap, body: Body) -> Response {
    let arrival = Instant::now();
    let request = match read(body, app.root.config.max_body.0).await {
        Ok(body) => named(corpus).and_then(|corpus| params::from_json(&corpus, &body)),
        Err(failure) => Err(failure),
    };
    answer(&app, arrival, &headers, request.map_err(Error::from)).await
}

/// The corpus in the address, which may be no text.
fn named(corpus: Corpus) -> std::result::Result<String, Failure> {
    let Path(corpus) = corpus.map_err(|_| Failure::invalid("corpus", "the corpus' name is not UTF-8"))?;
    Ok(corpus)
}

/// A body, within its limit and in time.
async fn read(body: Body, limit: u64) -> std::result::Result<Bytes, Failure> {
    let reading = http_body_util::Limited::new(body, limit as usize);
    let collected = tokio::time::timeout(BODY_PATIENCE, http_body_util::BodyExt::collect(reading)).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is longer than the limit of {limit} bytes");
            Err(Failure::invalid("body", message).with_limit(limit))
        }
        Ok(Err(error)) => Err(Failure::invalid("body", format!("the body could not be read: {error}"))),
        Err(_) => Err(Failure::invalid("body", "the body did not arrive in time; send it whole at once")),
    }
}

async fn answer(app: &App, arrival: Instant, headers: &HeaderMap, request: Result<QueryRequest>) -> Response {
    let query = app.root.dice.query_id();
    let result = match request {
        Ok(request) => run(&app.root, query, arrival, headers, request).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(answer) => reply::answer(&answer),
        Err(error) => reply::error(&query.to_string(), &error),
    }
}

/// Runs a query under a span of the caller's trace.
pub async fn run(
    root: &Arc<Root>,
    query: QueryId,
    arrival: Instant,
    headers: &HeaderMap,
    request: QueryRequest,
) -> Result<crate::answer::Answer> {
    let span = tracing::info_span!("query", %query, corpus = request.corpus);
    trace::extract(headers).adopt(&span);
    let asked = Asked { query, arrival, limit: None, request };
    root.search(&asked).instrument(span).await
}

/// `OPTIONS /v1/{corpus}/search`: what browsers ask before a cross-origin POST.
async fn search_options() -> Response {
    let headers = [
        (header::ALLOW, "GET, HEAD, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, traceparent"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (axum::http::StatusCode::NO_CONTENT, headers).into_response()
}

/// `GET /v1`: the corpora served here.
async fn corpora(State(app): State<App>) -> Response {
    let open = app.root.versions.open();
    let corpora = open.iter().map(|corpus| {
        let manifest = &corpus.manifest;
        let field = |field: &canopy_format::schema::Field| json!({ "name": field.name, "kind": field.kind });
        json!({
            "name": manifest.corpus,
            "version": manifest.version,
            "documents": manifest.documents(),
            "shards": corpus.shards.len(),
            "languages": manifest.languages,
            "created": manifest.created,
            "fields": manifest.schema.fields.iter().map(field).collect::<Vec<_>>(),
        })
    });
    reply::json(
        200,
        &json!({ "corpora": corpora.collect::<Vec<_>>(), "opening": app.root.versions.opening() }),
    )
}

/// The admin pages, and a JSON 404 for everything else.
async fn beside(State(app): State<App>, method: Method, uri: Uri) -> Response {
    if let Some(page) = app.admin.respond(&method, uri.path()).await {
        return page.map(Body::new);
    }
    let path: String = uri.path().chars().take(100).collect();
    let message = format!("there is no page {path:?}; search is at /v1/CORPUS/search, corpora are at /v1");
    reply::bare(404, ErrorClass::NotFound.code(), &Failure::new(ErrorClass::NotFound, message))
}

/// Headers that keep browsers honest, and leave to read for the origins that are configured.
async fn for_browsers(State(app): State<App>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let allowed = &app.root.config.cors_origins;
    if !allowed.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) =
        origin.filter(|origin| allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = "x-canopy-coverage, x-query-id, retry-after";
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
    }
    response
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    tracing::error!(panic = what, "a handler panicked");
    let failure =
        Failure::new(ErrorClass::Internal, "the handler failed; the log of this root has the cause");
    reply::bare(500, ErrorClass::Internal.code(), &failure)
}

#[cfg(test)]
mod tests;
