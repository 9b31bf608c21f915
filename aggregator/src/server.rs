//! An aggregator from its parts: engine, gRPC with health and reflection, admin pages; leaves gently.

use std::sync::Arc;

use canopy_common::{
    admin::{self, AdminPages},
    config::Live,
    deps::Deps,
    drain::Drain,
    ids::NodeId,
    limit::AdmissionMetrics,
    net::Bound,
    rpc::{self, RpcConfig},
};
use canopy_proto::{server as wire, v1::search_node_server::SearchNodeServer};
use canopy_topology::{config::Role, link::Condition, membership::Membership};

use crate::{
    config::{AggregatorConfig, GatherConfig},
    endpoints::EndpointSet,
    error::{Error, Result},
    gather::Gatherer,
    health::AggregatorHealth,
    search::AggregatorNode,
};

/// What an aggregator is made from.
pub struct AggregatorServe {
    /// Its name in the topology.
    pub node: NodeId,
    /// `[aggregator]`.
    pub config: AggregatorConfig,
    /// `[gather]`; queries see what it holds when they begin.
    pub gather: Live<GatherConfig>,
    /// `[rpc]`.
    pub rpc: RpcConfig,
    /// Who serves what.
    pub membership: Membership,
    /// gRPC listener.
    pub grpc: Bound,
    /// Admin listener; `None`: no admin pages.
    pub admin: Option<Bound>,
}

/// Serves until the drain has ended.
pub async fn serve(serve: AggregatorServe, deps: Deps, drain: Drain) -> Result<()> {
    let AggregatorServe { node, config, gather, rpc, membership, grpc, admin } = serve;
    let routing = membership.routing();
    let first = routing.now();
    if first.known() && first.nodes.get(&node).is_none_or(|known| known.role != Role::Aggregator) {
        return Err(Error::NotInTopology { node: node.to_string() });
    }
    let patience = rpc.drain_patience.0;
    let endpoints = Arc::new(EndpointSet::new(rpc.clone(), deps.net.clone(), &first));
    let engine = Gatherer::new(node.clone(), Role::Aggregator, endpoints.clone(), gather, &deps);
    let engine = Arc::new(engine.following(routing.clone()));
    let slow = deps.telemetry.slow.clone();
    let metrics = AdmissionMetrics::new("aggregator", &deps.telemetry.registry);
    let aggregator =
        Arc::new(AggregatorNode::new(engine.clone(), routing.clone(), config, slow, metrics, drain.clone()));
    let health = Arc::new(AggregatorHealth::new(aggregator.clone(), engine, routing.clone(), &deps.dice));
    tracing::info!(node = %node, grpc = %grpc.address, "aggregator listens");
    health.begin();

    let pages = AdminPages { health, telemetry: deps.telemetry.clone(), drain: drain.clone() };
    let admin_drain = drain.clone();
    let administered = async {
        if let Some(bound) = admin {
            admin::serve_admin(pages, bound, admin_drain, patience).await;
        }
    };
    let belonging = membership.run(drain.clone(), Condition::default);
    let serving =
        async { tokio::join!(serve_grpc(&rpc, &node.0, aggregator, grpc, drain), administered, belonging).0 };
    tokio::select! {
        biased;
        served = serving => Ok(served?),
        () = endpoints.follow(&routing) => Ok(()),
    }
}

/// `SearchNode` with health and reflection.
async fn serve_grpc(
    rpc: &RpcConfig,
    name: &str,
    node: Arc<AggregatorNode>,
    bound: Bound,
    drain: Drain,
) -> std::io::Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<SearchNodeServer<wire::NodeServer<AggregatorNode>>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(canopy_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(std::io::Error::other)?;
    let mut routes = tonic::service::Routes::builder();
    let search = wire::service(node, rpc.max_message.0 as usize);
    routes.add_service(search).add_service(health).add_service(reflection);
    let stop = drain.clone();
    let leaving = async move {
        stop.wait_leaving().await;
        reporter.set_not_serving::<SearchNodeServer<wire::NodeServer<AggregatorNode>>>().await;
    };
    let (served, ()) = tokio::join!(rpc::serve_grpc(rpc, name, routes.routes(), bound, drain), leaving);
    served
}
