//! A whole leaf over the wire, and what its pages say of it.

use std::time::Duration;

use canopy_common::{
    clock::Manual,
    ids::ShardId,
    net::NetIo,
    rng::Dice,
    rpc::{RpcConfig, channel},
    telemetry::Telemetry,
};
use canopy_proto::SearchNode;
use canopy_proto::client::NodeClient;
use canopy_topology::routing::RoutingSnapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::*;
use crate::{
    fixture::{self, Built, context, outcomes, pages},
    reply::outcome_word,
};

const LONG: Duration = Duration::from_mins(2);

struct Running {
    grpc: String,
    admin: String,
    net: NetIo,
    drain: Drain,
    task: tokio::task::JoinHandle<Result<()>>,
}

async fn start(built: &Built, routing: RoutingSnapshot) -> Running {
    let net = NetIo::tcp();
    let grpc = net.bind("127.0.0.1:0").await.unwrap();
    let admin = net.bind("127.0.0.1:0").await.unwrap();
    let (grpc_at, admin_at) = (grpc.address.to_string(), admin.address.to_string());
    let leaf = LeafServe {
        node: NodeId::from("leaf-1"),
        config: fixture::config(2, 16),
        rpc: RpcConfig::default(),
        store: built.store.clone(),
        membership: routing.into(),
        grpc,
        admin: Some(admin),
        ingest: Vec::new(),
    };
    let deps = Deps {
        net: net.clone(),
        clock: Arc::new(Manual::default()),
        dice: Dice::seeded(1),
        telemetry: Telemetry::default(),
    };
    let drain = Drain::new();
    let task = tokio::spawn(serve(leaf, deps, drain.clone()));
    Running { grpc: grpc_at, admin: admin_at, net, drain, task }
}

impl Running {
    async fn get(&self, path: &str) -> (u16, String) {
        let mut io = self.net.connect(&self.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    async fn wait_ready(&self) {
        let start = tokio::time::Instant::now();
        loop {
            let (status, body) = self.get("/healthz/ready").await;
            if status == 200 {
                return;
            }
            assert!(start.elapsed() < LONG, "not ready: {body}");
        }
    }

    fn channel(&self) -> canopy_common::rpc::ClientChannel {
        channel(&RpcConfig::default(), &self.net, &self.grpc).unwrap()
    }

    async fn serving(&self) -> ServingStatus {
        let service = "canopy.search.v1.SearchNode".to_owned();
        let reply = HealthClient::new(self.channel()).check(HealthCheckRequest { service }).await;
        reply.map_or(ServingStatus::ServiceUnknown, |reply| reply.into_inner().status())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_answers_over_the_wire_tells_its_state_and_leaves() {
    let built = Built::new(&pages(30), 2).await;
    let leaf = start(&built, built.routing()).await;
    leaf.wait_ready().await;
    assert_eq!(leaf.get("/healthz/startup").await.0, 200);
    let client = NodeClient::new(leaf.channel(), 1 << 20);
    let mut request = built.request("fox");
    request.query_id = vec![1; 16].into();
    let replies = outcomes(client.search(context(1, LONG), request.clone()), 2).await;
    assert!(replies.iter().all(|reply| outcome_word(reply) == "answered"));
    let status: serde_json::Value = serde_json::from_str(&leaf.get("/status").await.1).unwrap();
    assert_eq!((&status["role"], &status["node"]), (&"leaf".into(), &"leaf-1".into()));
    assert_eq!(status["shards"].as_array().unwrap().len(), 2);
    assert_eq!(status["shards"][0]["state"], "serving");
    let metrics = leaf.get("/metrics").await.1;
    assert!(metrics.contains("canopy_leaf_outcomes_total{outcome=\"answered\"} 2"), "{metrics}");
    let start = tokio::time::Instant::now();
    while leaf.serving().await != ServingStatus::Serving {
        assert!(start.elapsed() < LONG);
    }
    leaf.drain.start();
    leaf.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_without_a_shard_that_answers_is_live_but_not_ready() {
    let built = Built::new(&pages(10), 1).await;
    for entry in &built.manifest.shards[0].files {
        std::fs::remove_file(built.version_dir().join(&entry.path)).unwrap();
    }
    let leaf = start(&built, built.routing()).await;
    let begun = tokio::time::Instant::now();
    while leaf.get("/healthz/startup").await.0 != 200 {
        assert!(begun.elapsed() < LONG);
    }
    let (status, why) = leaf.get("/healthz/ready").await;
    assert!(status == 503 && (why.contains("no shard serves") || why.contains("opening")), "{why}");
    assert_eq!(leaf.get("/healthz/live").await.0, 200);
    // Nobody says so before the first look.
    while leaf.serving().await != ServingStatus::NotServing {
        assert!(begun.elapsed() < LONG);
    }
    leaf.drain.start();
    leaf.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_leaf_that_should_hold_nothing_is_ready_and_an_unknown_one_is_refused() {
    let built = Built::new(&pages(3), 1).await;
    let mut routing = built.routing();
    routing.corpora.clear();
    let leaf = start(&built, routing.clone()).await;
    leaf.wait_ready().await;
    assert_eq!(leaf.get("/healthz/startup").await.0, 200);
    let status: serde_json::Value = serde_json::from_str(&leaf.get("/status").await.1).unwrap();
    assert_eq!((&status["shards"], &status["lacking"]), (&serde_json::json!([]), &serde_json::json!([])));
    let running = leaf.drain.busy();
    leaf.drain.start();
    assert_eq!(leaf.get("/healthz/ready").await, (503, "draining\n".into()));
    drop(running);
    leaf.task.await.unwrap().unwrap();
    // Nobody has said yet what it should hold.
    let leaf = start(&built, canopy_topology::routing::RoutingSnapshot::default()).await;
    let (status, why) = leaf.get("/healthz/ready").await;
    assert!(status == 503 && why.contains("not known yet what this leaf should hold"), "{why}");
    assert_eq!(leaf.get("/healthz/startup").await.0, 503);
    leaf.drain.start();
    leaf.task.await.unwrap().unwrap();
    routing.nodes.clear();
    let refused = start(&built, routing).await.task.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("leaf-1 is not a node of the topology"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_that_lacks_one_shard_answers_of_the_others_and_says_so() {
    let built = Built::new(&pages(10), 1).await;
    let mut routing = built.routing();
    let corpus = routing.corpora.get_mut(fixture::CORPUS).unwrap();
    corpus.shards.insert(canopy_common::ids::ShardId::new("main", 7), vec!["leaf-1".into()].into());
    let leaf = start(&built, routing).await;
    leaf.wait_ready().await;
    let status: serde_json::Value = serde_json::from_str(&leaf.get("/status").await.1).unwrap();
    let lacking = status["lacking"].as_array().unwrap();
    assert_eq!((lacking.len(), &lacking[0]["shard"]), (1, &"main/7".into()), "{lacking:?}");
    assert_eq!(lacking[0]["state"], "failed");
    assert!(lacking[0]["last_error"].as_str().unwrap().contains("has no shard main/7"), "{lacking:?}");
    leaf.drain.start();
    leaf.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_threads_make_a_leaf_unready() {
    let built = Built::new(&pages(6), 1).await;
    let gate = fixture::Gate::default();
    let parts = fixture::parts(fixture::config(1, 16), gate.search());
    built.open_on(&parts).await;
    let health = LeafHealth::new(parts.clone());
    assert_eq!(health.ready().await, Ok(()));
    let node = LeafNode::new(parts.clone());
    let _stuck = node.search(context(1, LONG), fixture::request(1));
    gate.arrival().await;
    // The last result is fresh for a second; a new check finds the threads stuck.
    let checked = LeafHealth::new(parts.clone()).ready().await;
    assert_eq!(checked, Err("the search threads are stuck".to_owned()));
    gate.open(1);
    assert!(health.started());
    let lines = parts.shards.board.lines(fixture::CORPUS, &ShardId::new("main", 0));
    assert_eq!(lines[0].state, State::Serving);
}
