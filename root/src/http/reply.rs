//! Answers and errors as HTTP responses. The one place that knows which headers go with what.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use canopy_common::error::Failure;
use serde_json::{Map, Value, json};

use crate::{answer::Answer, error::Error};

/// Seconds after which a client may try again.
const RETRY_AFTER: &str = "1";
/// Covered documents of all documents.
pub const COVERAGE: &str = "x-canopy-coverage";
/// The query's name.
pub const QUERY_ID: &str = "x-query-id";

/// JSON with a status.
pub fn json(status: u16, value: &Value) -> Response {
    bytes(status, value.to_string().into_bytes())
}

fn bytes(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn set(response: &mut Response, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// An answer, partial or complete.
pub fn answer(answer: &Answer) -> Response {
    let mut response = bytes(200, answer.to_json());
    set(&mut response, QUERY_ID, &answer.query_id);
    set(&mut response, COVERAGE, &answer.coverage_header());
    response
}

/// The body of an error.
pub fn error_body(query_id: &str, error: &Error) -> Value {
    let mut body = body(error.code(), &error.failure());
    body.insert("query_id".to_owned(), json!(query_id));
    if let Some(report) = error.report() {
        body.insert("coverage".to_owned(), json!(report));
    }
    Value::Object(body)
}

fn body(code: &str, failure: &Failure) -> Map<String, Value> {
    let mut error = Map::new();
    error.insert("code".to_owned(), json!(code));
    error.insert("message".to_owned(), json!(failure.message));
    if let Some(field) = &failure.field {
        error.insert("field".to_owned(), json!(field));
    }
    if let Some(limit) = failure.limit {
        error.insert("limit".to_owned(), json!(limit));
    }
    Map::from_iter([("error".to_owned(), Value::Object(error))])
}

/// A query that has no answer.
pub fn error(query_id: &str, error: &Error) -> Response {
    let status = error.http_status();
    let mut response = json(status, &error_body(query_id, error));
    set(&mut response, QUERY_ID, query_id);
    if let Some(report) = error.report() {
        set(&mut response, COVERAGE, &report.header());
    }
    if status == 503 || status == 429 {
        set(&mut response, "retry-after", RETRY_AFTER);
    }
    response
}

/// The same as text, for answers that are written by hand.
pub fn text(code: &str, failure: &Failure) -> String {
    Value::Object(body(code, failure)).to_string()
}

/// An error that is not of a query.
pub fn bare(status: u16, code: &str, failure: &Failure) -> Response {
    json(status, &Value::Object(body(code, failure)))
}
