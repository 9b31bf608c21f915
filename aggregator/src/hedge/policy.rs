//! What the engine of one node keeps for its hedges: the settings, the classes, the bucket, the fuse and the dice. Each
//! query asks it before its first attempts, before each extra one, and tells it how attempts ended.
//!
//! Extra attempts are refused in words that are counted apart: `denied` (the bucket is empty) and `withheld` (one due
//! hedge in a thousand is not sent, so that what lies beyond the delay stays seen: where every slow attempt is stopped
//! by its hedge, nobody would notice that the slow ones became rare, or fast). One in a hundred would cost an eighth of
//! what hedges save at the 99th percentile of a hundred shards (`canopy lab tail`).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use canopy_common::{config::Live, rng::Dice};
use canopy_proto::v1::{self, query::Node};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    budget::{Bucket, Fuse},
    class::ClassState,
    config::HedgeConfig,
    decision::{Asked, Decision},
    metrics::HedgeMetrics,
};
use crate::{config::GatherConfig, pace::Clock};

/// Classes kept; more share coarser ones, until some were not used for that long.
const CLASSES: usize = 128;
const UNUSED: Duration = Duration::from_mins(10);
/// How often a full table is looked through.
const SWEEP: Duration = Duration::from_secs(10);
/// One due hedge in so many is withheld.
const WITHHELD: u64 = 1000;
/// The timers of the runtime have millisecond grain.
pub const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// What makes attempts alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClassKey {
    /// Corpus and group of its shards, hashed.
    pub group: u64,
    /// Coarse cost of the query, see [`cost`].
    pub cost: u8,
    /// Power of two of the shards asked at once.
    pub shards: u8,
    /// Asked of an aggregator.
    pub subtree: bool,
}

/// Hash of a corpus and the group of `shard` (`main` of `main/3`).
pub fn group(corpus: &str, shard: &str) -> u64 {
    let group = shard.rsplit_once('/').map_or(shard, |(group, _)| group);
    xxh3_64_with_seed(group.as_bytes(), xxh3_64_with_seed(corpus.as_bytes(), 0))
}

/// Coarse cost of a query: the power of two of the words that score (at most 32), whether all that matches has to be
/// looked at, and whether very many hits are wanted.
pub fn cost(request: &v1::SearchRequest) -> u8 {
    let words = request.query.as_ref().map_or(0, scoring).min(32);
    let whole = !request.sort.is_empty()
        || !request.facets.is_empty()
        || !request.collapse.is_empty()
        || request.total() == v1::TotalMode::TotalExact;
    let deep = request.shards.first().is_some_and(|shard| shard.k >= 1000);
    (words.max(1).ilog2() as u8) | (u8::from(whole) << 3) | (u8::from(deep) << 4)
}

/// Words, phrases and patterns that score.
fn scoring(query: &v1::Query) -> usize {
    let mut open = vec![query];
    let mut count = 0;
    while let Some(query) = open.pop() {
        match &query.node {
            Some(Node::Bool(both)) => open.extend(both.must.iter().chain(&both.should)),
            Some(Node::Term(_) | Node::Phrase(_) | Node::Expanded(_)) => count += 1,
            _ => {}
        }
    }
    count
}

/// A class, shared by the queries of it.
pub struct Class {
    state: Mutex<ClassState>,
    /// When it was asked for last, milliseconds of the engine's clock.
    used: AtomicU64,
}

impl Class {
    fn new(now: Instant, used: u64) -> Self {
        Self { state: Mutex::new(ClassState::new(now)), used: AtomicU64::new(used) }
    }

    /// Looks at or changes what it knows.
    pub fn with<T>(&self, f: impl FnOnce(&mut ClassState) -> T) -> T {
        f(&mut self.state.lock())
    }
}

/// Why a due hedge was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// To keep seeing what lies beyond the delay.
    Withheld,
    /// The bucket is empty.
    Denied,
}

fn made_of(config: Arc<GatherConfig>) -> (Arc<GatherConfig>, Arc<HedgeConfig>) {
    let hedge = Arc::new(HedgeConfig::from(&*config));
    (config, hedge)
}

/// The hedging of one engine.
pub struct Hedging {
    live: Live<GatherConfig>,
    /// What was made of which settings.
    made: ArcSwap<(Arc<GatherConfig>, Arc<HedgeConfig>)>,
    classes: RwLock<BTreeMap<ClassKey, Arc<Class>>>,
    began: Instant,
    /// When a full table was looked through last.
    swept: AtomicU64,
    bucket: Mutex<Bucket>,
    fuse: Mutex<Fuse>,
    dice: Dice,
    clock: Clock,
    /// What it counts.
    pub metrics: HedgeMetrics,
}

impl Hedging {
    /// Nothing seen yet, a full bucket.
    pub fn new(
        config: impl Into<Live<GatherConfig>>,
        dice: Dice,
        metrics: HedgeMetrics,
        clock: Clock,
    ) -> Self {
        let (now, live) = (clock.now(), config.into());
        let made = made_of(live.get());
        let config = &made.1;
        Self {
            bucket: Mutex::new(Bucket::new(now, config.limits)),
            fuse: Mutex::new(Fuse::new(now)),
            made: ArcSwap::from_pointee(made),
            live,
            classes: RwLock::default(),
            began: now,
            swept: AtomicU64::new(0),
            dice,
            clock,
            metrics,
        }
    }

    /// The settings now.
    pub fn config(&self) -> Arc<HedgeConfig> {
        let (live, made) = (self.live.get(), self.made.load());
        if Arc::ptr_eq(&live, &made.0) {
            return made.1.clone();
        }
        let made = made_of(live);
        let config = made.1.clone();
        self.made.store(Arc::new(made));
        config
    }

    /// The class of a key, or of a coarser one when there are too many in use.
    pub fn class(&self, key: ClassKey) -> Arc<Class> {
        let now = self.clock.now();
        let at = now.saturating_duration_since(self.began).as_millis() as u64;
        let coarse = ClassKey { subtree: key.subtree, ..ClassKey::default() };
        let known = {
            let classes = self.classes.read();
            let full = classes.len() >= CLASSES && !self.may_sweep(at);
            classes.get(&key).or_else(|| classes.get(&coarse).filter(|_| full)).cloned()
        };
        let class = known.unwrap_or_else(|| {
            let mut classes = self.classes.write();
            if classes.len() >= CLASSES {
                self.swept.store(at, Ordering::Relaxed);
                let unused = at.saturating_sub(UNUSED.as_millis() as u64);
                classes.retain(|_, class| class.used.load(Ordering::Relaxed) >= unused);
            }
            let key = if classes.len() < CLASSES || classes.contains_key(&key) { key } else { coarse };
            classes.entry(key).or_insert_with(|| Arc::new(Class::new(now, at))).clone()
        });
        class.used.store(at, Ordering::Relaxed);
        class
    }

    fn may_sweep(&self, at: u64) -> bool {
        at.saturating_sub(self.swept.load(Ordering::Relaxed)) >= SWEEP.as_millis() as u64
    }

    /// What a branch of `class` does, and the dice of a hedge that is sent only sometimes.
    pub fn decide(&self, class: &Class, config: &HedgeConfig, asked: Asked) -> Decision {
        let now = self.clock.now();
        let asked = Asked { frozen: self.level(config) < 0.5, ..asked };
        let decision = class.with(|state| state.decide(now, config, &asked));
        self.metrics.decided(&decision);
        decision
    }

    /// How full the bucket is, 0..1.
    fn level(&self, config: &HedgeConfig) -> f64 {
        let level = self.bucket.lock().level();
        self.metrics.budget.set(level);
        level / config.limits.burst.max(1.0)
    }

    /// A branch is asked for the first time; its shards earn `tokens`.
    pub fn asked(&self, config: &HedgeConfig, tokens: f64) {
        let now = self.clock.now();
        self.bucket.lock().earn(now, config.limits, tokens);
        self.fuse.lock().asked(now);
    }

    /// Whether a hedge of that many shards may go; `learned`: whether some are withheld.
    pub fn may_hedge(&self, config: &HedgeConfig, shards: usize, learned: bool) -> Result<(), Refusal> {
        if learned && self.dice.below(WITHHELD) == 0 {
            self.metrics.withheld.inc();
            return Err(Refusal::Withheld);
        }
        if self.spend(config, shards) { Ok(()) } else { Err(Refusal::Denied) }
    }

    /// Takes what it costs to ask that many shards once more; counts a refusal.
    pub fn spend(&self, config: &HedgeConfig, shards: usize) -> bool {
        let may = self.bucket.lock().spend(self.clock.now(), config.limits, shards as f64);
        if !may {
            self.metrics.denied.inc();
        }
        may
    }

    /// Gives back what was taken for a hedge that found nobody to ask.
    pub fn refund(&self, config: &HedgeConfig, shards: usize) {
        self.bucket.lock().earn(self.clock.now(), config.limits, shards as f64);
    }

    /// Takes what a probe costs, whether it is there or not: probes are rare by their own rules, and a node whose probe
    /// costs more than the bucket can hold must be able to come back.
    pub fn charge(&self, config: &HedgeConfig, shards: usize) {
        self.bucket.lock().charge(self.clock.now(), config.limits, shards as f64);
    }

    /// Takes what a copy for a neglected replica costs, if so much is left over that no hedge misses it.
    pub fn spare(&self, config: &HedgeConfig, shards: usize) -> bool {
        self.bucket.lock().spare(self.clock.now(), config.limits, shards as f64)
    }

    /// Whether what never began may be asked again outside the budget.
    pub fn may_retry(&self) -> bool {
        self.fuse.lock().retry(self.clock.now())
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        probability >= 1.0 || self.dice.unit() < probability
    }

    /// A node asked a class to be left alone for so long.
    pub fn pushed_back(&self, class: &Class, pushback: Duration) {
        class.with(|state| state.pushed_back(self.clock.now(), self.clock.span(pushback)));
    }

    /// What it knows, for status pages.
    pub fn status(&self) -> serde_json::Value {
        let (now, config) = (self.clock.now(), self.config());
        let classes = self.classes.read().clone();
        let classes = classes.iter().map(|(key, class)| {
            let mut status = class.with(|state| state.status(now));
            status["class"] = format!(
                "{:016x}/{}/{}{}",
                key.group,
                key.cost,
                key.shards,
                if key.subtree { "/subtree" } else { "" }
            )
            .into();
            status
        });
        serde_json::json!({
            "mode": config.mode.to_string(),
            "extra_work": config.ratio,
            "budget": self.bucket.lock().level(),
            "budget_burst": config.limits.burst,
            "classes": classes.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
