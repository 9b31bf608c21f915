//! An aggregator as a process serves it, over real sockets: gRPC, health, status, and a gentle end.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::{
    AggregatorServe,
    config::{AggregatorConfig, GatherConfig},
    endpoints::{EndpointSet, Endpoints},
    gather::{Decision, Gatherer},
};
use canopy_common::{
    deadline::Deadline,
    drain::Drain,
    error::ErrorClass,
    ids::AttemptId,
    net::NetIo,
    request::RequestContext,
    rpc::{self, RpcConfig},
};
use canopy_proto::v1;
use canopy_tests::{
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::ModelLeaf,
    model_tree::{Shape, deps, topology},
    wait::wait_for,
};
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A tree of two leaves and one aggregator on loopback.
struct Served {
    routing: Arc<RoutingSnapshot>,
    corpus: Arc<ModelCorpus>,
    leaves: Vec<Drain>,
    aggregator: Drain,
    admin: String,
    ended: tokio::task::JoinHandle<canopy_aggregator::Result<()>>,
}

async fn served(max_in_flight: u32) -> Served {
    let corpus = Arc::new(ModelCorpus::even(3, 6, 20));
    let shape = Shape { leaves: 2, aggregators: 1, ..Shape::default() };
    let mut topology = topology(&corpus, &shape);
    let mut leaves = Vec::new();
    let bind = async || NetIo::tcp().bind("127.0.0.1:0").await.expect("a port");
    for number in 0..2 {
        let bound = bind().await;
        topology.nodes[1 + number].address = bound.address.to_string();
        let leaf = Arc::new(ModelLeaf::new(&format!("leaf-{number}"), corpus.clone()));
        let routes = tonic::service::Routes::new(canopy_proto::server::service(leaf, 1 << 20));
        let drain = Drain::new();
        leaves.push(drain.clone());
        let name = format!("leaf-{number}");
        tokio::spawn(
            async move { rpc::serve_grpc(&RpcConfig::default(), &name, routes, bound, drain).await },
        );
    }
    let (grpc, admin) = (bind().await, bind().await);
    topology.nodes[3].address = grpc.address.to_string();
    let admin_address = admin.address.to_string();
    let routing = Arc::new(RoutingSnapshot::from_static(&topology).expect("a sound topology"));
    let serve = AggregatorServe {
        node: "agg-0".into(),
        config: AggregatorConfig { max_in_flight, ..Default::default() },
        gather: GatherConfig::default().into(),
        rpc: RpcConfig::default(),
        membership: routing.clone().into(),
        grpc,
        admin: Some(admin),
    };
    let aggregator = Drain::new();
    let ended = tokio::spawn(canopy_aggregator::serve(serve, deps(1), aggregator.clone()));
    Served { routing, corpus, leaves, aggregator, admin: admin_address, ended }
}

impl Served {
    fn endpoints(&self) -> Arc<EndpointSet> {
        Arc::new(EndpointSet::new(RpcConfig::default(), NetIo::tcp(), &self.routing))
    }

    /// Status line and body of an admin page.
    async fn page(&self, path: &str) -> (u16, String) {
        let mut io = NetIo::tcp().connect(&self.admin).await.expect("the admin port");
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        io.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head[9..12].parse().expect("a status"), body.to_owned())
    }
}

fn context() -> RequestContext {
    let query = canopy_common::ids::QueryId([9; 16]);
    RequestContext::new(query, AttemptId(3), Deadline::after(Duration::from_mins(1)))
}

#[tokio::test]
async fn it_answers_over_sockets_reports_itself_and_leaves_gently() {
    let served = served(100).await;
    let context = context();
    let request = v1::SearchRequest { level: 1, attempt_id: 3, ..served.corpus.request(context.query, 10) };
    let aggregator = served.endpoints().get(&"agg-0".into()).expect("known");
    let replies: Vec<_> = aggregator.search(context.clone(), request.clone()).collect().await;
    let shards: usize = replies.iter().map(|reply| reply.as_ref().unwrap().shards.len()).sum();
    assert_eq!(shards, 6);
    let attempts: u32 = replies.iter().map(|reply| reply.as_ref().unwrap().tail.unwrap().attempts).sum();
    assert_eq!(attempts, 1, "both leaves hold the same shards: one branch");
    assert_eq!(replies[0].as_ref().unwrap().call.as_ref().unwrap().node, "agg-0");

    // The engine of a root over the same sockets.
    let engine =
        Gatherer::new("root".into(), Role::Root, served.endpoints(), GatherConfig::default(), &deps(2));
    let gathered = Arc::new(engine).search(&context, &served.routing, Arc::new(request.clone())).await;
    assert_eq!(gathered.decision, Some(Decision::All));
    assert!(check(&served.corpus, &request, &gathered).complete());

    assert_eq!(served.page("/healthz/startup").await.0, 200);
    assert_eq!(served.page("/healthz/ready").await.0, 200);
    let status: serde_json::Value = serde_json::from_str(&served.page("/status").await.1).unwrap();
    assert_eq!((&status["role"], &status["leaves"]), (&"aggregator".into(), &2.into()));
    let metrics = served.page("/metrics").await.1;
    assert!(metrics.contains("canopy_aggregator_shards_total{outcome=\"answered\"} 6"), "{metrics}");

    served.aggregator.start();
    let ended = tokio::time::timeout(Duration::from_secs(10), served.ended).await;
    assert!(ended.expect("it ends").expect("no panic").is_ok());
}

#[tokio::test]
async fn it_is_ready_while_any_leaf_answers_and_not_without_one() {
    let served = served(100).await;
    assert_eq!(served.page("/healthz/ready").await.0, 200);
    served.leaves[0].start();
    assert_eq!(served.page("/healthz/ready").await.0, 200);
    served.leaves[1].start();
    // Who leaves tells its callers, over the wire.
    let why = wait_for("an aggregator that is not ready", Duration::from_mins(1), || async {
        let (status, why) = served.page("/healthz/ready").await;
        (status == 503).then_some(why)
    })
    .await;
    assert!(why.contains("leaf-") && why.contains("UNAVAILABLE"), "{why}");
    assert_eq!(served.page("/healthz/live").await.0, 200);
}

#[tokio::test]
async fn above_its_limit_it_refuses_at_once_and_says_for_how_long() {
    let served = served(0).await;
    let context = context();
    let request = v1::SearchRequest { level: 1, ..served.corpus.request(context.query, 10) };
    let aggregator = served.endpoints().get(&"agg-0".into()).expect("known");
    let replies: Vec<_> = aggregator.search(context, request).collect().await;
    let refusal = replies[0].as_ref().unwrap_err();
    assert_eq!(refusal.class, ErrorClass::Overloaded);
    assert!(refusal.pushback_ms.is_some());
}

#[tokio::test]
async fn a_node_of_another_role_does_not_serve() {
    let corpus = ModelCorpus::even(1, 1, 1);
    let routing = RoutingSnapshot::from_static(&topology(&corpus, &Shape::default())).unwrap();
    let serve = AggregatorServe {
        node: "leaf-0".into(),
        config: AggregatorConfig::default(),
        gather: GatherConfig::default().into(),
        rpc: RpcConfig::default(),
        membership: routing.into(),
        grpc: NetIo::tcp().bind("127.0.0.1:0").await.unwrap(),
        admin: None,
    };
    let refused = canopy_aggregator::serve(serve, deps(1), Drain::new()).await.unwrap_err();
    assert!(refused.to_string().contains("\"leaf-0\" is not an aggregator"), "{refused}");
}
