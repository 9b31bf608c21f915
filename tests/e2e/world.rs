//! What the tests of this binary share: one store, and two trees over it that are never harmed. A test that cuts links
//! or damages files starts a tree, or copies a store, of its own.

use std::sync::OnceLock;

use canopy_format::schema::Schema;
use canopy_indexer::build::BuildReport;
use canopy_root::config::Profile;
use canopy_tests::{
    cluster::{Cluster, Shape},
    corpus::{self, Page},
    form::by_form,
    oracle::Oracle,
    publish::Shelf,
};
use tokio::runtime::Runtime;

use crate::cases;

/// Weight of the static rank in the profile `ranked`.
pub const PRIOR_WEIGHT: f32 = 1.5;

/// The shared things.
pub struct World {
    /// The generated pages, published as `web-1`, `web-2`, … by the number of shards.
    pub pages: Vec<Page>,
    /// The store.
    pub shelf: Shelf,
    /// What building `cases` reported.
    pub cases: BuildReport,
    /// Knows the answers for the generated pages.
    pub oracle: Oracle,
    /// A root over four leaves.
    pub flat: Cluster,
    /// A root over two aggregators over four leaves, one shard to a branch.
    pub deep: Cluster,
}

/// Shards of the corpora.
pub fn shard_counts() -> &'static [u32] {
    by_form(&[1, 2, 8], &[1, 2, 8], &[1, 2, 8, 64])
}

/// Name of the corpus with so many shards.
pub fn corpus_of(shards: u32) -> String {
    format!("web-{shards}")
}

async fn make() -> World {
    let pages = corpus::generate(1, by_form(1000, 1500, 6000));
    let (shelf, schema) = (Shelf::new(), Schema::web());
    let mut corpora = Vec::new();
    for shards in shard_counts() {
        shelf.publish(&corpus_of(*shards), &schema, *shards, &pages).await;
        corpora.push((corpus_of(*shards), *shards));
    }
    let (_, cases) = shelf.publish_records("cases", &schema, 4, &cases::records()).await;
    corpora.push(("cases".to_owned(), 4));
    let corpora: Vec<(&str, u32)> = corpora.iter().map(|(name, shards)| (name.as_str(), *shards)).collect();
    let start = async |shape: Shape| {
        let mut config = shape.config(&corpora);
        config.root.profiles.insert("ranked".to_owned(), Profile { prior_weight: PRIOR_WEIGHT });
        Cluster::start(&shelf.store, &config).await
    };
    let (flat, deep) = (start(Shape::flat(4, 2)).await, start(Shape::two_levels(4, 2)).await);
    let oracle = Oracle::new(&schema, &pages);
    World { pages, shelf, cases, oracle, flat, deep }
}

/// Runs a test on the shared runtime, which outlives every test.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        built.expect("a runtime")
    });
    runtime.block_on(test)
}

/// Runs a test with the shared things.
pub fn with_world<F: Future<Output = ()>>(test: impl FnOnce(&'static World) -> F) {
    static WORLD: OnceLock<World> = OnceLock::new();
    let world = WORLD.get_or_init(|| run(make()));
    run(test(world));
}
