//! The public gRPC service gives the answer that HTTP gives, with the same refusals, under the caller's own deadline.

use std::time::Duration;

use canopy_common::{
    config::Time,
    error::{ErrorClass, Failure},
    rpc::status::from_status,
};
use canopy_proto::v1::{self, search_client::SearchClient};
use canopy_root::grpc::ERROR_BODY;
use canopy_tests::{
    cluster::{Cluster, Shape},
    faulty_net::Link,
    wait::wait_for,
};
use serde_json::Value;
use tonic::{Request, Status, transport::Channel};

use crate::{
    questions,
    world::{corpus_of, with_world},
};

async fn connect(cluster: &Cluster) -> SearchClient<Channel> {
    let address = format!("http://{}", cluster.node("root-0").address);
    let channel = Channel::from_shared(address).expect("an address").connect().await.expect("a connection");
    SearchClient::new(channel).max_decoding_message_size(64 << 20)
}

fn failure(status: &Status) -> Failure {
    from_status(status)
}

/// Compares what both forms carry.
fn same(grpc: &v1::QueryAnswer, http: &Value) {
    let hits = http["hits"].as_array().expect("hits");
    assert_eq!(grpc.hits.len(), hits.len());
    for (a, b) in grpc.hits.iter().zip(hits) {
        assert_eq!(a.key, b["key"]);
        assert_eq!(a.title, b["title"]);
        assert_eq!(a.snippet, b["snippet"]);
        assert_eq!(a.score.to_bits(), (b["score"].as_f64().unwrap_or(f64::NAN) as f32).to_bits());
        assert_eq!(serde_json::from_str::<Value>(&a.fields_json).expect("JSON"), b["fields"]);
        assert_eq!(
            (&a.shard, a.version, &a.source),
            (
                &b["shard"].as_str().unwrap_or_default().to_owned(),
                b["version"].as_u64().unwrap_or(0),
                &"base".to_owned()
            )
        );
    }
    let total = grpc.total.as_ref().expect("a total");
    assert_eq!(total.value, http["total"]["value"]);
    assert_eq!(total.relation, http["total"]["relation"]);
    assert_eq!(total.lower_bound, http["total"]["lower_bound"]);
    assert_eq!(grpc.facets.len(), http["facets"].as_object().map_or(0, serde_json::Map::len));
    for facet in &grpc.facets {
        let values = http["facets"][&facet.field]["values"].as_array().expect("values");
        assert_eq!(facet.values.len(), values.len());
        for (a, b) in facet.values.iter().zip(values) {
            assert_eq!(
                (a.value.as_str(), a.count, a.error_bound),
                (
                    b["value"].as_str().unwrap_or_default(),
                    b["count"].as_u64().unwrap_or(0),
                    b["error_bound"].as_u64().unwrap_or(9)
                )
            );
        }
    }
    assert_eq!(grpc.next_cursor, http["next_cursor"].as_str().unwrap_or_default());
    let warnings: Vec<&str> = grpc.warnings.iter().map(|warning| warning.code.as_str()).collect();
    let expected: Vec<&str> = http["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|warning| warning["code"].as_str())
        .collect();
    assert_eq!(warnings, expected);
    let (coverage, other) = (grpc.coverage.as_ref().expect("coverage"), &http["coverage"]);
    assert_eq!(coverage.complete, other["complete"]);
    assert_eq!(coverage.documents_total, other["documents"]["total"]);
    assert_eq!(coverage.documents_searched + coverage.documents_pruned, coverage.documents_total);
    assert_eq!(coverage.answered, other["shards"]["answered"]);
    assert_eq!(
        (coverage.fetch_wanted, coverage.fetch_filled),
        (grpc.hits.len() as u32, grpc.hits.len() as u32)
    );
    let version = grpc.version.as_ref().expect("a version");
    assert_eq!((version.wanted, version.min, version.max), (1, 1, 1));
}

#[test]
fn grpc_and_http_give_the_same_answers() {
    with_world(|world| async {
        let mut client = connect(&world.flat).await;
        for question in questions::ask(23, 40, &world.pages) {
            let mut pairs = question.clone();
            pairs.push(("timeout_ms".to_owned(), "60000".to_owned()));
            pairs.push(("explain".to_owned(), "true".to_owned()));
            let request =
                canopy_root::http::params::from_pairs(&corpus_of(8), pairs.clone()).expect("parameters");
            let grpc = client.search(Request::new(request)).await.expect("an answer").into_inner();
            let pairs: Vec<(&str, &str)> =
                pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let http = world.flat.root().search(&corpus_of(8), &pairs).await.ok();
            same(&grpc, &http.json);
            assert_eq!(grpc.deadline_ms, 60_000);
            assert_eq!(grpc.query_id.len(), 32);
        }
    });
}

#[test]
fn refusals_carry_class_field_and_limit() {
    with_world(|world| async {
        let mut client = connect(&world.flat).await;
        let base = v1::QueryRequest { corpus: corpus_of(8), q: "river".into(), ..Default::default() };
        let table = [
            (
                v1::QueryRequest { k: Some(1001), ..base.clone() },
                ErrorClass::InvalidArgument,
                "k",
                Some(1000),
            ),
            (
                v1::QueryRequest { offset: u32::MAX, ..base.clone() },
                ErrorClass::InvalidArgument,
                "offset",
                Some(10_000),
            ),
            (
                v1::QueryRequest { min_coverage: f64::NAN, ..base.clone() },
                ErrorClass::InvalidArgument,
                "min_coverage",
                Some(1),
            ),
            (
                v1::QueryRequest { mode: "vector".into(), ..base.clone() },
                ErrorClass::FailedPrecondition,
                "mode",
                None,
            ),
            (v1::QueryRequest { corpus: "nosuch".into(), ..base.clone() }, ErrorClass::NotFound, "", None),
            (v1::QueryRequest { q: String::new(), ..base.clone() }, ErrorClass::InvalidArgument, "q", None),
            (
                v1::QueryRequest { q: "a ".repeat(5000), ..base.clone() },
                ErrorClass::InvalidArgument,
                "q",
                Some(8192),
            ),
            (
                v1::QueryRequest { cursor: "rubbish".into(), ..base },
                ErrorClass::InvalidArgument,
                "cursor",
                None,
            ),
        ];
        for (request, class, field, limit) in table {
            let status = client.search(Request::new(request)).await.expect_err("a refusal");
            let failure = failure(&status);
            assert_eq!(
                (failure.class, failure.field.as_deref().unwrap_or_default(), failure.limit),
                (class, field, limit),
                "{status:?}"
            );
            let body =
                status.metadata().get_bin(ERROR_BODY).and_then(|body| body.to_bytes().ok()).expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body["error"]["code"], class.code());
        }
    });
}

#[test]
fn the_callers_timeout_is_the_deadline_when_it_is_shorter() {
    with_world(|world| async {
        let name = corpus_of(8);
        let mut config = Shape::two_levels(4, 1).config(&[(&name, 8)]);
        // Nobody finds out that a leaf hangs but by the deadline.
        config.rpc.keepalive_interval = Time::ms(60_000);
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        let mut client = connect(&cluster).await;
        cluster.link("leaf-2", Link::Stalled);
        // The caller's own end of the wire watches the same moment: on a loaded machine it may come first.
        let answer = wait_for("a partial answer in time", Duration::from_mins(2), || {
            let mut request = Request::new(v1::QueryRequest {
                corpus: name.clone(),
                q: "river".into(),
                completion: "all".into(),
                timeout_ms: 60_000,
                ..Default::default()
            });
            request.set_timeout(Duration::from_secs(3));
            let mut client = client.clone();
            async move { client.search(request).await.ok() }
        })
        .await
        .into_inner();
        assert!(answer.deadline_ms <= 3000 && answer.deadline_ms >= 2900, "{}", answer.deadline_ms);
        assert_eq!(answer.coverage.as_ref().map(|coverage| coverage.timed_out), Some(2));
        assert!(answer.took_ms < 30_000.0, "{}", answer.took_ms);
        for leaf in 0..4 {
            cluster.link(&format!("leaf-{leaf}"), Link::Stalled);
        }
        let request =
            v1::QueryRequest { corpus: name, q: "river".into(), timeout_ms: 2000, ..Default::default() };
        let status = client.search(Request::new(request)).await.expect_err("nothing answered");
        assert_eq!(failure(&status).class, ErrorClass::DeadlineExceeded, "{status:?}");
        let body =
            status.metadata().get_bin(ERROR_BODY).and_then(|body| body.to_bytes().ok()).expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["coverage"]["documents"]["searched"], 0);
        assert_eq!(body["coverage"]["shards"]["timed_out"], 8);
        cluster.stop().await;
    });
}

#[test]
fn health_is_served_over_grpc_by_every_role() {
    with_world(|world| async {
        for (id, service) in [
            ("root-0", "canopy.search.v1.Search"),
            ("aggregator-0", "canopy.search.v1.SearchNode"),
            ("leaf-0", "canopy.search.v1.SearchNode"),
        ] {
            let address = format!("http://{}", world.deep.node(id).address);
            let channel =
                Channel::from_shared(address).expect("an address").connect().await.expect("a connection");
            let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
            for service in ["", service] {
                let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
                let status =
                    client.check(request).await.unwrap_or_else(|status| panic!("{id} {service}: {status:?}"));
                assert_eq!(status.into_inner().status, 1, "{id} {service}");
            }
        }
    });
}
