//! What a rollout would do, before it does it: the machine itself, run on a copy of the state in which every load and
//! every judgement is fine. So what is printed is what happens, as long as nothing fails. Units: bytes, queries/s,
//! seconds.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{NodeId, ShardId, Version};
use serde::Serialize;

use super::{
    event::{Effect, Event},
    policy::{Policy, Step},
    seen::{Hold, Replica, Report},
    state::{Phase, State},
    step::step,
};
use crate::{
    gates::{judged::Judged, policy::FEWEST},
    span,
};

/// What is known of the load.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Its name.
    pub corpus: String,
    /// Queries per second of the corpus.
    pub queries_per_second: f64,
    /// Bytes of each shard of the new version.
    pub bytes: BTreeMap<ShardId, u64>,
    /// How many shards the new version has, by group; empty: not known.
    pub shards: BTreeMap<String, u32>,
}

/// What a rollout would do.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DryRun {
    /// Whether it would begin at once, wait or supersede.
    pub answer: Vec<String>,
    /// Why it would be refused.
    pub refused: Option<String>,
    /// Its steps.
    pub steps: Vec<StepPlan>,
    /// What no gate of it judges, and why.
    pub skipped: Vec<String>,
    /// What to know before starting it.
    pub warnings: Vec<String>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepPlan {
    /// The policy's.
    #[serde(flatten)]
    pub step: Step,
    /// Loads before it, one after the other.
    pub waves: Vec<Wave>,
    /// Least replicas of a shard that hold the new version then.
    pub rows: usize,
    /// Queries per second at each replica of the new version.
    pub new_replica_qps: f64,
    /// And at each of the old version's, when the replicas that hold both take their part of the new one's too.
    pub old_replica_qps: f64,
    /// Until the sample is there, at this rate; `None`: never.
    pub sample_seconds: Option<f64>,
}

/// Replicas that load together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wave {
    /// How many.
    pub replicas: usize,
    /// On so many leaves.
    pub leaves: usize,
    /// Bytes that are fetched.
    pub bytes: u64,
}

/// Runs a rollout to `to` on a copy of the state.
pub fn dry_run(state: &State, to: Version, policy: &Policy, supersede: bool, load: &Load) -> DryRun {
    let start = |policy: Policy| Event::Start { to, by: "dry run".to_owned(), policy, supersede };
    let (_, effects) = step(state, start(policy.clone()));
    let mut run = DryRun::default();
    for effect in effects {
        match effect {
            Effect::Audit { what, .. } => run.answer.push(what),
            Effect::Refused { reason } => run.refused = Some(reason),
            _ => {}
        }
    }
    run.refused = run.refused.or_else(|| misplaced(&load.corpus, state, to, &load.shards));
    let policy = if state.live.is_none() { policy.first() } else { policy.clone() };
    if run.refused.is_some() || state.seen.placed.is_empty() || state.live == Some(to) {
        return run;
    }

    let mut waves = waves(state, to, &policy, load);
    let mut before = 0;
    for (at, step) in policy.steps.iter().enumerate() {
        let rows = |nodes: &Vec<NodeId>| Policy::rows(step.percent, nodes.len());
        let least = state.seen.placed.values().map(rows).min().unwrap_or(0);
        let fewest = state.seen.placed.values().map(Vec::len).min().unwrap_or(0);
        let share = load.queries_per_second * f64::from(step.percent) / 100.0;
        // In shadow its sample are the queries that are copied.
        let compared = match step.percent {
            0 => load.queries_per_second * f64::from(policy.shadow_percent) / 100.0,
            _ => share,
        };
        let plan = StepPlan {
            step: step.clone(),
            waves: waves.remove(&at).unwrap_or_default(),
            rows: least,
            new_replica_qps: share / least.max(1) as f64,
            old_replica_qps: (load.queries_per_second - share) / fewest.max(1) as f64,
            sample_seconds: (compared > 0.0).then(|| step.sample as f64 / compared),
        };
        run.warnings.extend(warnings(&plan, &policy, load));
        run.warnings.extend(hasty(&plan, before, state.live));
        before = step.percent;
        run.steps.push(plan);
    }
    run.skipped = skipped(state, &policy, unlike(state, to, &load.shards));
    run.warnings.extend(warnings_of_the_tree(state, &policy));
    run.warnings.extend(surplus(state, to, &load.shards));
    run
}

/// Of the shards that are placed, those that the new version does not have.
fn void<'a>(state: &'a State, shards: &BTreeMap<String, u32>) -> BTreeSet<&'a ShardId> {
    let has = |shard: &ShardId| shards.get(&*shard.group).is_some_and(|count| shard.number < *count);
    state.seen.placed.keys().filter(|shard| !has(shard)).collect()
}

/// Why the version can't be rolled out as the corpus is placed: it has shards that are on no leaf.
pub fn misplaced(corpus: &str, state: &State, to: Version, shards: &BTreeMap<String, u32>) -> Option<String> {
    let placed = |group: &str| state.seen.placed.keys().filter(|shard| *shard.group == *group).count();
    let lacking = |(group, count): (&String, &u32)| {
        let first = (0..*count)
            .map(|number| ShardId::new(group, number))
            .find(|shard| !state.seen.placed.contains_key(shard))?;
        let placed = placed(group);
        Some(format!(
            "{to} has {count} shards of {group}, and {placed} are placed ({first} is on no leaf); place them first: canopy \
             topology place --corpus {corpus} --group {group} --shards {count}"
        ))
    };
    shards.iter().find_map(lacking)
}

/// How many shards the version that serves and the new one have, where these are not the same.
fn unlike(state: &State, to: Version, shards: &BTreeMap<String, u32>) -> Option<[usize; 2]> {
    let live = state.live?;
    if shards.is_empty() {
        return state.seen.unlike(live, to);
    }
    let new = void(state, shards);
    let old: BTreeSet<&ShardId> =
        state.seen.placed.keys().filter(|shard| state.seen.lacks(live, shard)).collect();
    let count = |void: &BTreeSet<&ShardId>| state.seen.placed.len() - void.len();
    (old != new).then(|| [count(&old), count(&new)])
}

/// What is placed and the new version does not have.
fn surplus(state: &State, to: Version, shards: &BTreeMap<String, u32>) -> Option<String> {
    let void = if shards.is_empty() { BTreeSet::new() } else { void(state, shards) };
    let first = void.first()?;
    Some(format!(
        "{} of the placed shards are not of {to} ({first}, …): they stay empty, and can be taken away by `canopy topology place \
         --shards N` once no version that is kept has them",
        void.len()
    ))
}

fn skipped(state: &State, policy: &Policy, unlike: Option<[usize; 2]>) -> Vec<String> {
    let Some(first) = policy.steps.first().filter(|_| state.live.is_some()) else { return Vec::new() };
    let mut skipped = Vec::new();
    if first.percent == 100 {
        skipped.push("anything: all queries go to it at once".to_owned());
        return skipped;
    }
    if policy.judged.is_empty() {
        skipped.push("nDCG@10: the plan names no judged queries (judged = \"FILE\")".to_owned());
    }
    if first.percent > 0 {
        skipped.push("overlap of the answers of both: the plan has no step of 0 %".to_owned());
    }
    let canary = |step: &&Step| (1..100).contains(&step.percent);
    if let Some([before, after]) = unlike {
        skipped.push(format!(
            "latencies: v{} and the new version have {before} and {after} shards, so that a query is another number of searches",
            state.live.map_or(0, |live| live.0)
        ));
    } else if !policy.steps.iter().any(|step| canary(&step)) {
        skipped.push(
            "latencies: the plan has no step of 1 to 99 %, in which both versions answer people".to_owned(),
        );
    }
    let compared = policy.steps.iter().filter(|step| step.percent < 100).map(|step| step.sample).max();
    if compared.unwrap_or(0) < FEWEST {
        skipped.push(format!(
            "the step at 100 %, unless an earlier one happens to compare {FEWEST} queries: none of them has a sample"
        ));
    }
    skipped
}

/// The loads before each step.
fn waves(state: &State, to: Version, policy: &Policy, load: &Load) -> BTreeMap<usize, Vec<Wave>> {
    let mut quick = policy.clone();
    let at_once = canopy_common::config::Time::ms(0);
    quick.steps.iter_mut().for_each(|step| (step.bake, step.sample) = (at_once, 0));
    quick.judged = Judged::default();
    let mut model = State { live: state.live, seen: state.seen.clone(), ..State::default() };
    let mut waves: BTreeMap<usize, Vec<Wave>> = BTreeMap::new();
    (model, _) = step(&model, Event::Start { to, by: String::new(), policy: quick, supersede: false });
    model.seen.roots.insert(to);
    let mut event = Event::Restarted;
    loop {
        let (next, effects) = step(&model, event);
        let at = match next.active.as_ref().map(|rollout| &rollout.phase) {
            Some(Phase::Load { step }) => *step,
            _ => return waves,
        };
        model = next;
        let loads = effects.into_iter().filter_map(|effect| match effect {
            Effect::Load { version, replicas } if version == to => Some(replicas),
            _ => None,
        });
        let started: Vec<Replica> = loads.flatten().collect();
        if started.is_empty() {
            return waves;
        }
        let leaves: BTreeSet<&NodeId> = started.iter().map(|replica| &replica.node).collect();
        let bytes = started.iter().filter_map(|replica| load.bytes.get(&replica.shard)).sum();
        let wave = Wave { replicas: started.len(), leaves: leaves.len(), bytes };
        waves.entry(at).or_default().push(wave);
        let held = |replica| Report { replica, version: to, hold: Hold::Resident };
        event = Event::Held(started.into_iter().map(held).collect());
    }
}

fn warnings(plan: &StepPlan, policy: &Policy, load: &Load) -> Vec<String> {
    let mut found = Vec::new();
    let percent = plan.step.percent;
    let limit = (plan.step.bake.0 + policy.gate_limit.0).as_secs_f64();
    if plan.step.sample > 0 && load.queries_per_second > 0.0 {
        let needed = plan.sample_seconds.unwrap_or(f64::INFINITY);
        let words = |seconds: f64| span::words((seconds * 1000.0) as u64);
        let rate = load.queries_per_second;
        let (takes, halts) = (words(needed), words(limit));
        if needed > limit && percent > 0 {
            found.push(format!(
                "at {rate:.1} queries/s the sample of the {percent} % step takes {takes} and it halts after {halts}; lower its \
                 sample or raise gate_limit"
            ));
        } else if needed > limit {
            let copied = policy.shadow_percent;
            found.push(format!(
                "at {rate:.1} queries/s, of which {copied} % are copied, the sample of the shadow step takes {takes} and it halts \
                 after {halts}; raise shadow_percent, lower its sample or raise gate_limit"
            ));
        }
    }
    found
}

/// A version that many are answered from before anybody saw how it is. A first version has no smaller step.
fn hasty(plan: &StepPlan, before: u8, live: Option<Version>) -> Option<String> {
    let percent = plan.step.percent;
    (percent > 1 && before == 0 && live.is_some()).then(|| {
        format!(
            "the first queries that are answered from it are {percent} % at once; put a step of 1 % before"
        )
    })
}

fn warnings_of_the_tree(state: &State, policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    let placed = &state.seen.placed;
    let single: Vec<&ShardId> =
        placed.iter().filter(|(_, nodes)| nodes.len() == 1).map(|(shard, _)| shard).collect();
    if let Some(first) = single.first() {
        found.push(format!(
            "{} of {} shards have a single replica ({first}, …): it loads while it serves, and above 1 % the loss of its \
             leaf is the loss of both versions",
            single.len(),
            placed.len()
        ));
    }
    let fewest = placed.values().map(Vec::len).min().unwrap_or(0);
    if policy.max_unavailable as usize >= fewest && fewest > 1 {
        found.push(format!(
            "max_unavailable is {} and some shard has {fewest} replicas; one of them is always left alone",
            policy.max_unavailable
        ));
    }
    if !state.seen.away.is_empty() {
        let names: Vec<String> = state.seen.away.iter().take(5).map(ToString::to_string).collect();
        found.push(format!("{} leaves are away: {}", state.seen.away.len(), names.join(", ")));
    }
    if state.live.is_none() {
        found.push(
            "it is the corpus's first version: nothing to compare it with, nothing to go back to".to_owned(),
        );
    }
    found
}
