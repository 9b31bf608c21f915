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

    use canopy_common::{error::ErrorClass, rpc::status::from_status};
    use canopy_proto::v1::search_server::Search;

    use crate::{
        config::RootConfig,
        fixture::{Mood, tree},
    };

    fn ask(change: impl FnOnce(&mut QueryRequest)) -> Request<QueryRequest> {
        let mut request = QueryRequest { corpus: "web".into(), q: "rust".into(), ..Default::default() };
        change(&mut request);
        Request::new(request)
    }

    #[tokio::test(start_paused = true)]
    async fn the_service_answers_and_refuses_as_http_does() {
        let tree = tree(2, 10, RootConfig::default());
        let service = SearchService(tree.root.clone());
        let answer = service.search(ask(|r| r.k = Some(3))).await.unwrap().into_inner();
        assert_eq!((answer.hits.len(), answer.coverage.unwrap().documents_searched), (3, 20));
        let status = service.search(ask(|r| r.k = Some(5000))).await.unwrap_err();
        let failure = from_status(&status);
        assert_eq!((failure.class, failure.field.as_deref()), (ErrorClass::InvalidArgument, Some("k")));
        let status = service.search(ask(|r| r.corpus = "news".into())).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn the_callers_timeout_is_the_deadline_of_the_whole_tree() {
        let tree = tree(2, 10, RootConfig::default());
        let service = SearchService(tree.root.clone());
        for leaf in &tree.leaves {
            *leaf.search.lock() = Mood::Hangs;
        }
        let mut request = ask(|r| r.timeout_ms = 10_000);
        request.metadata_mut().insert("grpc-timeout", "100m".parse().unwrap());
        let start = Instant::now();
        let status = service.search(request).await.unwrap_err();
        assert!(start.elapsed() <= Duration::from_millis(100), "{:?}", start.elapsed());
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        let body = status.metadata().get_bin(ERROR_BODY).unwrap().to_bytes().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["coverage"]["documents"]["ratio"], 0.0);
        // Without a header the default holds.
        let start = Instant::now();
        let _none = service.search(ask(|_| ())).await.unwrap_err();
        assert!(start.elapsed() <= Duration::from_millis(355), "{:?}", start.elapsed());
    }

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
