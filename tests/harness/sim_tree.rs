//! A tree over a simulated network: model leaves behind production gRPC, production aggregators, and a client host
//! that runs a root's engine and sends queries at a steady rate, whether or not earlier ones were answered. Faults
//! happen at set instants. What happened is written down line by line, without wall time, so that two runs of one seed
//! can be compared byte by byte.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use canopy_aggregator::{
    AggregatorServe,
    config::{AggregatorConfig, GatherConfig},
    endpoints::EndpointSet,
    gather::{Decision, Gatherer},
};
use canopy_common::{
    clock,
    coverage::Coverage,
    deadline::Deadline,
    deps::Deps,
    drain::Drain,
    ids::AttemptId,
    request::RequestContext,
    rng::Dice,
    rpc::{self, RpcConfig},
    telemetry::Telemetry,
};
use canopy_proto::v1;
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::{ModelLeaf, Script},
    model_tree::{Shape, topology},
    sim_net::SimNet,
};

/// What happens to the network or a host.
#[derive(Debug, Clone)]
pub enum Happening {
    /// Packets between two hosts are lost, both ways.
    Partition(String, String),
    /// The end of it.
    Repair(String, String),
    /// Packets between two hosts wait.
    Hold(String, String),
    /// The end of it.
    Release(String, String),
    /// A host loses its power: nothing of it is heard any more, and nobody is told.
    Crash(String),
    /// It starts again.
    Bounce(String),
    /// A process dies: its connections are closed and new ones refused.
    Kill(String),
    /// It starts again.
    Start(String),
    /// A leaf behaves otherwise.
    Script(usize, Script),
    /// An aggregator begins to leave.
    Drain(usize),
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Of everything random.
    pub seed: u64,
    /// The tree.
    pub shape: Shape,
    /// What it serves.
    pub corpus: Arc<ModelCorpus>,
    /// Queries sent.
    pub queries: usize,
    /// Time between two.
    pub every: Duration,
    /// Time each is given.
    pub budget: Duration,
    /// How each decides that it is done.
    pub completion: v1::Completion,
    /// The client leaves each query after that long.
    pub leaves_after: Option<Duration>,
    /// Transport settings.
    pub rpc: RpcConfig,
    /// What happens when, in order.
    pub happenings: Vec<(Duration, Happening)>,
}

impl Scenario {
    /// A calm one: 4 leaves, 12 shards, 2 replicas, 100 queries at 100 a second.
    pub fn calm(seed: u64) -> Self {
        let completion = v1::Completion { mode: v1::completion::Mode::All as i32, ..Default::default() };
        Self {
            seed,
            shape: Shape { seed, ..Shape::default() },
            corpus: Arc::new(ModelCorpus::generate(seed, 12, 40)),
            queries: 100,
            every: Duration::from_millis(10),
            budget: Duration::from_millis(300),
            completion,
            leaves_after: None,
            rpc: RpcConfig::default(),
            happenings: Vec::new(),
        }
    }

    /// Longest a search may take: its budget less the reserve, and the grain of the timer.
    pub fn latest(&self) -> Duration {
        self.budget.saturating_sub(self.shape.gather.reserve.0) + Duration::from_millis(3)
    }

    /// Two levels: fan-out 2, three aggregators.
    pub fn two_levels(mut self) -> Self {
        self.shape.aggregators = 3;
        self.shape.gather = GatherConfig { fanout_max: 2, branch_shards: 8, ..self.shape.gather };
        self
    }
}

/// One answered query.
#[derive(Debug, Clone)]
pub struct Answered {
    /// Number of the query.
    pub number: usize,
    /// When it was sent, from the start.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
    /// Why it ended.
    pub decision: Decision,
    /// What it covered.
    pub coverage: Coverage,
    /// Attempts and retries.
    pub tail: v1::TailReport,
}

/// What a simulation gave.
pub struct Report {
    /// Line by line.
    pub history: Vec<String>,
    /// Queries, in the order sent.
    pub answered: Vec<Answered>,
    /// The leaves, for what they saw.
    pub leaves: Vec<Arc<ModelLeaf>>,
}

type Book = Rc<RefCell<(Vec<String>, Vec<Answered>)>>;

/// Dependencies on a simulated network; every host has dice of its own.
pub fn deps(seed: u64, name: &str) -> Deps {
    Deps {
        net: SimNet::io(),
        clock: Arc::new(clock::Manual::default()),
        dice: Dice::seeded(seed).stream(name),
        telemetry: Telemetry::default(),
    }
}

/// Runs it.
pub fn simulate(scenario: &Scenario) -> Report {
    let mut sim = turmoil::Builder::new()
        .rng_seed(scenario.seed)
        .simulation_duration(Duration::from_mins(10))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(200))
        .max_message_latency(Duration::from_millis(2))
        .tcp_capacity(1 << 16)
        .build();
    let routing = RoutingSnapshot::from_static(&topology(&scenario.corpus, &scenario.shape));
    let routing = Arc::new(routing.expect("a sound topology"));

    let mut switches = Switches::new();
    let mut leaves = Vec::new();
    for number in 0..scenario.shape.leaves {
        let name = format!("leaf-{number}");
        let leaf = Arc::new(ModelLeaf::new(&name, scenario.corpus.clone()));
        leaves.push(leaf.clone());
        let rpc = scenario.rpc.clone();
        let on = switches.entry(name.clone()).or_insert_with(|| watch::channel(true).0).subscribe();
        sim.host(name, move || serve_leaf(leaf.clone(), rpc.clone(), on.clone()));
    }
    let drains: Vec<Drain> = (0..scenario.shape.aggregators).map(|_| Drain::new()).collect();
    for (number, drain) in drains.iter().enumerate() {
        let (scenario, routing, drain) = (scenario.clone(), routing.clone(), drain.clone());
        let name = format!("agg-{number}");
        let on = switches.entry(name.clone()).or_insert_with(|| watch::channel(true).0).subscribe();
        let host = name.clone();
        sim.host(host, move || {
            let (scenario, routing) = (scenario.clone(), routing.clone());
            serve_aggregator(name.clone(), scenario, routing, drain.clone(), on.clone())
        });
    }
    let book: Book = Rc::default();
    sim.client("root", ask(scenario.clone(), routing, book.clone()));

    let happened = run(&mut sim, scenario.seed, &scenario.happenings, &leaves, &drains, &switches);
    book.borrow_mut().0.extend(happened);
    drop(sim);
    let (history, mut answered) = book.take();
    answered.sort_by_key(|answered| answered.number);
    Report { history, answered, leaves }
}

/// Whether each process may run.
pub type Switches = BTreeMap<String, watch::Sender<bool>>;

/// Runs a simulation to its end, with what happens on the way; the lines say when it did.
pub fn run(
    sim: &mut turmoil::Sim<'_>,
    seed: u64,
    happenings: &[(Duration, Happening)],
    leaves: &[Arc<ModelLeaf>],
    drains: &[Drain],
    switches: &Switches,
) -> Vec<String> {
    let mut happened = Vec::new();
    let mut happenings = happenings.iter().peekable();
    loop {
        while let Some((_, happening)) = happenings.next_if(|(at, _)| sim.elapsed() >= *at) {
            happen(sim, happening, leaves, drains, switches);
            happened.push(format!("{:>8?} {happening:?}", sim.elapsed()));
        }
        match sim.step() {
            Ok(true) => return happened,
            Ok(false) => {}
            Err(error) => panic!("SIM_SEED={seed}: {error}"),
        }
    }
}

fn happen(
    sim: &mut turmoil::Sim<'_>,
    happening: &Happening,
    leaves: &[Arc<ModelLeaf>],
    drains: &[Drain],
    switches: &Switches,
) {
    match happening {
        Happening::Partition(a, b) => sim.partition(a.as_str(), b.as_str()),
        Happening::Repair(a, b) => sim.repair(a.as_str(), b.as_str()),
        Happening::Hold(a, b) => sim.hold(a.as_str(), b.as_str()),
        Happening::Release(a, b) => sim.release(a.as_str(), b.as_str()),
        Happening::Crash(host) => sim.crash(host.as_str()),
        Happening::Bounce(host) => sim.bounce(host.as_str()),
        Happening::Script(leaf, script) => leaves[*leaf].script(|now| *now = *script),
        Happening::Drain(aggregator) => drains[*aggregator].start(),
        Happening::Kill(host) => {
            switches[host].send_modify(|on| *on = false);
            sim.crash(host.as_str());
            // The machine is up; its process waits to be started.
            sim.bounce(host.as_str());
        }
        Happening::Start(host) => switches[host].send_modify(|on| *on = true),
    }
}

/// A model leaf behind production gRPC, once its process may run.
pub async fn serve_leaf(
    leaf: Arc<ModelLeaf>,
    rpc: RpcConfig,
    mut on: watch::Receiver<bool>,
) -> turmoil::Result {
    on.wait_for(|on| *on).await?;
    let bound = SimNet::io().bind("0.0.0.0:7000").await?;
    let service = canopy_proto::server::service(leaf.clone(), rpc.max_message.0 as usize);
    rpc::serve_grpc(&rpc, leaf.name(), tonic::service::Routes::new(service), bound, Drain::new()).await?;
    Ok(())
}

async fn serve_aggregator(
    name: String,
    scenario: Scenario,
    routing: Arc<RoutingSnapshot>,
    drain: Drain,
    mut on: watch::Receiver<bool>,
) -> turmoil::Result {
    on.wait_for(|on| *on).await?;
    let serve = AggregatorServe {
        node: name.as_str().into(),
        config: AggregatorConfig::default(),
        gather: scenario.shape.gather.clone().into(),
        rpc: scenario.rpc.clone(),
        membership: routing.into(),
        grpc: SimNet::io().bind("0.0.0.0:7000").await?,
        admin: None,
    };
    canopy_aggregator::serve(serve, deps(scenario.seed, &name), drain).await?;
    // A host that ends ends its network too; the process' end is not what is simulated.
    futures::future::pending().await
}

/// Sends the queries and writes down the answers.
async fn ask(scenario: Scenario, routing: Arc<RoutingSnapshot>, book: Book) -> turmoil::Result {
    let deps = deps(scenario.seed, "root");
    let endpoints = Arc::new(EndpointSet::new(scenario.rpc.clone(), deps.net.clone(), &routing));
    let gather = scenario.shape.gather.clone();
    let gatherer = Arc::new(Gatherer::new("root".into(), Role::Root, endpoints, gather, &deps));
    let start = Instant::now();
    let tasks = tokio::task::LocalSet::new();
    for number in 0..scenario.queries {
        let (gatherer, routing, book) = (gatherer.clone(), routing.clone(), book.clone());
        let (scenario, query) = (scenario.clone(), deps.dice.query_id());
        tasks.spawn_local(async move {
            sleep_until(start + scenario.every * number as u32).await;
            let sent = Instant::now();
            let context = RequestContext::new(query, AttemptId(0), Deadline::after(scenario.budget));
            let request = v1::SearchRequest {
                completion: Some(scenario.completion),
                ..scenario.corpus.request(query, 10)
            };
            let request = Arc::new(request);
            let cancel = context.cancel.clone();
            let search = gatherer.search(&context, &routing, request.clone());
            let leave = async {
                match scenario.leaves_after {
                    Some(after) => sleep(after).await,
                    None => futures::future::pending().await,
                }
                cancel.cancel();
                futures::future::pending::<()>().await;
            };
            let gathered = tokio::select! {
                biased;
                gathered = search => gathered,
                () = leave => unreachable!("it never ends"),
            };
            let coverage = check(&scenario.corpus, &request, &gathered);
            let answered = Answered {
                number,
                at: sent - start,
                took: sent.elapsed(),
                decision: gathered.decision.expect("a decision"),
                coverage,
                tail: gathered.tail,
            };
            let line = line(&answered, &gathered.shards);
            let mut book = book.borrow_mut();
            book.0.push(line);
            book.1.push(answered);
        });
    }
    tasks.await;
    // Time for what was cancelled to arrive where it runs.
    sleep(Duration::from_millis(100)).await;
    Ok(())
}

fn line(answered: &Answered, shards: &[v1::ShardReply]) -> String {
    let Answered { number, at, took, decision, coverage, tail } = answered;
    let nodes: Vec<&str> = shards.iter().map(|shard| shard.node.as_str()).collect();
    format!(
        "{:>8?} query {number} sent at {at:?} took {took:?} {decision:?} {}/{} of {} documents, {} attempts {} retries {nodes:?}",
        *at + *took,
        coverage.answered,
        coverage.shards_total,
        coverage.documents_searched,
        tail.attempts,
        tail.retries,
    )
}
