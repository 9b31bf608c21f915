//! One search over many shards: branches, attempts, completion, coverage.
//!
//! Life of a search: [`crate::plan`] turns shards into branches; `dispatch` picks a replica for each and sends an
//! attempt with the time that is left; `run` is the one loop that waits for replies, timers and the caller; `settle`
//! checks each reply and puts it into the ledger (one outcome per shard) and the merge (best k); `completion` says when
//! to stop; `hedging` asks once more for what is late (`tied`: for all, at once) and `losers` stops the slower one;
//! `harvest` closes what is open and hands the result out. Everything but `run` is plain values, so the same code runs
//! over sockets, over a simulated network and over in-process models under paused time.
//!
//! Three more ends: a search that is wanted whole or not at all (`whole`), one that was planned by an old snapshot
//! (`newer`), and shards that only leaves may have that did not say so (`coming`).
//!
//! Rules: an error never ends a shard while another attempt for it is pending; what one reply settled is asked of
//! nobody again; when the search ends, every running call is dropped, and so cancelled, at once.

pub mod attempt;
mod check;
mod coming;
pub mod completion;
pub(crate) mod dispatch;
mod event;
mod harvest;
mod hedging;
pub mod ledger;
pub mod lesson;
mod losers;
mod narrow;
mod newer;
pub mod retry;
pub(crate) mod run;
pub mod schedule;
mod settle;
mod shadow;
mod tied;
mod watched;
mod whole;
mod withdraw;

use std::sync::Arc;

use canopy_common::{config::Live, deps::Deps, ids::NodeId, request::RequestContext};
use canopy_proto::v1;
use canopy_topology::{
    config::Role,
    routing::{Routing, RoutingSnapshot},
};

use crate::{
    config::GatherConfig,
    endpoints::Endpoints,
    hedge::{Hedging, metrics::HedgeMetrics},
    load::Loads,
    metrics::GatherMetrics,
    pace::{Clock, Pace},
    pick::{PickMetrics, Picker, Standings},
    plan::Together,
    policies::Policies,
};

/// Why the engine stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Every shard is settled.
    All,
    /// All but the allowed number are.
    AllBut,
    /// Enough coverage, and the share of time for stragglers is over.
    Adaptive,
    /// The deadline, less the reserve.
    Deadline,
    /// The caller left.
    Cancelled,
    /// A shard can't be had, and the caller has something better than a part ([`Gatherer::search_whole`]).
    Lost,
}

impl Decision {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::AllBut => "all_but",
            Self::Adaptive => "adaptive",
            Self::Deadline | Self::Cancelled | Self::Lost => "deadline",
        }
    }
}

/// What a search gathered.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// Best hits in result order, at most the largest k asked; `shard` indexes `request.shards`.
    pub hits: Vec<v1::Hit>,
    /// One reply per asked shard, in the order of `request.shards`; each has exactly one outcome. Facets and totals
    /// are per shard; sum them with [`crate::merge`].
    pub shards: Vec<v1::ShardReply>,
    /// Child (leaf or aggregator) that settled each shard, for fetch.
    pub children: Vec<Option<NodeId>>,
    /// Why it stopped.
    pub decision: Option<Decision>,
    /// Attempts, hedges, retries, of this level and below.
    pub tail: v1::TailReport,
    /// Timeline, when asked.
    pub spans: Vec<v1::Span>,
    /// The attempts of this level, in the order sent.
    pub steps: Vec<attempt::Step>,
    /// Every candidate of some branch was ejected; the least bad was tried.
    pub panic: bool,
}

/// The engine. Shared; holds what outlives a query: endpoints, load, dice, policies.
pub struct Gatherer {
    pub(crate) node: NodeId,
    pub(crate) endpoints: Arc<dyn Endpoints>,
    pub(crate) policies: Policies,
    pub(crate) loads: Arc<Loads>,
    pub(crate) picker: Picker,
    pub(crate) hedging: Hedging,
    pub(crate) metrics: GatherMetrics,
    /// Where newer snapshots come from; `None`: the topology never changes.
    pub(crate) current: Option<Routing>,
    pub(crate) together: Together,
}

impl Gatherer {
    /// The engine of `node`, a process of `role`, which asks others through `endpoints`.
    pub fn new(
        node: NodeId,
        role: Role,
        endpoints: Arc<dyn Endpoints>,
        config: impl Into<Live<GatherConfig>>,
        deps: &Deps,
    ) -> Self {
        Self::paced(node, role, endpoints, config, deps, Pace::default())
    }

    /// The same on stretched time, for labs.
    pub fn paced(
        node: NodeId,
        role: Role,
        endpoints: Arc<dyn Endpoints>,
        config: impl Into<Live<GatherConfig>>,
        deps: &Deps,
        pace: Pace,
    ) -> Self {
        let (config, clock) = (config.into(), Clock::new(pace));
        let registry = &deps.telemetry.registry;
        let metrics = GatherMetrics::new(role.as_str(), registry);
        let loads = Arc::new(Loads::new(deps.dice.stream("breaker"), clock));
        Standings::register(role.as_str(), registry, &loads);
        let picks = PickMetrics::new(role.as_str(), registry);
        let picker = Picker::new(node.clone(), config.get().pick, deps.dice.stream("pick"), picks);
        let hedges = HedgeMetrics::new(role.as_str(), registry);
        let hedging = Hedging::new(config.clone(), deps.dice.stream("hedge"), hedges, clock);
        let policies = Policies::new(config);
        let (current, together) = (None, Together::default());
        Self { node, endpoints, policies, loads, picker, hedging, metrics, current, together }
    }

    /// The same engine, which waits a moment for a newer snapshot where a node says that it plans by an old one.
    #[must_use]
    pub fn following(self, routing: Routing) -> Self {
        Self { current: Some(routing), ..self }
    }

    /// Searches `request.shards` and returns by the context's deadline less the reserve (see [`schedule`]): the
    /// context carries the query's own deadline, nothing taken off. Never fails: what could not be had is an outcome.
    pub async fn search(
        self: &Arc<Self>,
        context: &RequestContext,
        routing: &Arc<RoutingSnapshot>,
        request: Arc<v1::SearchRequest>,
    ) -> Gathered {
        let mut run = run::Run::new(self.clone(), context.clone(), routing.clone(), request);
        run.narrow();
        run.complete().await
    }

    /// The same, for a caller that can ask something else: it ends with [`Decision::Lost`] as soon as a shard can't be had,
    /// before anything is asked where that is known beforehand. What was begun by then is extra work; where the budget
    /// does not pay for it, it goes on to the best part it can get.
    pub async fn search_whole(
        self: &Arc<Self>,
        context: &RequestContext,
        routing: &Arc<RoutingSnapshot>,
        request: Arc<v1::SearchRequest>,
    ) -> Gathered {
        let mut run = run::Run::new(self.clone(), context.clone(), routing.clone(), request);
        run.narrow();
        if run.is_hopeless() {
            return run.into_gathered(Decision::Lost);
        }
        run.complete().await
    }

    /// What two versions have in common.
    pub fn together(&self) -> &Together {
        &self.together
    }

    /// Load of the nodes it asked.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Its hedges: settings, which may be replaced while it runs, and what it knows.
    pub fn hedging(&self) -> &Hedging {
        &self.hedging
    }

    /// The settings it runs with, by corpus.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The node whose engine it is.
    pub fn node(&self) -> &NodeId {
        &self.node
    }
}
