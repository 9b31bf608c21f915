//! What the tests share: one browser, and a tree of two levels over the sample corpus with some hostile pages in it. A
//! test that harms a tree starts one of its own.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    sync::{Arc, OnceLock},
};

use canopy_cli::config::Config;
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering},
};
use canopy_indexer::build::{self, BuildRequest};
use canopy_root::config::RootConfig;
use canopy_tests::{
    cluster::{Cluster, Shape},
    corpus::{self, Page as Document},
    publish::Shelf,
};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::{driver::Driver, page::Page};

/// Corpus of the sample.
pub const WEB: &str = "web";
/// A small second corpus.
pub const NOTES: &str = "notes";
/// Its shards, and those of the sample.
pub const SHARDS: u32 = 4;
/// An example of the start page.
pub const EXAMPLE: &str = "replication slots";

/// The shared things.
pub struct World {
    /// The store.
    pub shelf: Shelf,
    /// A tree that is never harmed.
    pub tree: Cluster,
    driver: Mutex<Arc<Driver>>,
}

/// Pages that try to be more than text.
fn hostile() -> Vec<Document> {
    let markup = "zebrafinch </p></article><h1>gotcha</h1><script>window.hit = 'script'</script> \
                  <img src=x onerror=\"window.hit = 'image'\"> zebrafinch &lt;script&gt; <mark>fake</mark>";
    let title = "</title><script>window.hit = 'title'</script>\" onmouseover=\"window.hit = 'attribute'";
    let mut strange = Document::plain("javascript:window.hit='link'", "zebrafinch as a link", "zebrafinch");
    strange.host = Some("\"><script>window.hit = 'host'</script>".to_owned());
    vec![Document::plain("https://evil.example/\"><script>", title, markup), strange]
}

async fn publish(shelf: &Shelf) {
    let corpus =
        Corpus { name: WEB.to_owned(), schema: Schema::web(), partitions: 16, ordering: Ordering::default() };
    shelf.store.create_corpus(&corpus).await.expect("a new corpus");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/sample/web.jsonl.gz");
    let hostile = hostile().iter().map(Document::record).collect::<Vec<_>>();
    let hostile = corpus::write(&shelf.dir().join("hostile.jsonl"), &hostile);
    let request = BuildRequest {
        shards: Some(SHARDS),
        warmup: Some(vec![EXAMPLE.to_owned(), "データベース".to_owned()]),
        ..BuildRequest::new(shelf.store.clone(), WEB, vec![sample, hostile])
    };
    let report = build::run(request).await.expect("a version");
    assert!(report.documents > 900, "the sample is there");
    let notes: Vec<Document> = (0..12)
        .map(|n| {
            Document::plain(
                &format!("https://notes.example/{n}"),
                &format!("Note {n}"),
                "replication of notes",
            )
        })
        .collect();
    shelf.publish(NOTES, &Schema::web(), 1, &notes).await;
}

/// Configuration of a tree; queries have time enough on a busy machine, so that only what a test does makes answers
/// incomplete.
pub fn config(shape: &Shape, corpora: &[(&str, u32)]) -> Config {
    let mut config = shape.config(corpora);
    config.root = RootConfig { default_timeout: canopy_common::config::Time::ms(20_000), ..config.root };
    config
}

async fn make() -> World {
    let shelf = Shelf::new();
    publish(&shelf).await;
    let config = config(&Shape::two_levels(4, 2), &[(WEB, SHARDS)]);
    let profile = shelf.dir().join("profile");
    let (tree, driver) = tokio::join!(Cluster::start(&shelf.store, &config), Driver::start(&profile));
    World { shelf, tree, driver: Mutex::new(Arc::new(driver)) }
}

impl World {
    fn driver(&self) -> Arc<Driver> {
        self.driver.lock().clone()
    }

    /// The window, on some tree.
    pub async fn page(&self, tree: &Cluster) -> Page {
        Page::fresh(self.driver(), tree.root().address()).await
    }

    /// Runs a test. When it fails, a picture of what it saw is kept; when it does not, the browser must have found
    /// nothing to complain about.
    async fn attempt(&self, name: &str, test: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
        let checked = async {
            test.await;
            assert_eq!(Page::of(self.driver()).console().await, [""; 0], "complaints of the browser");
        };
        let ended = AssertUnwindSafe(checked).catch_unwind().await;
        if ended.is_err() && self.driver().lives().await {
            let picture = Page::of(self.driver()).keep_picture(&format!("failed-{name}")).await;
            eprintln!("what the browser showed: {}", picture.display());
        }
        ended
    }
}

/// Runs a test; the tests take turns at the browser. A browser that died says nothing about the page: the test is run
/// once more in a new one.
pub fn with_browser<F: Future<Output = ()>>(name: &str, test: impl Fn(&'static World) -> F) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static WORLD: OnceLock<World> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let runtime = RUNTIME.get_or_init(|| {
        let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        built.expect("a runtime")
    });
    let world = WORLD.get_or_init(|| runtime.block_on(make()));
    runtime.block_on(async {
        let mut ended = world.attempt(name, test(world)).await;
        if !world.driver().lives().await {
            let driver = Driver::start(&world.shelf.dir().join(format!("profile-{name}"))).await;
            *world.driver.lock() = Arc::new(driver);
            ended = world.attempt(name, test(world)).await;
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    });
}
