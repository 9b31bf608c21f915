//! One trace from the caller's header through every hop to the blocking search of a shard, and only for queries whose
//! caller asks for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use canopy_common::{net::NetIo, telemetry::subscriber};
use canopy_tests::{api::path, wait::wait_for};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use parking_lot::Mutex;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

use crate::world::{corpus_of, with_world};

/// Keeps spans in memory.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

async fn send(address: &str, path: &str, traceparent: &str) {
    let io = NetIo::tcp().connect(address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(io)).await.expect("a handshake");
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", address).header("traceparent", traceparent);
    let response = sender
        .send_request(request.body(Empty::<bytes::Bytes>::new()).expect("a request"))
        .await
        .expect("an answer");
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.expect("a body");
}

fn by_id(spans: &[SpanData]) -> BTreeMap<String, &SpanData> {
    spans.iter().map(|span| (span.span_context.span_id().to_string(), span)).collect()
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

#[test]
fn one_trace_goes_through_every_hop_to_the_search_threads() {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build();
    tracing_subscriber::registry()
        .with(subscriber::traces(&provider))
        .try_init()
        .expect("the first subscriber");
    with_world(|world| async {
        let path = path(&corpus_of(8), &[("q", "river"), ("timeout_ms", "60000")]);
        let address = world.deep.root().address();
        send(address, &path, &format!("00-{TRACE}-{CALLER}-00")).await;
        send(address, &path, &format!("00-{TRACE}-{CALLER}-01")).await;
        let wanted = ["query", "attempt", "node", "aggregate", "leaf_search", "shard", "leaf_fetch"];
        let spans = wait_for("spans of every hop", Duration::from_mins(1), || async {
            let spans = kept.0.lock().clone();
            let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_ref()).collect();
            let whole = spans.iter().filter(|span| span.name == "shard").count() >= 8;
            // A span comes when it ends, and what serves a call may end after whoever made it.
            let (by_id, caller) = (by_id(&spans), CALLER.to_owned());
            let parents: BTreeSet<String> =
                spans.iter().map(|span| span.parent_span_id.to_string()).collect();
            let all = parents.iter().all(|parent| *parent == caller || by_id.contains_key(parent));
            (whole && all && wanted.iter().all(|name| names.contains(name))).then_some(spans.clone())
        })
        .await;
        assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == TRACE));
        let by_id = by_id(&spans);
        let queries: Vec<&SpanData> = spans.iter().filter(|span| span.name == "query").collect();
        assert_eq!(queries.len(), 1, "a query that its caller does not trace leaves no span");
        // Up from a shard's search: leaf, wire, aggregator, wire, root, caller.
        let shard = spans.iter().find(|span| span.name == "shard").expect("found above");
        let (mut chain, mut at) = (vec![shard.name.to_string()], shard);
        while let Some(parent) = by_id.get(&at.parent_span_id.to_string()) {
            chain.push(parent.name.to_string());
            at = parent;
        }
        assert_eq!(at.parent_span_id.to_string(), CALLER, "{chain:?}");
        assert_eq!(
            chain,
            ["shard", "leaf_search", "node", "attempt", "aggregate", "node", "attempt", "query"]
        );
        let foreign: Vec<&SpanData> =
            spans.iter().filter(|span| !span.instrumentation_scope.name().starts_with("canopy")).collect();
        assert!(foreign.is_empty(), "{foreign:?}");
    });
}
