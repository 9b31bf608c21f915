//! What a node says of its contact with a service that does one half of its work.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use canopy_common::{clock, rpc::serve_grpc};
use canopy_proto::topology::{
    CommandReply, CommandRequest, JudgedReply, NodeReport, ReportReply, RoutingUpdate, ShowReply,
    ShowRequest, WatchRequest,
    topology_server::{Topology, TopologyServer},
};
use futures::{Stream, StreamExt, stream};
use tonic::{Request, Response, service::Routes};

use super::*;

/// What the service does.
#[derive(Default)]
struct Half {
    /// Its streams are opened, and bring nothing.
    opens: AtomicBool,
    /// It takes reports.
    takes: AtomicBool,
    /// Of its newest snapshot.
    epoch: AtomicU64,
    watched: AtomicU32,
    reports: AtomicU32,
}

type Updates = Pin<Box<dyn Stream<Item = std::result::Result<RoutingUpdate, Status>> + Send>>;
type Answered<T> = std::result::Result<Response<T>, Status>;

#[derive(Clone)]
struct Service(Arc<Half>);

#[tonic::async_trait]
impl Topology for Service {
    type WatchStream = Updates;

    async fn watch(&self, _: Request<WatchRequest>) -> Answered<Updates> {
        self.0.watched.fetch_add(1, Ordering::SeqCst);
        if !self.0.opens.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        Ok(Response::new(stream::pending().boxed()))
    }

    async fn report(&self, _: Request<NodeReport>) -> Answered<ReportReply> {
        self.0.reports.fetch_add(1, Ordering::SeqCst);
        if !self.0.takes.load(Ordering::SeqCst) {
            return Err(Status::failed_precondition("there are too many nodes"));
        }
        let epoch = self.0.epoch.load(Ordering::SeqCst);
        Ok(Response::new(ReportReply { epoch, ..ReportReply::default() }))
    }

    async fn command(&self, _: Request<CommandRequest>) -> Answered<CommandReply> {
        Err(Status::unimplemented("not here"))
    }

    async fn judged(&self, _: Request<JudgedRequest>) -> Answered<JudgedReply> {
        Err(Status::unimplemented("not here"))
    }

    async fn show(&self, _: Request<ShowRequest>) -> Answered<ShowReply> {
        Err(Status::unimplemented("not here"))
    }
}

/// A node and its service.
struct Pair {
    service: Arc<Half>,
    link: Link,
    drain: Drain,
    _state: tempfile::TempDir,
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.drain.start();
    }
}

impl Pair {
    async fn new(opens: bool, takes: bool) -> Self {
        let net = NetIo::tcp();
        let bound = net.bind("127.0.0.1:0").await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let config = TopologyConfig {
            nodes: vec![NodeConfig::at("topology-0", Role::Topology, bound.address.to_string())],
            state_dir: state.path().to_str().unwrap().to_owned(),
            ..TopologyConfig::default()
        };
        let service = Arc::new(Half { opens: opens.into(), takes: takes.into(), ..Half::default() });
        let (drain, rpc) = (Drain::new(), RpcConfig::default());
        let routes = Routes::new(TopologyServer::new(Service(service.clone())));
        tokio::spawn({
            let (drain, rpc) = (drain.clone(), rpc.clone());
            async move { serve_grpc(&rpc, "topology-0", routes, bound, drain).await }
        });
        let node = NodeConfig::at("root-0", Role::Root, "127.0.0.1:1");
        let link = Link::new(&config, node, &rpc, &net).unwrap();
        tokio::spawn(link.clone().run(drain.clone(), Condition::default));
        Self { service, link, drain, _state: state }
    }

    fn reports(&self) -> u32 {
        self.service.reports.load(Ordering::SeqCst)
    }

    fn watched(&self) -> u32 {
        self.service.watched.load(Ordering::SeqCst)
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = clock::System.now_us();
    while !done() {
        assert!(clock::System.now_us() - begun < 60_000_000, "it never comes that {what}");
        tokio::task::yield_now().await;
    }
}

/// Longer than between two reports.
const LONG: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn a_node_whose_watch_hangs_is_cut_off_though_its_reports_are_taken() {
    let pair = Pair::new(false, true).await;
    until("it reports", || pair.reports() > 1).await;
    until("it is cut off", || pair.link.unheard() > LONG).await;
    assert!(pair.reports() > 1 && pair.link.unreported() < pair.link.unheard());
    // The service comes to itself: the next stream is opened.
    pair.service.opens.store(true, Ordering::SeqCst);
    until("it hears", || pair.link.unheard().is_zero()).await;
    assert!(pair.watched() > 1, "one that hangs is given up");
}

#[tokio::test]
async fn a_node_whose_reports_are_refused_is_not_cut_off_while_a_stream_is_open() {
    let pair = Pair::new(true, false).await;
    until("it hears", || pair.link.unheard().is_zero()).await;
    until("its reports are not taken", || pair.link.unreported() > LONG && pair.reports() > 1).await;
    assert_eq!(pair.link.unheard(), Duration::ZERO, "nothing new is no silence");
    assert_eq!(pair.watched(), 1);
    pair.service.takes.store(true, Ordering::SeqCst);
    until("they are", || pair.link.unreported() < LONG).await;
}

#[tokio::test]
async fn a_stream_that_does_not_bring_what_the_service_has_is_dead_and_opened_anew() {
    let pair = Pair::new(true, true).await;
    until("it reports and hears", || pair.reports() > 1 && pair.link.unheard().is_zero()).await;
    let watched = pair.watched();
    pair.service.epoch.store(7, Ordering::SeqCst);
    until("another stream is asked for", || pair.watched() > watched).await;
    assert!(pair.link.unheard() > contact::STUCK);
}
