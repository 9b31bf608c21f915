//! Answers and errors as HTTP responses.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use canopy_common::error::{Classify, ErrorClass, Failure};
use serde_json::{Map, Value, json};

use crate::{error::Error, pressure::RETRY_AFTER_MS};

/// JSON with a status. Who is to come back is told when.
pub fn json(status: u16, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == 429 || status == 503 {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MS.div_ceil(1000)));
    }
    if status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The body of a failure.
pub fn error(code: &str, failure: &Failure) -> Value {
    let mut error = Map::new();
    error.insert("code".to_owned(), json!(code));
    error.insert("message".to_owned(), json!(failure.message));
    if let Some(field) = &failure.field {
        error.insert("field".to_owned(), json!(field));
    }
    if let Some(limit) = failure.limit {
        error.insert("limit".to_owned(), json!(limit));
    }
    Value::Object(error)
}

/// A failure.
pub fn failure(status: u16, code: &str, failure: &Failure) -> Response {
    json(status, &json!({ "error": error(code, failure) }))
}

/// The status of an error: what has no room is to be sent again, like what is over a quota.
pub fn status(class: ErrorClass) -> u16 {
    match class {
        ErrorClass::Overloaded => 429,
        class => class.http_status(),
    }
}

/// An answer or its error.
pub fn of(answer: Result<Value, Error>) -> Response {
    match answer {
        Ok(value) => json(200, &value),
        Err(error) => {
            let class = error.class();
            failure(status(class), class.code(), &error.into())
        }
    }
}
