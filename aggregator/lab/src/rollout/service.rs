//! The topology service of a lab: the production state machine, told what happens and done what it wants, and the routing
//! snapshot that the production service makes of its state. What is modelled is the leaves alone: to load takes a time in
//! which they are slow, and nothing goes wrong.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use canopy_common::ids::{Epoch, Version};
use canopy_topology::{
    rollout::{Effect, Event, Hold, Policy, Replica, Report, State, Step, step},
    routing::{CorpusRouting, RoutingSnapshot},
    service::desired::Desired,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    world::{CORPUS, VERSION, World},
};

/// Between two ticks, s.
pub const TICK_S: f64 = 0.25;
/// The version that comes.
pub const NEW: u64 = VERSION + 1;

/// What loading is.
#[derive(Debug, Clone, Copy)]
pub struct Loading {
    /// How long it takes, model ms; 0: done at once.
    pub takes: f64,
    /// How many times longer the calls of the leaf take meanwhile.
    pub slowdown: f64,
}

/// Something that was noted for the audit log, or that the lab saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds from the start.
    pub at: f64,
    /// What.
    pub what: String,
}

/// See the module.
pub struct Service {
    world: Arc<World>,
    loading: Loading,
    state: State,
    routing: Arc<RoutingSnapshot>,
    /// Until when, which version, where.
    loads: Vec<(f64, Version, Replica)>,
    /// The step whose judgement is asked for.
    pub judged: Option<Step>,
    /// What happened.
    pub marks: Vec<Mark>,
    /// Most replicas of one shard that loaded at once.
    pub most: usize,
}

impl Service {
    /// All leaves hold the first version, and it is live.
    pub fn new(world: Arc<World>, loading: Loading) -> Result<Self> {
        let routing = world.routing.clone();
        let at_once = Loading { takes: 0.0, slowdown: 1.0 };
        let (loads, marks) = (Vec::new(), Vec::new());
        let state = State::serving(Version(VERSION));
        let mut service =
            Self { world, loading: at_once, state, routing, loads, judged: None, marks, most: 0 };
        let corpus = service.world.routing.corpora.get(CORPUS);
        let placed = corpus.map_or_else(Default::default, |corpus| corpus.shards.clone());
        let placed = placed.into_iter().map(|(shard, nodes)| (shard, nodes.to_vec())).collect();
        service.tell(0.0, Event::Placed(placed))?;
        service.tell(0.0, Event::Roots(BTreeSet::from([Version(VERSION)])))?;
        service.loading = loading;
        Ok(service)
    }

    /// The snapshot that queries go by.
    pub fn routing(&self) -> &Arc<RoutingSnapshot> {
        &self.routing
    }

    /// The corpus in it.
    pub fn corpus(&self) -> Option<&CorpusRouting> {
        self.routing.corpora.get(CORPUS)
    }

    /// Somebody wants the new version. The roots have its statistics.
    pub fn start(&mut self, at: f64, policy: Policy) -> Result<()> {
        let (to, by) = (Version(NEW), "the lab".to_owned());
        self.tell(at, Event::Start { to, by, policy, supersede: false })?;
        self.tell(at, Event::Roots([VERSION, NEW].map(Version).into()))
    }

    /// What the state machine never does: every leaf loads in the same moment; [`Self::tick`] moves all queries when all
    /// have it.
    pub fn push(&mut self, at: f64) {
        let all: Vec<Replica> = self.state.seen.replicas().collect();
        self.marks.push(Mark { at: at / 1000.0, what: format!("pushed to all {} leaves", all.len()) });
        let _later = self.load(at, Version(NEW), all);
    }

    /// Whether all queries go to the new version.
    pub fn done(&self) -> bool {
        self.state.live == Some(Version(NEW))
    }

    /// Time went by: what has loaded is told, then the state machine goes on. Model ms from the start.
    pub fn tick(&mut self, at: f64) -> Result<()> {
        let loads = std::mem::take(&mut self.loads).into_iter();
        let (ready, rest): (Vec<_>, Vec<_>) = loads.partition(|load| load.0 <= at);
        self.loads = rest;
        if let Some(held) = self.loaded(ready) {
            if self.state.active.is_some() {
                self.tell(at, held)?;
            } else {
                // Nobody keeps watch over a push: all that is left is to go by the new version.
                self.state =
                    step(&State::serving(Version(NEW)), Event::Placed(self.state.seen.placed.clone())).0;
                self.tell(at, held)?;
            }
        }
        if self.state.active.is_some() {
            self.tell(at, Event::Tick { elapsed_ms: (TICK_S * 1000.0) as u64 })?;
        }
        Ok(())
    }

    /// One event, and all that follows from it.
    pub fn tell(&mut self, at: f64, event: Event) -> Result<()> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (next, effects) = step(&self.state, event);
            self.state = next;
            for effect in effects {
                match effect {
                    Effect::Load { version, replicas } => events.extend(self.load(at, version, replicas)),
                    Effect::Drop { version, replicas } => {
                        let leaves = replicas.iter().filter_map(|replica| self.world.leaf(replica));
                        leaves.for_each(|leaf| leaf.let_go(version.0));
                    }
                    Effect::Judge { step, .. } => self.judged = Some(step),
                    Effect::Audit { what, .. } => self.marks.push(Mark { at: at / 1000.0, what }),
                    Effect::Refused { reason } => return Err(Error::Lost(reason)),
                    Effect::Route(_) => {}
                }
            }
        }
        self.refresh();
        Ok(())
    }

    /// Leaves begin to load; the event when they are done at once.
    fn load(&mut self, at: f64, version: Version, replicas: Vec<Replica>) -> Option<Event> {
        let until = at + self.loading.takes;
        let loads = replicas.into_iter().map(|replica| (until, version, replica)).collect();
        if self.loading.takes <= 0.0 {
            return self.loaded(loads);
        }
        for (_, _, replica) in &loads {
            if let Some(leaf) = self.world.leaf(replica) {
                leaf.slow_down(self.loading.slowdown);
            }
        }
        self.loads.extend(loads);
        let of = |replica: &Replica| self.loads.iter().filter(|load| load.2.shard == replica.shard).count();
        let most = self.loads.iter().map(|load| of(&load.2)).max().unwrap_or(0);
        self.most = self.most.max(most);
        None
    }

    /// They have it, and say so.
    fn loaded(&self, loads: Vec<(f64, Version, Replica)>) -> Option<Event> {
        if loads.is_empty() {
            return None;
        }
        let of = |(_, version, replica): (f64, Version, Replica)| {
            if let Some(leaf) = self.world.leaf(&replica) {
                leaf.hold(version.0);
                leaf.slow_down(1.0);
            }
            Report { replica, version, hold: Hold::Resident }
        };
        Some(Event::Held(loads.into_iter().map(of).collect()))
    }

    /// The snapshot of the state, when it is another one.
    fn refresh(&mut self) {
        let epoch = Epoch(self.routing.epoch.0 + 1);
        let mut desired = Desired { epoch, ..Desired::default() };
        desired.corpora.insert(CORPUS.to_owned(), self.state.clone());
        let next = desired.snapshot();
        if next.corpora != self.routing.corpora {
            let nodes = self.world.routing.nodes.clone();
            self.routing = Arc::new(RoutingSnapshot { nodes, ..next });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::{self, Hedge},
        workload::Workload,
    };

    fn service(takes: f64) -> Service {
        let workload = Workload { shards: 2, replicas: 3, ..Workload::plain(0.0) };
        let world = World::new(&workload, &policy::Policy::hedge(Hedge::Off)).unwrap();
        Service::new(Arc::new(world), Loading { takes, slowdown: 1.5 }).unwrap()
    }

    fn held(service: &Service, version: u64) -> Vec<usize> {
        let versions = &service.corpus().unwrap().versions;
        versions[&Version(version)].held.values().map(|held| held.len()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn rows_load_one_after_the_other_and_then_all_queries_move() {
        let mut service = service(1_000.0);
        assert_eq!(held(&service, VERSION), [3, 3]);
        let steps = vec![Step { percent: 100, bake: canopy_common::config::Time::ms(0), sample: 0 }];
        service.start(0.0, Policy { steps, ..Policy::default() }).unwrap();
        for tick in 1..=8 {
            service.tick(f64::from(tick) * 250.0).unwrap();
        }
        assert_eq!((held(&service, NEW), service.done(), service.most), (vec![2, 2], false, 1));
        assert_eq!(service.corpus().unwrap().pinned(0), Some(Version(VERSION)));
        (9..=12).for_each(|tick| service.tick(f64::from(tick) * 250.0).unwrap());
        assert!(service.done(), "{:?}", service.marks);
        assert_eq!(service.corpus().unwrap().pinned(0), Some(Version(NEW)));
        assert!(service.marks.last().is_some_and(|mark| mark.what.contains("live")), "{:?}", service.marks);
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_loads_everywhere_at_once() {
        let mut service = service(1_000.0);
        service.push(0.0);
        service.tick(500.0).unwrap();
        assert_eq!((service.done(), service.most), (false, 3));
        service.tick(1_000.0).unwrap();
        assert_eq!((service.done(), held(&service, NEW)), (true, vec![3, 3]));
        assert_eq!(service.corpus().unwrap().pinned(5), Some(Version(NEW)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_step_is_on_one_row_and_on_trial() {
        let mut service = service(0.0);
        let step = |percent| Step { percent, bake: canopy_common::config::Time::ms(1_000), sample: 100 };
        let steps = vec![step(1), Step { sample: 0, ..step(100) }];
        service.start(0.0, Policy { steps, ..Policy::default() }).unwrap();
        assert_eq!(service.judged.clone().map(|step| step.percent), Some(1));
        assert_eq!((held(&service, NEW), held(&service, VERSION)), (vec![1; 2], vec![3; 2]));
        let trial = service.corpus().unwrap().trial.unwrap();
        assert_eq!((trial.version, trial.control), (Version(NEW), Version(VERSION)));
    }
}
