//! The public gRPC service: the same call as HTTP, with typed fields. The caller's `grpc-timeout` counts beside
//! `timeout_ms`; whichever is shorter is the deadline, so that the tree stops when the caller does.
//!
//! Errors carry the failure's details in metadata; one with a coverage carries the JSON body of the HTTP error too.

use std::{sync::Arc, time::Duration};

use canopy_common::{rpc::status::to_status, telemetry::trace};
use canopy_proto::v1::{QueryAnswer, QueryRequest, search_server};
use tokio::time::Instant;
use tonic::{Request, Response, Status, metadata::MetadataValue};
use tracing::Instrument;

use crate::{
    error::Error,
    http::reply,
    search::{Asked, Root},
};

/// Metadata key of the HTTP error body.
pub const ERROR_BODY: &str = "canopy-error-bin";
/// The answer leaves this long before the transport would cut it off.
const MARGIN: Duration = Duration::from_millis(3);

/// Answers queries over gRPC.
pub struct SearchService(pub Arc<Root>);

#[tonic::async_trait]
impl search_server::Search for SearchService {
    async fn search(&self, request: Request<QueryRequest>) -> Result<Response<QueryAnswer>, Status> {
        let arrival = Instant::now();
        let limit = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
        let limit = limit.and_then(grpc_timeout).map(|limit| limit.saturating_sub(MARGIN.min(limit / 10)));
        let query = self.0.dice.query_id();
        let parent = request.extensions().get::<trace::Parent>().cloned().unwrap_or_default();
        let asked = Asked { query, arrival, limit, request: request.into_inner() };
        let span = tracing::info_span!("query", %query, corpus = asked.request.corpus);
        parent.adopt(&span);
        let result = self.0.search(&asked).instrument(span).await;
        result.map(|answer| Response::new(answer.into())).map_err(|error| status(&query.to_string(), &error))
    }
}

fn status(query_id: &str, error: &Error) -> Status {
    let mut status = to_status(&error.failure());
    let body = reply::error_body(query_id, error).to_string();
    status.metadata_mut().insert_bin(ERROR_BODY, MetadataValue::from_bytes(body.as_bytes()));
    status
}

/// `100m`, `2S`: at most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_timeout_is_read_as_the_protocol_writes_it() {
        assert_eq!(grpc_timeout("100m"), Some(Duration::from_millis(100)));
        assert_eq!(grpc_timeout("2S"), Some(Duration::from_secs(2)));
        assert_eq!(grpc_timeout("2H").map(|limit| limit.as_secs()), Some(7200));
        for bad in ["", "m", "100", "-1m", "999999999m", "1é", "é"] {
            assert_eq!(grpc_timeout(bad), None, "{bad}");
        }
    }
}
