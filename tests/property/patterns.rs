//! Random trees: shape, request, and how each leaf behaves.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::{config::GatherConfig, gather::Gathered};
use canopy_common::error::ErrorClass;
use canopy_proto::v1::{self, completion::Mode};
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Lie, Script},
    model_tree::{ModelTree, Shape},
};
use proptest::prelude::*;
use tokio::time::Instant;

/// `PROPTEST_CASES` when it is set, else `number` cases.
pub fn cases(number: u32) -> ProptestConfig {
    let standard = ProptestConfig::default();
    let untouched = standard.cases == 256;
    let cases = if untouched { number } else { standard.cases };
    ProptestConfig { cases, failure_persistence: None, ..standard }
}

/// A tree, a request and a budget.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub seed: u64,
    pub shards: usize,
    pub documents: usize,
    pub leaves: usize,
    pub replicas: usize,
    pub aggregators: usize,
    pub fanout_max: u32,
    pub branch_shards: u32,
    pub k: u32,
    pub sort: u8,
    pub collapse: bool,
    pub facets: u8,
    pub mode: Mode,
    pub all_but: u32,
    pub min_coverage: f64,
    pub budget_ms: u64,
    pub scripts: Vec<Script>,
}

/// What came of it.
pub struct Outcome {
    pub tree: ModelTree,
    pub request: v1::SearchRequest,
    pub gathered: Gathered,
    pub took: Duration,
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn class() -> impl Strategy<Value = ErrorClass> {
    (1..=12_u32).prop_map(ErrorClass::from_wire)
}

/// What may go wrong at a leaf; half of them are sound.
pub fn fault() -> impl Strategy<Value = Fault> {
    let lie = prop::sample::select(vec![
        Lie::Twice,
        Lie::Unknown,
        Lie::ForeignHit,
        Lie::TooManyHits,
        Lie::Version,
        Lie::Outcome,
        Lie::Facet,
    ]);
    prop_oneof![
        8 => Just(Fault::None),
        2 => class().prop_map(Fault::Refuse),
        1 => (class(), 0..4_usize).prop_map(|(class, after)| Fault::Fail(class, after)),
        1 => (0..4_usize).prop_map(Fault::End),
        1 => (0..4_usize).prop_map(Fault::Hang),
        1 => (class(), 0..8_usize).prop_map(|(class, at)| Fault::ShardFails(class, at)),
        1 => (0..8_usize).prop_map(Fault::ShardSheds),
        1 => lie.prop_map(Fault::Lie),
    ]
}

fn script(fault: impl Strategy<Value = Fault>) -> impl Strategy<Value = Script> {
    let slow = prop_oneof![4 => 0..5_u64, 1 => 5..300_u64];
    let step = prop_oneof![4 => 0..3_u64, 1 => 3..200_u64];
    (fault, slow, step, 1..5_usize, any::<bool>()).prop_map(
        |(fault, start, shard, batch, honours_deadline)| Script {
            start: ms(start),
            shard: ms(shard),
            batch,
            honours_deadline,
            fault,
            ..Default::default()
        },
    )
}

/// Any pattern whose leaves behave by `fault`.
pub fn pattern(fault: fn() -> BoxedStrategy<Fault>) -> impl Strategy<Value = Pattern> {
    let mode = prop::sample::select(vec![Mode::All, Mode::AllBut, Mode::Adaptive]);
    let size = (any::<u64>(), 0..24_usize, 0..20_usize, 1..7_usize, 1..4_usize);
    let shape = (0..4_usize, prop_oneof![2..5_u32, Just(64)], 1..9_u32);
    let asked = (0..14_u32, 0..4_u8, any::<bool>(), 0..3_u8);
    let completion = (mode, 0..4_u32, prop_oneof![Just(0.0), 0.0..1.0]);
    (size, shape, asked, completion, 1..400_u64).prop_flat_map(
        move |(size, shape, asked, completion, budget_ms)| {
            prop::collection::vec(script(fault()), size.3).prop_map(move |scripts| Pattern {
                seed: size.0,
                shards: size.1,
                documents: size.2,
                leaves: size.3,
                replicas: size.4,
                aggregators: shape.0,
                fanout_max: shape.1,
                branch_shards: shape.2,
                k: asked.0,
                sort: asked.1,
                collapse: asked.2,
                facets: asked.3,
                mode: completion.0,
                all_but: completion.1,
                min_coverage: completion.2,
                budget_ms,
                scripts,
            })
        },
    )
}

impl Pattern {
    /// The request, for a tree's corpus.
    fn request(&self, tree: &ModelTree) -> v1::SearchRequest {
        let by = |field: &str, descending| v1::SortBy { field: field.to_owned(), descending };
        let sort = match self.sort {
            0 | 1 => vec![],
            2 => vec![by("published", true)],
            _ => vec![by("published", false), by("_score", true)],
        };
        let facet = |exact| v1::FacetBy { field: "host".to_owned(), size: 3, exact };
        v1::SearchRequest {
            sort,
            collapse: if self.collapse { "host".to_owned() } else { String::new() },
            facets: (0..self.facets).map(|n| facet(n == 1)).collect(),
            completion: Some(v1::Completion {
                mode: self.mode as i32,
                all_but: self.all_but,
                min_coverage: self.min_coverage,
            }),
            trace: self.seed.is_multiple_of(3),
            ..tree.corpus.request(tree.query(), self.k)
        }
    }

    /// The tree, its leaves scripted.
    pub fn tree(&self) -> ModelTree {
        let gather = GatherConfig {
            fanout_max: self.fanout_max,
            branch_shards: self.branch_shards,
            ..Default::default()
        };
        let shape = Shape {
            leaves: self.leaves,
            replicas: self.replicas,
            aggregators: self.aggregators,
            gather,
            seed: self.seed,
        };
        let corpus = ModelCorpus::generate(self.seed, self.shards, self.documents);
        let tree = ModelTree::new(Arc::new(corpus), &shape);
        for (leaf, wanted) in tree.leaves.iter().zip(&self.scripts) {
            leaf.script(|script| *script = *wanted);
        }
        tree
    }

    /// Runs it under paused time.
    pub fn run(&self) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let tree = self.tree();
            let request = self.request(&tree);
            let start = Instant::now();
            let gathered = tree.search(request.clone(), ms(self.budget_ms)).await;
            Outcome { request, gathered, took: start.elapsed(), tree }
        })
    }
}
