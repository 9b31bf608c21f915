//! Tests of `serve`: what its module comment promises.

use canopy_common::{clock, rng::Dice, telemetry::Telemetry};
use canopy_format::store::{Corpus, Ordering};
use canopy_proto::v1::{QueryRequest, search_client::SearchClient};
use canopy_topology::config::{NodeConfig, Placement, TopologyConfig};
use object_store::ObjectStoreExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use canopy_topology::routing::RoutingSnapshot;

use super::*;
use crate::fixture;
use canopy_common::net::NetIo;

/// One leaf that nobody runs.
fn routing() -> Membership {
    let leaf = NodeConfig::at("leaf-0", Role::Leaf, "127.0.0.1:1");
    let placement = Placement {
        corpus: "web".into(),
        shards: vec!["main/0".into(), "main/1".into()],
        replicas: vec!["leaf-0".into()],
        version: 0,
    };
    let config =
        TopologyConfig { nodes: vec![leaf], placements: vec![placement], ..TopologyConfig::default() };
    RoutingSnapshot::from_static(&config).unwrap().into()
}

async fn store(dir: &std::path::Path) -> VersionStore {
    let store = VersionStore::open(dir.to_str().unwrap(), false).unwrap();
    let path = dir.join("terms.fst");
    let manifest = fixture::manifest(&path, 2, 10);
    let schema = manifest.schema.clone();
    let corpus = Corpus { name: "web".into(), schema, partitions: 1, ordering: Ordering::Log };
    store.create_corpus(&corpus).await.unwrap();
    let version = VersionStore::version_path("web", manifest.version);
    for (file, bytes) in [
        (manifest.statistics.file.path.as_str(), std::fs::read(&path).unwrap()),
        ("manifest.json", manifest.to_json()),
    ] {
        store.objects().put(&format!("{version}/{file}").into(), bytes.into()).await.unwrap();
    }
    store
}

async fn get(net: &NetIo, address: &str, path: &str) -> String {
    let mut io = net.connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: root\r\nconnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_whole_root_over_tcp_starts_answers_and_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let net = NetIo::tcp();
    let (http, grpc) = (net.bind("127.0.0.1:0").await.unwrap(), net.bind("127.0.0.1:0").await.unwrap());
    let (web, calls) = (http.address.to_string(), grpc.address.to_string());
    let deps = Deps {
        net: net.clone(),
        clock: Arc::new(clock::System),
        dice: Dice::seeded(1),
        telemetry: Telemetry::default(),
    };
    let rpc = RpcConfig::default();
    let parts = RootServe {
        node: NodeId::from("root-0"),
        config: RootConfig::default(),
        gather: GatherConfig::default().into(),
        query_log: QueryLogConfig::default().into(),
        rpc: rpc.clone(),
        store: store(dir.path()).await,
        membership: routing(),
        http,
        grpc: Some(grpc),
    };
    let drain = Drain::new();
    let serving = tokio::spawn(serve(parts, deps, drain.clone()));

    let opened = async {
        while !get(&net, &web, "/healthz/startup").await.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), opened).await.expect("the version is not opened");
    let ready = get(&net, &web, "/healthz/ready").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "no leaf runs: {ready}");
    let answer = get(&net, &web, "/v1/web/search?q=rust&timeout_ms=30000").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("x-canopy-coverage: 0/20"), "{answer}");

    let channel = canopy_common::rpc::channel(&rpc, &net, &calls).unwrap();
    let (corpus, q) = ("web".into(), "rust".into());
    let request = QueryRequest { corpus, q, timeout_ms: 30_000, ..Default::default() };
    let status = SearchClient::new(channel.clone()).search(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    let service = "canopy.search.v1.Search".to_owned();
    let health = HealthClient::new(channel).check(HealthCheckRequest { service }).await.unwrap();
    assert_eq!(health.into_inner().status, ServingStatus::NotServing as i32);

    drain.start();
    let ended = tokio::time::timeout(Duration::from_secs(30), serving).await.expect("the root stays");
    ended.unwrap().unwrap();
}
