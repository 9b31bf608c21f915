//! An ingest as a process: HTTP for writers with the admin pages beside it, gRPC for writers and leaves, and the logs behind them.
//!
//! The ports answer from the first moment; the ingest is ready when its logs are open. When it is told to leave it is not ready at
//! once, answers on for the lame-duck time, finishes the batches that were begun, ends the tails, and goes.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    admin::AdminPages,
    config::Section,
    deps::Deps,
    drain::Drain,
    ids::NodeId,
    net::Bound,
    rpc::{RpcConfig, serve_grpc},
};
use canopy_format::store::VersionStore;
use canopy_proto::{
    DESCRIPTORS,
    ingest::{ingest_server::IngestServer, log_server::LogServer},
};
use tokio::sync::Semaphore;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::{
    config::{EngineKind, IngestConfig},
    corpora::Corpora,
    engine::{self, Engine},
    error::{Error, Result},
    feed::Surroundings,
    grpc::{Follow, Ingest},
    health::IngestHealth,
    http::{self, App},
    keys::Keys,
    metrics::Metrics,
};

/// How often ends and followers are looked at, and readiness is published.
const TICK: Duration = Duration::from_secs(1);

/// What an ingest is started with.
pub struct IngestServe {
    /// Its name.
    pub node: NodeId,
    /// `[ingest]`.
    pub config: IngestConfig,
    /// `[rpc]`.
    pub rpc: RpcConfig,
    /// Where corpora and versions are.
    pub store: VersionStore,
    /// For leaves, and writers that speak gRPC.
    pub grpc: Bound,
    /// For writers, with the admin pages; `None`: neither.
    pub http: Option<Bound>,
}

/// Runs an ingest until it has drained.
pub async fn serve(ingest: IngestServe, deps: Deps, drain: Drain) -> Result<()> {
    let engine: Arc<dyn Engine> = match ingest.config.engine {
        EngineKind::Embedded => Arc::new(engine::Embedded::new(&ingest.config)),
        EngineKind::JetStream => Arc::new(engine::JetStream::new(&ingest.config)),
    };
    serve_on(ingest, engine, deps, drain).await
}

/// The same over any engine.
pub async fn serve_on(ingest: IngestServe, engine: Arc<dyn Engine>, deps: Deps, drain: Drain) -> Result<()> {
    let IngestServe { node, config, rpc, store, grpc, http } = ingest;
    if let Some((key, reason)) = config.problems().into_iter().next() {
        return Err(Error::invalid(format!("ingest.{key}"), reason));
    }
    let keys = Arc::new(Keys::open(&config.keys_file)?);
    warn_if_open(&keys, http.as_ref());
    let max_message = rpc.max_message.0 as usize;
    let around = Surroundings {
        config: Arc::new(config),
        max_message,
        clock: deps.clock.clone(),
        dice: deps.dice.stream("writes"),
        metrics: Metrics::new(&deps.telemetry.registry),
    };
    let config = around.config.clone();
    let corpora = Arc::new(Corpora::new(store, engine, around));
    let health = Arc::new(IngestHealth { node: node.clone(), corpora: corpora.clone() });
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let looking = tokio::spawn(look(corpora.clone(), keys.clone(), drain.clone()));
    let trimming = tokio::spawn(trim(corpora.clone(), drain.clone()));
    let watching = tokio::spawn(watch(health.clone(), reporter, drain.clone()));
    let admin = AdminPages { health, telemetry: deps.telemetry.clone(), drain: drain.clone() };
    let writers = Arc::new(Semaphore::new(config.writers as usize));
    let app = App { corpora: corpora.clone(), keys: keys.clone(), admin, drain: drain.clone(), writers };
    let web = http.map(|bound| {
        let (drain, patience) = (drain.clone(), rpc.drain_patience.0);
        tokio::spawn(http::listen::serve(http::router(app), bound, config.max_connections, drain, patience))
    });
    let ingest = Ingest { corpora: corpora.clone(), keys, drain: drain.clone() };
    let follow = Follow { corpora: corpora.clone(), drain: drain.clone() };
    let sized = IngestServer::new(ingest).max_decoding_message_size(max_message);
    let followed = LogServer::new(follow).max_decoding_message_size(max_message);
    let routes = Routes::new(sized.max_encoding_message_size(max_message))
        .add_service(followed.max_encoding_message_size(max_message))
        .add_service(health_service)
        .add_service(reflection()?);
    let address = grpc.address.to_string();
    tracing::info!(node = %node, address, "ingest answers");
    let served = serve_grpc(&rpc, &node.0, routes, grpc, drain.clone()).await;
    if let Some(web) = web {
        let _ends_with_the_drain = web.await;
    }
    for task in [looking, trimming, watching] {
        task.abort();
    }
    for feed in corpora.all() {
        feed.closed.cancel();
    }
    served.map_err(|source| Error::Io { path: address, source })
}

/// Whoever reaches an open port may write: fine on this machine, and to be known elsewhere.
fn warn_if_open(keys: &Keys, http: Option<&Bound>) {
    if let Some(bound) = http.filter(|bound| !keys.required() && !bound.address.ip().is_loopback()) {
        let address = bound.address.to_string();
        tracing::warn!(address, "whoever reaches this address may write and erase; set ingest.keys_file");
    }
}

fn reflection() -> Result<
    tonic_reflection::server::v1::ServerReflectionServer<impl tonic_reflection::server::v1::ServerReflection>,
> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| Error::invalid("reflection", error.to_string()))
}

/// Looks at the store, and at the keys.
async fn look(corpora: Arc<Corpora>, keys: Arc<Keys>, drain: Drain) {
    let config = corpora.around.config.clone();
    while !drain.started() {
        corpora.look().await;
        if let Err(error) = keys.reload(&config.keys_file) {
            tracing::warn!(%error, "the keys are as they were");
        }
        tokio::time::sleep(config.poll.0).await;
    }
}

/// Trims the logs now and then.
async fn trim(corpora: Arc<Corpora>, drain: Drain) {
    while !drain.started() {
        tokio::time::sleep(corpora.around.config.trim.0).await;
        corpora.trim().await;
    }
}

/// Publishes readiness, and how far the followers are.
async fn watch(health: Arc<IngestHealth>, reporter: HealthReporter, drain: Drain) {
    let metrics = health.corpora.around.metrics.clone();
    while !drain.started() {
        if health.check().is_ok() && !drain.leaving() {
            reporter.set_serving::<IngestServer<Ingest>>().await;
        } else {
            reporter.set_not_serving::<IngestServer<Ingest>>().await;
        }
        let (mut operations, mut lag) = (0, 0);
        for feed in health.corpora.all() {
            // The ends, where others write to the same log.
            let _next_time = feed.ranges().await;
            let behind = feed.behind();
            operations = operations.max(behind.operations);
            lag = lag.max(behind.lag.as_millis() as u64);
        }
        metrics.behind.set(i64::try_from(operations).unwrap_or(i64::MAX));
        metrics.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
        tokio::time::sleep(TICK).await;
    }
}
