//! The search page: what a person sees at `/`. Rendered on the server from the same call that the API makes, usable
//! without JavaScript and with the keyboard alone; the script only adds shortcuts.
//!
//! Rule: nothing from a document or a user reaches the page unescaped, links lead to http and https only, and the
//! content security policy forbids everything that is not served from here. An incomplete answer says so above the
//! results, in words: which documents are missing and why.

mod explain;
mod facets;
mod html;
mod languages;
mod notices;
mod pager;
mod results;
mod shell;
mod view;

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};
use tokio::time::Instant;

use crate::http::{App, reply};
use view::View;

const STYLE: &str = include_str!("pages/search.css");
const SCRIPT: &str = include_str!("pages/search.js");
const ICON: &str = include_str!("pages/icon.svg");
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// `GET /`: the empty page, or results.
pub async fn search(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Response {
    let arrival = Instant::now();
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(&uri).map(|Query(pairs)| pairs);
    let view = View::read(pairs.unwrap_or_default(), &app.root);
    if !view.searches() {
        return page(200, &shell::home(&view));
    }
    let query = app.root.dice.query_id();
    let request = view.request(&app.root);
    let result = crate::http::run(&app.root, query, arrival, &headers, request).await;
    let mut response = match &result {
        Ok(answer) => page(200, &results::page(&view, answer)),
        Err(error) => page(error.http_status(), &results::failed(&view, &query.to_string(), error)),
    };
    let name = HeaderValue::from_str(&query.to_string());
    name.ok().and_then(|name| response.headers_mut().insert(reply::QUERY_ID, name));
    response
}

/// `GET /assets/{name}`.
pub async fn asset(Path(name): Path<String>) -> Response {
    match name.as_str() {
        "search.css" => file("text/css; charset=utf-8", STYLE),
        "search.js" => file("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => file("image/svg+xml", ICON),
        _ => {
            let failure = canopy_common::error::Failure::new(
                canopy_common::error::ErrorClass::NotFound,
                "there is no such asset",
            );
            reply::bare(404, failure.class.code(), &failure)
        }
    }
}

/// `GET /favicon.ico`.
pub async fn icon() -> Response {
    file("image/svg+xml", ICON)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    response
}

fn page(status: u16, html: &str) -> Response {
    let mut response = Response::new(Body::from(html.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests;
