//! What these tests share: one store. Every test starts processes of its own over it.

use std::{path::PathBuf, sync::OnceLock};

use canopy_format::schema::Schema;
use canopy_tests::{corpus, publish::Shelf};
use tokio::runtime::Runtime;

/// Shards of the corpus `web`.
pub const SHARDS: u32 = 4;

/// Everything there is.
pub const EVERY: (&str, &str) = ("query_json", r#"{"match_all":{}}"#);

/// A store with the corpus `web`.
pub struct Stage {
    /// The store.
    pub shelf: Shelf,
    /// Documents of each shard.
    pub documents: Vec<u64>,
}

impl Stage {
    /// Where the store is.
    pub fn store(&self) -> PathBuf {
        self.shelf.dir().join("store")
    }
}

async fn make() -> Stage {
    let shelf = Shelf::new();
    let manifest = shelf.publish("web", &Schema::web(), SHARDS, &corpus::generate(2, 1200)).await;
    Stage { documents: manifest.shards.iter().map(|entry| entry.documents).collect(), shelf }
}

/// Runs a test on a runtime of its own with the shared store. One at a time: the tests measure time on one machine.
pub fn run<F: Future<Output = ()>>(test: impl FnOnce(&'static Stage) -> F) {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    canopy_tests::process::binary();
    let runtime = Runtime::new().expect("a runtime");
    let stage = STAGE.get_or_init(|| runtime.block_on(make()));
    runtime.block_on(test(stage));
    runtime.shutdown_background();
}
