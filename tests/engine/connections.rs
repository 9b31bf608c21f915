//! Connections between nodes, over real sockets: a host that stands still is noticed and comes back by itself, and a
//! connection that has grown old ends without a failed query.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use canopy_aggregator::{
    config::GatherConfig,
    endpoints::{EndpointSet, Endpoints},
    gather::Gatherer,
};
use canopy_common::{
    config::Time,
    deadline::Deadline,
    drain::Drain,
    error::{ErrorClass, Failure},
    ids::AttemptId,
    net::NetIo,
    request::RequestContext,
    rng::Dice,
    rpc::{self, RpcConfig},
};
use canopy_tests::{
    faulty_net::{Link, Links},
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::ModelLeaf,
    model_tree::{Shape, deps, topology},
};
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use futures::StreamExt;
use tokio::time::Instant;

/// One leaf behind a socket.
struct Served {
    corpus: Arc<ModelCorpus>,
    routing: Arc<RoutingSnapshot>,
    address: String,
    accepted: Arc<AtomicUsize>,
    dice: Dice,
}

async fn served(config: &RpcConfig) -> Served {
    let corpus = Arc::new(ModelCorpus::even(3, 2, 20));
    let shape = Shape { leaves: 1, replicas: 1, ..Shape::default() };
    let mut topology = topology(&corpus, &shape);
    let mut bound = NetIo::tcp().bind("127.0.0.1:0").await.expect("a port");
    let address = bound.address.to_string();
    topology.nodes[1].address.clone_from(&address);
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = accepted.clone();
    bound.incoming = bound
        .incoming
        .inspect(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        })
        .boxed();
    let leaf = Arc::new(ModelLeaf::new("leaf-0", corpus.clone()));
    let routes = tonic::service::Routes::new(canopy_proto::server::service(leaf, 1 << 20));
    let config = config.clone();
    tokio::spawn(async move { rpc::serve_grpc(&config, "leaf-0", routes, bound, Drain::new()).await });
    let routing = Arc::new(RoutingSnapshot::from_static(&topology).expect("a sound topology"));
    Served { corpus, routing, address, accepted, dice: Dice::seeded(3) }
}

impl Served {
    fn context(&self, budget: Duration) -> RequestContext {
        RequestContext::new(self.dice.query_id(), AttemptId(1), Deadline::after(budget))
    }

    /// Asks the leaf; its first word and how long that took.
    async fn ask(&self, set: &EndpointSet, budget: Duration) -> (Result<(), Failure>, Duration) {
        let context = self.context(budget);
        let request = self.corpus.request(context.query, 5);
        let began = Instant::now();
        let reply = set.get(&"leaf-0".into()).expect("known").search(context, request).next().await;
        (reply.expect("a word").map(drop), began.elapsed())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_grow_old_end_without_a_failed_query() {
    let config = RpcConfig { max_connection_age: Time::ms(60), ..RpcConfig::default() };
    let served = served(&config).await;
    let set = Arc::new(EndpointSet::new(RpcConfig::default(), NetIo::tcp(), &served.routing));
    let engine = Arc::new(Gatherer::new("root".into(), Role::Root, set, GatherConfig::default(), &deps(2)));
    // Long enough for this many connections to grow old, whatever the machine does meanwhile.
    let (most, begun) = (20, Instant::now());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (engine, routing, corpus) = (engine.clone(), served.routing.clone(), served.corpus.clone());
        let (dice, accepted) = (served.dice.clone(), served.accepted.clone());
        asking.spawn(async move {
            let (mut whole, mut retries, mut lost) = (0, 0, Vec::new());
            while accepted.load(Ordering::SeqCst) < most || begun.elapsed() < Duration::from_secs(2) {
                assert!(begun.elapsed() < Duration::from_mins(2), "connections do not end");
                let context = RequestContext::new(
                    dice.query_id(),
                    AttemptId(0),
                    Deadline::after(Duration::from_secs(20)),
                );
                let request = corpus.request(context.query, 5);
                let gathered = engine.search(&context, &routing, Arc::new(request.clone())).await;
                retries += gathered.tail.retries;
                if check(&corpus, &request, &gathered).complete() {
                    whole += 1;
                } else {
                    lost.push(gathered.shards[0].reason.clone());
                }
            }
            (whole, retries, lost)
        });
    }
    let all = asking.join_all().await;
    let connections = served.accepted.load(Ordering::SeqCst);
    let whole: u32 = all.iter().map(|all| all.0).sum();
    let lost: Vec<&String> = all.iter().flat_map(|all| &all.2).collect();
    println!("{whole} queries over {connections} connections, {} lost", lost.len());
    assert!(lost.is_empty(), "{} of {whole}: {:?}", lost.len(), lost.first());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stands_still_is_known_dead_long_before_the_deadline_and_back_by_itself() {
    let served = served(&RpcConfig::default()).await;
    let links = Links::default();
    let set = EndpointSet::new(RpcConfig::default(), links.net(), &served.routing);
    let minute = Duration::from_mins(1);
    served.ask(&set, minute).await.0.expect("it is well");
    links.set(&served.address, Link::Stalled);
    let (failure, took) = served.ask(&set, minute).await;
    println!("a call on a connection that stands still failed after {took:?}: {failure:?}");
    assert!(took <= minute / 2, "{took:?}");
    assert_ne!(failure.unwrap_err().class, ErrorClass::DeadlineExceeded);
    // Its kernel still accepts: a new connection looks sound, and says nothing.
    let (failure, took) = served.ask(&set, minute).await;
    println!("a call on a new connection to it failed after {took:?}: {failure:?}");
    assert!(took <= minute / 2 && failure.is_err(), "{took:?}");
    links.set(&served.address, Link::Open);
    let began = Instant::now();
    while served.ask(&set, minute).await.0.is_err() {
        assert!(began.elapsed() < minute, "it does not come back");
    }
    println!("answered again {:?} after it went on", began.elapsed());
}

#[tokio::test]
async fn a_list_of_nodes_that_grows_empties_and_moves_is_followed() {
    let (first, second) = (served(&RpcConfig::default()).await, served(&RpcConfig::default()).await);
    let set = EndpointSet::new(RpcConfig::default(), NetIo::tcp(), &first.routing);
    let budget = Duration::from_mins(1);
    first.ask(&set, budget).await.0.expect("an answer");
    set.update(&RoutingSnapshot::default());
    assert!(set.get(&"leaf-0".into()).is_none());
    // Refilled, under the same name at another address.
    set.update(&second.routing);
    second.ask(&set, budget).await.0.expect("an answer");
    assert_eq!(second.accepted.load(Ordering::SeqCst), 1);
}
