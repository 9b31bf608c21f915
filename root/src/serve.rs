//! A root from its parts: opens the versions, answers on its listeners at once (the health pages say what is still
//! missing), and leaves gently.

use std::{path::Path, sync::Arc, time::Duration};

use canopy_aggregator::{config::GatherConfig, endpoints::EndpointSet, gather::Gatherer};
use canopy_common::{
    admin::{AdminPages, Health},
    config::Live,
    deps::Deps,
    drain::Drain,
    ids::{NodeId, Version},
    limit::{Admission, Bounds, Gate},
    net::Bound,
    rpc::{self, RpcConfig},
};
use canopy_format::{analysis::Analyzer, store::VersionStore};
use canopy_proto::v1::search_server::SearchServer;
use canopy_topology::{
    config::Role,
    link::{Condition, Holding, Progress},
    membership::Membership,
    routing::{Routing, RoutingSnapshot},
};

use crate::{
    canary::Canary,
    config::RootConfig,
    error::{Error, Result},
    grpc::SearchService,
    health::RootHealth,
    http::{self, App},
    incidents::Incidents,
    judging,
    ladder::Degradation,
    language::Reader,
    metrics::Metrics,
    query_log::{QueryLog, QueryLogConfig},
    search::Root,
    trial::Trials,
    versions::{self, Opening, Versions},
};

/// What a root is made from.
pub struct RootServe {
    /// Its name in the topology.
    pub node: NodeId,
    /// `[root]`.
    pub config: RootConfig,
    /// `[gather]`; queries see what it holds when they begin.
    pub gather: Live<GatherConfig>,
    /// `[root.query_log]`, the same.
    pub query_log: Live<QueryLogConfig>,
    /// `[rpc]`.
    pub rpc: RpcConfig,
    /// For manifests and statistics.
    pub store: VersionStore,
    /// Who serves what.
    pub membership: Membership,
    /// HTTP listener.
    pub http: Bound,
    /// Public gRPC listener; `None`: HTTP only.
    pub grpc: Option<Bound>,
}

/// A root over an engine; the versions are still to be opened.
pub fn root(
    node: NodeId,
    config: RootConfig,
    gatherer: Arc<Gatherer>,
    routing: Routing,
    query_log: Live<QueryLogConfig>,
    deps: &Deps,
    drain: &Drain,
) -> Root {
    let bounds = Bounds { min: config.min_in_flight, max: config.max_in_flight };
    let gate = Gate::new(Admission::new(bounds), config.queue as usize, config.queue_wait.0);
    Root {
        node: node.to_string(),
        gatherer,
        versions: Arc::new(Versions::expecting(routing.now().corpora.keys().cloned())),
        routing,
        reader: Reader { analyzer: Analyzer::new(), max_expansions: config.max_expansions as usize },
        dice: deps.dice.stream("root"),
        clock: deps.clock.clone(),
        metrics: Metrics::new(&deps.telemetry),
        slow: deps.telemetry.slow.clone(),
        incidents: Incidents::default(),
        gate: Arc::new(gate),
        degradation: Degradation::new(config.degrade),
        trials: Trials::default(),
        query_log: QueryLog::new(query_log, &node.0, &deps.telemetry),
        canary: config.canary.then(Canary::default),
        drain: drain.clone(),
        config,
    }
}

/// Serves until the drain has ended.
pub async fn serve(serve: RootServe, deps: Deps, drain: Drain) -> Result<()> {
    let RootServe { node, config, gather, query_log, rpc, store, membership, http, grpc } = serve;
    let routing = membership.routing();
    let patience = rpc.drain_patience.0;
    let endpoints = Arc::new(EndpointSet::new(rpc.clone(), deps.net.clone(), &routing.now()));
    let gatherer = Gatherer::new(node.clone(), Role::Root, endpoints.clone(), gather, &deps);
    let gatherer = Arc::new(gatherer.following(routing.clone()));
    let root = root(node, config, gatherer, routing.clone(), query_log, &deps, &drain);
    let root = Arc::new(root);
    let health = Arc::new(RootHealth::new(root.clone()).hearing(membership.clone()));
    let admin =
        AdminPages { health: health.clone(), telemetry: deps.telemetry.clone(), drain: drain.clone() };
    tracing::info!(node = root.node, http = %http.address, grpc = grpc.as_ref().map(|grpc| grpc.address.to_string()), "root listens");

    // Roots of one process share the setting and not the files.
    let cache_dir = Path::new(&root.config.cache_dir).join(&root.node).to_string_lossy().into_owned();
    let store = store.cached_in(&cache_dir);
    let opening = versions::keep(
        &root.versions,
        &routing,
        Opening {
            store: &store,
            cache_dir: &cache_dir,
            drain: &drain,
            passed_over: &root.metrics.passed_over,
        },
    );
    let app = App { root: root.clone(), admin };
    let connections = root.config.max_connections;
    let web = http::listen::serve(http::router(app), http, connections, drain.clone(), patience);
    let calls = async {
        match grpc {
            Some(bound) => serve_grpc(&rpc, root.clone(), health, bound, drain.clone()).await,
            None => Ok(()),
        }
    };
    let judging = {
        let (root, membership) = (root.clone(), membership.clone());
        Box::pin(async move {
            match membership {
                Membership::Linked(link) => judging::run(&root, &link).await,
                Membership::Static(_) => futures::future::pending().await,
            }
        })
    };
    let belonging = membership.run(drain.clone(), || condition(&root));
    let answering = async {
        let served = tokio::join!(calls, web, opening, belonging).0;
        root.query_log.close();
        served
    };
    let serving = Box::pin(async { tokio::join!(answering, root.query_log.run()).0 });
    let called = tokio::select! {
        biased;
        called = serving => called,
        () = endpoints.follow(&routing) => Ok(()),
        () = judging => Ok(()),
    };
    called.map_err(|source| Error::Io { what: "the gRPC listener".to_owned(), source })
}

/// What the root tells the topology service: versions whose statistics it has, and what it saw of those on trial.
fn condition(root: &Root) -> Condition {
    let routing = root.routing.now();
    let open = root.versions.resident().into_iter().map(|(corpus, version)| {
        let progress = match unplaced(root, &routing, &corpus, version) {
            Some(reason) => Progress::Failed { reason, everywhere: true },
            None => Progress::Resident,
        };
        Holding { corpus, version, shard: None, progress, bytes: 0, memory: 0 }
    });
    let hopeless = root.versions.hopeless().into_iter().map(|(corpus, version, reason)| Holding {
        corpus,
        version,
        shard: None,
        progress: Progress::Failed { reason, everywhere: true },
        bytes: 0,
        memory: 0,
    });
    Condition { holdings: open.chain(hopeless).collect(), trials: root.trials.take(), ..Condition::default() }
}

/// Why a version would be answered in part for ever: it has more shards than are placed.
fn unplaced(root: &Root, routing: &RoutingSnapshot, corpus: &str, version: Version) -> Option<String> {
    let shards = root.versions.state(corpus, version)?.shards.len();
    let placed = routing.corpora.get(corpus)?.placed_shards as usize;
    let more = placed > 0 && shards > placed;
    more.then(|| {
        format!("{version} has {shards} shards and {placed} are placed: place the others, or build it with {placed}")
    })
}

/// The public service with health and reflection.
async fn serve_grpc(
    rpc: &RpcConfig,
    root: Arc<Root>,
    ready: Arc<RootHealth>,
    bound: Bound,
    drain: Drain,
) -> std::io::Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(canopy_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(std::io::Error::other)?;
    let limit = rpc.max_message.0 as usize;
    let told = tell_readiness(&reporter, &ready, root.config.probe_interval.0, &drain);
    let search = SearchServer::new(SearchService(root.clone()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let mut routes = tonic::service::Routes::builder();
    routes.add_service(search).add_service(health).add_service(reflection);
    let (served, ()) =
        tokio::join!(rpc::serve_grpc(rpc, &root.node, routes.routes(), bound, drain.clone()), told);
    served
}

/// Keeps the gRPC health service at what the readiness page says, until the process leaves.
async fn tell_readiness(
    reporter: &tonic_health::server::HealthReporter,
    health: &RootHealth,
    interval: Duration,
    drain: &Drain,
) {
    loop {
        match health.ready().await {
            Ok(()) => reporter.set_serving::<SearchServer<SearchService>>().await,
            Err(_) => reporter.set_not_serving::<SearchServer<SearchService>>().await,
        }
        tokio::select! {
            biased;
            () = drain.wait_leaving() => break,
            () = tokio::time::sleep(interval) => {}
        }
    }
    reporter.set_not_serving::<SearchServer<SearchService>>().await;
}

#[cfg(test)]
mod tests;
