//! The topology service as a process: the store, the control, the clock that moves it, and its pages.
//!
//! One of several services leads ([`super::lead`]): it has taken the store up and decides. The others hold an empty control and
//! nothing to write to, and say who leads. Whoever holds the store has the turn to change something; the control itself is
//! locked for moments only, so that nothing waits for a store that does not answer but the change that is stored.

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
use canopy_proto::{
    DESCRIPTORS,
    topology::{JudgeTask, topology_server::TopologyServer},
};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::service::Routes;

use super::{
    control::{Control, LEASE},
    desired::Desired,
    guard::Guard,
    hearing::{self, Door},
    lead::{Lead, Leads},
    metrics::Metrics,
    report::Word,
    rpc,
    store::{FileStore, TopologyStore},
    updates::Updates,
};
use crate::{
    config::{TopologyConfig, store::StoreAddress},
    error::{Error, Result},
    routing::Routing,
};

/// Between two ticks.
const TICK: Duration = Duration::from_millis(500);
/// Between two looks for the store of versions.
const LOOK: Duration = Duration::from_secs(2);

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
    /// Says why there is no store of versions on this machine, as of now. The service needs none; whoever looks for a version
    /// may want to know. It may block.
    pub version_store: LookForStore,
}

/// See [`TopologyServe::version_store`].
pub type LookForStore = Arc<dyn Fn() -> Option<String> + Send + Sync>;

struct State {
    control: Control,
    /// Whether the last change could be stored.
    stored: bool,
}

/// The running service.
pub struct Service {
    node: NodeId,
    config: TopologyConfig,
    lead: Lead,
    /// Whoever holds it has the turn; `None`: this service does not lead.
    store: Arc<tokio::sync::Mutex<Option<TopologyStore>>>,
    state: Arc<Mutex<State>>,
    routing: Routing,
    clock: Arc<dyn WallClock>,
    metrics: Arc<Metrics>,
    drain: Drain,
    door: Door,
    guard: Guard,
    updates: Arc<Updates>,
    /// Why there is no store of versions here.
    no_versions: Mutex<Option<String>>,
}

impl Service {
    fn new(serve: &TopologyServe, deps: &Deps, drain: Drain, door: Door) -> Result<Self> {
        let control = Control::new(Desired::default(), Epoch(0), Instant::now());
        let routing = Routing::from(control.snapshot().clone());
        Ok(Self {
            node: serve.node.clone(),
            config: serve.config.clone(),
            lead: Lead::new(),
            store: Arc::default(),
            state: Arc::new(Mutex::new(State { control, stored: true })),
            routing,
            clock: deps.clock.clone(),
            metrics: Arc::new(Metrics::new(&deps.telemetry.registry)),
            drain,
            door,
            guard: Guard::new(&serve.config)?,
            updates: Arc::default(),
            no_versions: Mutex::default(),
        })
    }

    /// Goes on from what a store holds, and leads until then. Errors: the store, or the configuration.
    pub(super) async fn take_up(
        &self,
        mut store: TopologyStore,
        until: impl FnOnce() -> Option<Instant>,
    ) -> Result<()> {
        let mut turn = self.store.clone().lock_owned().await;
        let (config, at_us) = (self.config.clone(), self.clock.now_us());
        let taken = tokio::task::spawn_blocking(move || {
            // A store that was lost gives epochs above all that the lost one gave.
            let fresh = Epoch(u64::try_from(at_us).unwrap_or(0) / 1000);
            let mut control = Control::new(store.load()?, fresh, Instant::now());
            control.configure(&config)?;
            save(&mut store, &mut control, at_us)?;
            Ok((store, control))
        });
        let (store, control) = taken.await.map_err(|error| broken_off(&error))??;
        self.metrics.seen(&control);
        self.routing.publish(control.snapshot().clone());
        *self.state.lock() = State { control, stored: true };
        *turn = Some(store);
        self.metrics.leads.set(1);
        self.lead.win(until());
        Ok(())
    }

    /// Lets go of the store, and decides nothing any more.
    #[cfg(feature = "etcd")]
    pub(super) async fn step_down(&self, why: String) {
        self.lead.lose(Leads::Nobody(why));
        *self.store.lock().await = None;
        let control = Control::new(Desired::default(), Epoch(0), Instant::now());
        self.metrics.seen(&control);
        self.metrics.leads.set(0);
        *self.state.lock() = State { control, stored: true };
    }

    /// Who leads.
    pub(super) fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The snapshots that it gives.
    pub(super) fn routing(&self) -> &Routing {
        &self.routing
    }

    /// Ends with the process.
    pub(super) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Changes the control's state, stores what is different, then publishes; with the epoch of the newest snapshot. Errors:
    /// another service leads, or the change can't be stored.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Control, Instant) -> Result<T> + Send + 'static,
    ) -> Result<(T, u64)> {
        self.lead.own()?;
        let mut turn = self.store.clone().lock_owned().await;
        // It may have waited for long.
        self.lead.own()?;
        let (lead, state, routing) = (self.lead.clone(), self.state.clone(), self.routing.clone());
        let (metrics, at_us) = (self.metrics.clone(), self.clock.now_us());
        let changed = tokio::task::spawn_blocking(move || {
            let store =
                turn.as_mut().ok_or_else(|| Error::Leaderless("it has just stepped down".to_owned()))?;
            // On a copy: what can't be stored did not happen.
            let mut next = state.lock().control.clone();
            let result = change(&mut next, Instant::now());
            if let Err(error) = save(store, &mut next, at_us) {
                metrics.unstored.inc();
                state.lock().stored = false;
                if matches!(error, Error::Deposed) {
                    lead.lose(Leads::Nobody("another service leads by now".to_owned()));
                }
                return Err(error);
            }
            metrics.seen(&next);
            let snapshot = next.snapshot().clone();
            let epoch = snapshot.epoch.0;
            *state.lock() = State { control: next, stored: true };
            routing.publish(snapshot);
            result.map(|result| (result, epoch))
        });
        changed.await.map_err(|error| broken_off(&error))?
    }

    /// Takes a report over that changes nothing that is stored; the epoch of the newest snapshot. Else the word again.
    pub(super) fn renew(&self, word: Word) -> std::result::Result<Result<u64>, Box<Word>> {
        if let Err(error) = self.lead.own() {
            return Ok(Err(error));
        }
        // Who changes something has the turn for as long as the store takes, and a copy: never waited for here.
        let Ok(_turn) = self.store.try_lock() else { return Err(Box::new(word)) };
        let mut state = self.state.lock();
        let Some(renewed) = state.control.renew(&word, Instant::now()) else { return Err(Box::new(word)) };
        Ok(renewed.map(|()| state.control.snapshot().epoch.0))
    }

    /// Trials whose judged queries a root is to ask.
    pub(super) async fn judge_tasks(&self, root: &str) -> Result<Vec<JudgeTask>> {
        let root = NodeId::from(root);
        if let Ok(_turn) = self.store.try_lock() {
            return Ok(self.state.lock().control.judge_tasks(&root));
        }
        Ok(self.change(move |control, _| Ok(control.judge_tasks(&root))).await?.0)
    }

    /// Lets time go by when that changes nothing that is stored; whether it was so.
    fn rests(&self, elapsed: Duration, now: Instant) -> bool {
        let Ok(turn) = self.store.try_lock() else { return false };
        // What is stored is looked at too: it may be gone.
        if turn.as_ref().is_some_and(|store| !store.is_there()) {
            return false;
        }
        let mut state = self.state.lock();
        if elapsed <= LEASE / 2 {
            state.control.look_when_due(now);
        }
        self.metrics.seen(&state.control);
        state.stored && state.control.rests(elapsed, now)
    }

    /// Moves the control with the time. Leases are looked at as of `now`, when it was asked and not when its turn came: what nodes
    /// said meanwhile waits behind it, and a store that is slow would take the whole tree for away.
    async fn pass_time(&self, elapsed: Duration, now: Instant) {
        if self.lead.own().is_err() || self.rests(elapsed, now) {
            return;
        }
        let passed = self.change(move |control, _| {
            control.tick(elapsed, now);
            Ok(())
        });
        if let Err(error) = passed.await {
            tracing::error!(%error, "the topology service could not store its state; it goes on with the last");
        }
    }

    /// Who may speak with it.
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What watchers are sent.
    pub(super) fn updates(&self) -> &Arc<Updates> {
        &self.updates
    }

    /// Every replica.
    pub(super) fn replicas(&self) -> Value {
        self.state.lock().control.replicas_status(Instant::now())
    }

    /// Where reports wait that change something.
    pub(super) fn door(&self) -> &Door {
        &self.door
    }

    /// The last lines of the audit log.
    pub(super) async fn audit(&self, last: usize) -> Result<Vec<String>> {
        self.lead.own()?;
        let mut turn = self.store.clone().lock_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            turn.as_mut().map_or_else(|| Ok(Vec::new()), |store| store.audit(last))
        });
        read.await.map_err(|error| broken_off(&error))?
    }

    /// What it knows.
    pub(super) fn status(&self) -> Value {
        let leads = match self.lead.now() {
            Leads::This => json!({ "node": self.node.to_string() }),
            Leads::Other(leader) => json!(leader),
            Leads::Nobody(reason) => json!({ "reason": reason }),
        };
        let state = self.state.lock();
        let control = &state.control;
        json!({
            "role": "topology",
            "no_version_store": *self.no_versions.lock(),
            "node": self.node.to_string(),
            "leader": leads,
            "epoch": control.snapshot().epoch,
            "draining": self.drain.leaving(),
            "nodes": control.nodes_status(),
            "corpora": control.corpora_status(),
            "hot_shards": control.hot_status(),
            "alarms": control.alarms_status(Instant::now()),
            "lost": control.lost_status(),
        })
    }
}

fn broken_off(error: &tokio::task::JoinError) -> Error {
    Error::Refused(format!("it was broken off: {error}"))
}

/// Stores what is different, with what was done at `at_us` for the audit log. Blocks.
fn save(store: &mut TopologyStore, next: &mut Control, at_us: i64) -> Result<()> {
    let done = next.audited();
    for line in &done {
        tracing::info!(what = line, "audit");
    }
    let lines: Vec<String> =
        done.iter().map(|what| json!({ "at_us": at_us, "what": what }).to_string()).collect();
    store.save(next.desired(), &lines)
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
            match self.lead.now() {
                Leads::Nobody(reason) => Err(format!("nobody leads: {reason}")),
                Leads::Other(_) => Ok(()),
                Leads::This if self.state.lock().stored => Ok(()),
                Leads::This => Err("its store can't be written".to_owned()),
            }
        }
        .boxed()
    }

    fn status(&self) -> Value {
        Self::status(self)
    }
}

/// Serves until the drain has ended. Errors: the store can't be opened, the configuration, a listener.
pub async fn serve(serve: TopologyServe, deps: Deps, drain: Drain) -> Result<()> {
    let (door, words) = hearing::queue();
    let service = Arc::new(Service::new(&serve, &deps, drain.clone(), door)?);
    let leading = lead(&service, serve.grpc.address.to_string(), drain.clone()).await?;
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
    let hearing = hearing::listen(service.clone(), words, drain.clone());
    let looking = look(service.clone(), serve.version_store, drain.clone());
    let ticking = tick(service, drain.clone());
    let grpc = serve_grpc(&serve.rpc, &serve.node.0, routes, serve.grpc, drain);
    let (served, (), (), (), (), ()) = tokio::join!(grpc, administered, ticking, hearing, leading, looking);
    served.map_err(|source| Error::Io { what: format!("listener {address}"), source })
}

/// Leads at once where the store is a file of this service's own; else whenever it can, by what it returns. Errors: the store
/// can't be used.
async fn lead(service: &Arc<Service>, listens: String, drain: Drain) -> Result<BoxFuture<'static, ()>> {
    let config = &service.config;
    match StoreAddress::parse(&config.store).map_err(|why| Error::invalid("topology.store", why))? {
        StoreAddress::File(path) => {
            let opened = tokio::task::spawn_blocking(move || FileStore::open(&path)).await;
            let store = TopologyStore::new(opened.map_err(|error| broken_off(&error))??);
            service.take_up(store, || None).await?;
            Ok(futures::future::ready(()).boxed())
        }
        #[cfg(feature = "etcd")]
        StoreAddress::Etcd(address) => {
            let named = config.nodes.iter().find(|node| *node.id == *service.node.0);
            let address_here = named.map_or(listens, |node| node.address.clone());
            let this = super::lead::Leader { node: service.node.to_string(), address: address_here };
            let etcd = super::store::etcd::Etcd::new(config, address)?;
            let election = super::election::Election::new(etcd, this, config.store_lease.0);
            Ok(super::election::run(service.clone(), election, drain).boxed())
        }
        #[cfg(not(feature = "etcd"))]
        StoreAddress::Etcd(address) => {
            let _only_with_the_feature = (listens, drain);
            let why = "this build has no etcd; build it with `cargo build --release --features etcd`, which needs \
                       protobuf-compiler and libprotobuf-dev";
            Err(Error::invalid("topology.store", format!("{address}: {why}")))
        }
    }
}

/// Notes whether there is a store of versions here. One that hangs is asked once, and holds up nobody.
async fn look(service: Arc<Service>, store: LookForStore, drain: Drain) {
    loop {
        let ask = store.clone();
        let asked = tokio::task::spawn_blocking(move || ask());
        let why = tokio::select! {
            biased;
            () = drain.wait_started() => return,
            asked = asked => asked.unwrap_or(None),
        };
        let before = std::mem::replace(&mut *service.no_versions.lock(), why.clone());
        match (before, why) {
            (None, Some(why)) => {
                tracing::info!(
                    why,
                    "no store of versions is here; the service needs none, leaves and roots do"
                );
            }
            (Some(_), None) => tracing::info!("the store of versions is here now"),
            _ => {}
        }
        tokio::select! {
            biased;
            () = drain.wait_started() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
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
        let now = Instant::now();
        let elapsed = now - last;
        last = now;
        service.pass_time(elapsed, now).await;
    }
}

#[cfg(test)]
mod tests;
