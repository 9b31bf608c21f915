//! The one mapping between [`Failure`] and gRPC status, both ways. The class, field, limit, shard and pushback travel in
//! one binary metadata entry; a peer that does not send it is judged by its code alone. tonic answers an expired
//! `grpc-timeout` with CANCELLED "Timeout expired": that is read as deadline exceeded. What the transport itself reports
//! ("http2 error") is told with its innermost cause, else nobody learns that a peer stopped answering pings.

use std::error::Error;

use serde::{Deserialize, Serialize};
use tonic::{Code, Status, metadata::MetadataValue};

use crate::error::{ErrorClass, Failure};

/// Metadata key of the failure details.
pub const DETAILS: &str = "canopy-failure-bin";

#[derive(Serialize, Deserialize)]
struct Details {
    class: u8,
    field: Option<String>,
    limit: Option<u64>,
    shard: Option<String>,
    pushback_ms: Option<u64>,
}

fn code(class: ErrorClass) -> Code {
    match class {
        ErrorClass::InvalidArgument => Code::InvalidArgument,
        ErrorClass::NotFound => Code::NotFound,
        ErrorClass::FailedPrecondition => Code::FailedPrecondition,
        ErrorClass::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorClass::Cancelled => Code::Cancelled,
        ErrorClass::Overloaded | ErrorClass::Quota => Code::ResourceExhausted,
        ErrorClass::Unavailable => Code::Unavailable,
        ErrorClass::DataLoss => Code::DataLoss,
        ErrorClass::Internal => Code::Internal,
        ErrorClass::Unauthenticated => Code::Unauthenticated,
        ErrorClass::PermissionDenied => Code::PermissionDenied,
    }
}

fn class(status: &Status) -> ErrorClass {
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange => ErrorClass::InvalidArgument,
        Code::NotFound => ErrorClass::NotFound,
        Code::FailedPrecondition | Code::Aborted | Code::Unimplemented | Code::AlreadyExists => {
            ErrorClass::FailedPrecondition
        }
        Code::DeadlineExceeded => ErrorClass::DeadlineExceeded,
        Code::Cancelled if status.message() == "Timeout expired" => ErrorClass::DeadlineExceeded,
        Code::Cancelled => ErrorClass::Cancelled,
        Code::ResourceExhausted => ErrorClass::Overloaded,
        Code::Unavailable => ErrorClass::Unavailable,
        Code::DataLoss => ErrorClass::DataLoss,
        Code::Unauthenticated => ErrorClass::Unauthenticated,
        Code::PermissionDenied => ErrorClass::PermissionDenied,
        Code::Ok | Code::Unknown | Code::Internal => ErrorClass::Internal,
    }
}

/// A failure as gRPC status.
pub fn to_status(failure: &Failure) -> Status {
    let mut status = Status::new(code(failure.class), failure.message.clone());
    let details = Details {
        class: failure.class as u8,
        field: failure.field.clone(),
        limit: failure.limit,
        shard: failure.shard.as_ref().map(ToString::to_string),
        pushback_ms: failure.pushback_ms,
    };
    if let Ok(bytes) = serde_json::to_vec(&details) {
        status.metadata_mut().insert_bin(DETAILS, MetadataValue::from_bytes(&bytes));
    }
    status
}

/// A gRPC status as failure.
pub fn from_status(status: &Status) -> Failure {
    let class = if never_sent(status) { ErrorClass::Unavailable } else { class(status) };
    let mut failure = Failure::new(class, in_words(status));
    let details = status
        .metadata()
        .get_bin(DETAILS)
        .and_then(|value| value.to_bytes().ok())
        .and_then(|bytes| serde_json::from_slice::<Details>(&bytes).ok());
    if let Some(details) = details {
        failure.class = ErrorClass::from_wire(u32::from(details.class));
        failure.field = details.field;
        failure.limit = details.limit;
        failure.shard = details.shard.and_then(|shard| shard.parse().ok());
        failure.pushback_ms = details.pushback_ms;
    }
    failure
}

/// Whether nobody ever worked on the call: its connection ended while it waited for its turn, or the peer said that it
/// would not look at it (it was ending the connection, or refused the stream).
pub fn never_sent(status: &Status) -> bool {
    let unseen = |error: &h2::Error| {
        let ended = error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        ended || error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
    };
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
            || error.downcast_ref().is_some_and(unseen)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message, with the innermost cause where the status has one.
fn in_words(status: &Status) -> String {
    let mut cause = status.source();
    while let Some(deeper) = cause.and_then(Error::source) {
        cause = Some(deeper);
    }
    let message = status.message();
    let cause = cause.map(ToString::to_string).filter(|cause| !message.contains(cause.as_str()));
    cause.map_or_else(|| message.to_owned(), |cause| format!("{message}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    #[derive(Debug, thiserror::Error)]
    #[error("http2 error")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn what_the_transport_says_comes_with_its_cause() {
        let status =
            |cause: &str| Status::from_error(Box::new(Outer(std::io::Error::other(cause.to_owned()))));
        let message = from_status(&status("keep-alive timed out")).message;
        assert!(message.contains("http2 error") && message.ends_with(": keep-alive timed out"), "{message}");
        assert_eq!(from_status(&Status::internal("plain")).message, "plain");
    }

    #[test]
    fn every_class_survives_the_round_trip() {
        for number in 1..=12 {
            let failure = Failure {
                field: Some("k".into()),
                limit: Some(1000),
                pushback_ms: Some(5),
                ..Failure::new(ErrorClass::from_wire(number), "why")
            }
            .with_shard(ShardId::new("main", 3));
            assert_eq!(from_status(&to_status(&failure)), failure);
        }
    }

    #[test]
    fn an_expired_timeout_is_a_deadline_not_a_cancel() {
        let status = Status::cancelled("Timeout expired");
        assert_eq!(from_status(&status).class, ErrorClass::DeadlineExceeded);
    }
}
