//! The topology service as a process: the store, the control, the clock that moves it, and its pages.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    admin::{AdminPages, Health, serve_admin},
    clock::WallClock,
    deps::Deps,
    drain::Drain,
    ids::{Epoch, NodeId},
    net::Bound,
    rpc::{RpcConfig, serve_grpc},
};
use canopy_proto::{DESCRIPTORS, topology::topology_server::TopologyServer};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::service::Routes;

use super::{control::Control, metrics::Metrics, rpc, store::TopologyStore};
use crate::{
    config::TopologyConfig,
    error::{Error, Result},
    routing::Routing,
};

/// Between two ticks.
const TICK: Duration = Duration::from_millis(500);

/// What a topology service is made from.
pub struct TopologyServe {
    /// Its name.
    pub node: NodeId,
    /// `[topology]`.
    pub config: TopologyConfig,
    /// `[rpc]`.
    pub rpc: RpcConfig,
    /// gRPC listener.
    pub grpc: Bound,
    /// Admin listener; `None`: no admin pages.
    pub admin: Option<Bound>,
}

struct State {
    control: Control,
    store: TopologyStore,
    /// Whether the last change could be stored.
    stored: bool,
}

/// The running service.
pub struct Service {
    node: NodeId,
    state: Arc<Mutex<State>>,
    routing: Routing,
    clock: Arc<dyn WallClock>,
    metrics: Arc<Metrics>,
    drain: Drain,
}

impl Service {
    fn open(serve: &TopologyServe, deps: &Deps, drain: Drain) -> Result<Self> {
        let mut store = TopologyStore::open(&serve.config.store)?;
        let desired = store.load()?;
        // A store that was lost gives epochs above all that the lost one gave.
        let fresh = Epoch(u64::try_from(deps.clock.now_us()).unwrap_or(0) / 1000);
        let mut control = Control::new(desired, fresh, Instant::now());
        control.configure(&serve.config)?;
        let routing = Routing::from(control.snapshot().clone());
        let metrics = Arc::new(Metrics::new(&deps.telemetry.registry));
        let state = Arc::new(Mutex::new(State { control, store, stored: true }));
        let service =
            Self { node: serve.node.clone(), state, routing, clock: deps.clock.clone(), metrics, drain };
        let control = service.state.lock().control.clone();
        service.state.lock().save(control, deps.clock.now_us())?;
        Ok(service)
    }

    /// The snapshots that it gives.
    pub(super) fn routing(&self) -> &Routing {
        &self.routing
    }

    /// Ends with the process.
    pub(super) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Changes the control's state, stores what is different, then publishes; with the epoch of the newest snapshot. Blocks a
    /// thread of its own for the disk.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Control, Instant) -> Result<T> + Send + 'static,
    ) -> Result<(T, u64)> {
        let (state, routing, at_us) = (self.state.clone(), self.routing.clone(), self.clock.now_us());
        let metrics = self.metrics.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let mut state = state.lock();
            // On a copy: what can't be stored did not happen.
            let mut next = state.control.clone();
            let result = change(&mut next, Instant::now());
            state.save(next, at_us).inspect_err(|_| metrics.unstored.inc())?;
            metrics.seen(&state.control);
            let snapshot = state.control.snapshot().clone();
            let epoch = snapshot.epoch.0;
            routing.publish(snapshot);
            result.map(|result| (result, epoch))
        });
        changed.await.map_err(|error| Error::Refused(format!("the change was broken off: {error}")))?
    }

    /// The last lines of the audit log.
    pub(super) async fn audit(&self, last: usize) -> Result<Vec<String>> {
        let state = self.state.clone();
        let read = tokio::task::spawn_blocking(move || state.lock().store.audit(last)).await;
        read.map_err(|error| Error::Refused(format!("reading was broken off: {error}")))?
    }

    /// What it knows.
    pub(super) fn status(&self) -> Value {
        let state = self.state.lock();
        let control = &state.control;
        json!({
            "role": "topology",
            "node": self.node.to_string(),
            "epoch": control.snapshot().epoch,
            "draining": self.drain.leaving(),
            "nodes": control.nodes_status(),
            "corpora": control.corpora_status(),
        })
    }
}

impl State {
    /// Stores what is different, with what was done at `at_us` for the audit log.
    fn save(&mut self, mut next: Control, at_us: i64) -> Result<()> {
        let done = next.audited();
        for line in &done {
            tracing::info!(what = line, "audit");
        }
        let lines: Vec<String> =
            done.iter().map(|what| json!({ "at_us": at_us, "what": what }).to_string()).collect();
        let saved = self.store.save(next.desired(), &lines);
        self.stored = saved.is_ok();
        saved?;
        self.control = next;
        Ok(())
    }
}

impl Health for Service {
    fn started(&self) -> bool {
        true
    }

    fn ready(&self) -> BoxFuture<'_, std::result::Result<(), String>> {
        async {
            if self.drain.leaving() {
                return Err("draining".to_owned());
            }
            if self.state.lock().stored { Ok(()) } else { Err("its store can't be written".to_owned()) }
        }
        .boxed()
    }

    fn status(&self) -> Value {
        Self::status(self)
    }
}

/// Serves until the drain has ended. Errors: the store can't be opened, the configuration, a listener.
pub async fn serve(serve: TopologyServe, deps: Deps, drain: Drain) -> Result<()> {
    let service = Arc::new(Service::open(&serve, &deps, drain.clone())?);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<TopologyServer<Service>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| Error::Refused(error.to_string()))?;
    tracing::info!(node = %serve.node, grpc = %serve.grpc.address, store = serve.config.store, "topology service listens");
    let patience = serve.rpc.drain_patience.0;
    let pages =
        AdminPages { health: service.clone(), telemetry: deps.telemetry.clone(), drain: drain.clone() };
    let admin_drain = drain.clone();
    let administered = async {
        if let Some(bound) = serve.admin {
            serve_admin(pages, bound, admin_drain, patience).await;
        }
    };
    let routes = Routes::new(rpc::service(service.clone(), serve.rpc.max_message.0 as usize))
        .add_service(health)
        .add_service(reflection);
    let address = serve.grpc.address.to_string();
    let ticking = tick(service, drain.clone());
    let (served, (), ()) =
        tokio::join!(serve_grpc(&serve.rpc, &serve.node.0, routes, serve.grpc, drain), administered, ticking);
    served.map_err(|source| Error::Io { what: format!("listener {address}"), source })
}

/// Moves the control with the time.
async fn tick(service: Arc<Service>, drain: Drain) {
    let mut last = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = drain.wait_started() => return,
            () = tokio::time::sleep(TICK) => {}
        }
        let elapsed = last.elapsed();
        last = Instant::now();
        let ticked = service.change(move |control, now| {
            control.tick(elapsed, now);
            Ok(())
        });
        if let Err(error) = ticked.await {
            tracing::error!(%error, "the topology service could not store its state; it goes on with the last");
        }
    }
}
