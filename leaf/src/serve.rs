//! A leaf as a process: gRPC (search node, health, reflection), admin pages, and the opening of its shards behind them.
//!
//! The ports answer from the first moment, so that a start that takes long can be watched; the leaf is ready when its
//! shards have answered a query. When it is told to leave it is not ready at once, answers on for the lame-duck
//! time, finishes what runs, and goes.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    admin::{AdminPages, Health, serve_admin},
    config::Section,
    deps::Deps,
    drain::Drain,
    ids::NodeId,
    limit::Admission,
    net::Bound,
    rpc::{RpcConfig, serve_grpc},
};
use canopy_format::store::VersionStore;
use canopy_proto::{DESCRIPTORS, server, v1::search_node_server::SearchNodeServer};
use canopy_topology::{link::Condition, membership::Membership};
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::{
    calls::Calls,
    config::LeafConfig,
    error::{Error, Result},
    executor::{Executor, Lane},
    fault,
    health::LeafHealth,
    lease::Leases,
    load::{self, Meter},
    metrics::{Metrics, number},
    node::{LeafNode, Parts, SearchShard},
    overlay::Grpc,
    search_shard,
    shards::{
        Shards, State,
        holdings::condition,
        lifecycle::{Feed, Lifecycle},
    },
    tie::peers,
};

/// How often readiness is published to gRPC health, states to metrics, and ended leases are let go.
const TICK: Duration = Duration::from_secs(1);

/// What a leaf is started with.
pub struct LeafServe {
    /// Its name in the routing snapshot.
    pub node: NodeId,
    /// `[leaf]`.
    pub config: LeafConfig,
    /// `[rpc]`.
    pub rpc: RpcConfig,
    /// Where versions are.
    pub store: VersionStore,
    /// Who holds what.
    pub membership: Membership,
    /// Where it is asked.
    pub grpc: Bound,
    /// Its admin pages; `None`: none.
    pub admin: Option<Bound>,
    /// Where the log is read: addresses of ingests, tried in turn. Empty: nothing is followed.
    pub ingest: Vec<String>,
}

/// Builds what the calls of a leaf share, with nothing opened yet.
pub fn parts(leaf: &LeafServe, deps: &Deps, drain: Drain) -> Result<Arc<Parts>> {
    let config = &leaf.config;
    if let Some((key, reason)) = config.problems().into_iter().next() {
        return Err(Error::invalid(format!("leaf.{key}"), reason));
    }
    let executor = Executor::start(config.search_threads(), config.room())
        .map_err(|source| Error::Io { path: "search threads".to_owned(), source })?;
    let metrics = Metrics::new(&deps.telemetry.registry);
    let mut search: SearchShard = Box::new(search_shard::search);
    if config.fault.any() {
        tracing::warn!(fault = ?config.fault, "this leaf fails on purpose; for tests only");
        search = fault::injected(config.fault.clone(), deps.dice.stream("faults"), search);
    }
    let leases =
        Leases::new(deps.dice.stream("leases").next_u64(), config.lease_grace.0, config.leases as usize);
    Ok(Arc::new(Parts {
        config: config.clone(),
        max_message: leaf.rpc.max_message.0 as usize,
        clock: deps.clock.clone(),
        routing: leaf.membership.routing(),
        recent: Arc::default(),
        shards: Arc::new(Shards::new(leaf.node.clone(), leases)),
        admission: Arc::new(Admission::new(config.bounds())),
        executor,
        tell: peers::tell(&leaf.rpc, &deps.net, &leaf.membership.routing(), metrics.untold.clone()),
        calls: Calls::default(),
        metrics,
        drain,
        slow: deps.telemetry.slow.clone(),
        search,
    }))
}

/// Runs a leaf until it has drained.
pub async fn serve(leaf: LeafServe, deps: Deps, drain: Drain) -> Result<()> {
    let routing = leaf.membership.routing();
    let first = routing.now();
    if first.known() && !first.nodes.contains_key(&leaf.node) {
        let reason =
            format!("{} is not a node of the topology; add it to [topology] or fix its name", leaf.node);
        return Err(Error::invalid("node", reason));
    }
    let parts = parts(&leaf, &deps, drain.clone())?;
    let health = Arc::new(LeafHealth::new(parts.clone()));
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let (config, recent) = (leaf.config.clone(), parts.recent.clone());
    let lifecycle = Lifecycle::new(leaf.store, parts.shards.clone(), config, recent, drain.clone());
    let lifecycle = Arc::new(match feed(&leaf.ingest, &leaf.rpc, &deps, &parts.metrics)? {
        Some(feed) => lifecycle.following(feed),
        None => lifecycle,
    });
    let opening = tokio::spawn(lifecycle.clone().run(routing));
    let (shards, leaving, clock) = (parts.shards.clone(), drain.clone(), deps.clock.clone());
    let meter = Meter::new(&leaf.config, parts.metrics.clone());
    let belonging = tokio::spawn(leaf.membership.run(leaving, move || Condition {
        capacity: meter.capacity(),
        work: Some(meter.work(&shards, clock.now_us())),
        ..condition(&shards.board)
    }));
    let watching = tokio::spawn(watch(parts.clone(), health.clone(), reporter));
    let admin = leaf.admin.map(|bound| {
        let pages = AdminPages { health, telemetry: deps.telemetry.clone(), drain: drain.clone() };
        tokio::spawn(serve_admin(pages, bound, drain.clone(), leaf.rpc.drain_patience.0))
    });
    let max_message = leaf.rpc.max_message.0 as usize;
    let routes = Routes::new(server::service(Arc::new(LeafNode::new(parts)), max_message))
        .add_service(health_service)
        .add_service(reflection()?);
    let address = leaf.grpc.address.to_string();
    tracing::info!(node = %leaf.node, address, "leaf answers");
    let served = serve_grpc(&leaf.rpc, &leaf.node.0, routes, leaf.grpc, drain).await;
    opening.abort();
    lifecycle.save().await;
    belonging.abort();
    watching.abort();
    if let Some(admin) = admin {
        let _ends_with_the_drain = admin.await;
    }
    served.map_err(|source| Error::Io { path: address, source })
}

/// Where updates come from; `None`: nowhere.
fn feed(ingest: &[String], rpc: &RpcConfig, deps: &Deps, metrics: &Metrics) -> Result<Option<Feed>> {
    if ingest.is_empty() {
        return Ok(None);
    }
    let source = Grpc::new(rpc, &deps.net, ingest)
        .map_err(|error| Error::invalid("ingest", format!("{}: {error}", ingest.join(", "))))?;
    Ok(Some(Feed { source: Arc::new(source), clock: deps.clock.clone(), metrics: metrics.clone() }))
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

/// Adds up what lies over all shards.
fn watch_overlays(parts: &Parts) {
    let (metrics, mut sums) = (&parts.metrics, [0_u64; 6]);
    let (mut causes, mut stale) = ([0_u64; 3], 0);
    for (_, line) in parts.shards.board.all() {
        let Some(overlay) = &line.overlay else { continue };
        let sizes = [
            overlay.documents,
            overlay.deferred,
            overlay.tombstones,
            overlay.parts,
            overlay.bytes,
            overlay.behind,
        ];
        sums.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size);
        let waits = [overlay.log_ms, overlay.refresh_ms, overlay.apply_ms];
        causes.iter_mut().zip(waits).for_each(|(most, wait)| *most = (*most).max(wait));
        stale += usize::from(line.state.answers() && !overlay.stale.is_empty());
    }
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let names = ["documents", "deferred", "tombstones", "parts", "bytes", "behind"];
    for (name, sum) in names.into_iter().zip(sums) {
        metrics.overlay.with_label_values(&[name]).set(gauge(sum));
    }
    for (cause, wait) in ["log", "refresh", "apply"].into_iter().zip(causes) {
        metrics.lag_by_cause.with_label_values(&[cause]).set(gauge(wait));
    }
    metrics.lag.set(gauge(load::lag_ms(&parts.shards, parts.clock.now_us()).unwrap_or(0)));
    metrics.stale_shards.set(number(stale));
}

/// Publishes readiness and states, and lets go of views that nobody can ask for any more.
async fn watch(parts: Arc<Parts>, health: Arc<LeafHealth>, reporter: HealthReporter) {
    loop {
        let leaving = parts.drain.leaving();
        let ready = health.ready().await;
        if ready.is_ok() {
            reporter.set_serving::<SearchNodeServer<server::NodeServer<LeafNode>>>().await;
        } else {
            reporter.set_not_serving::<SearchNodeServer<server::NodeServer<LeafNode>>>().await;
        }
        let counts = parts.shards.board.counts();
        for state in State::ALL {
            let count = counts.get(&state).copied().unwrap_or(0);
            parts.metrics.shards.with_label_values(&[state.as_str()]).set(number(count));
        }
        watch_overlays(&parts);
        parts.metrics.passed_over.set(number(parts.shards.board.passed_over().len()));
        let (_, standing) = parts.executor.lane(Lane::Interactive);
        parts.metrics.limit.set(i64::from(parts.admission.limit()));
        parts.metrics.queued.set(number(parts.executor.queued()));
        parts.metrics.standing.set(i64::from(standing));
        parts.shards.leases.sweep();
        if parts.drain.started() {
            return;
        }
        tokio::select! {
            biased;
            () = parts.drain.wait_started() => {}
            () = parts.drain.wait_leaving(), if !leaving => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

#[cfg(test)]
mod tests;
