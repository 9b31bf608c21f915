//! Which shards this leaf answers for: corpus, version, shard. One immutable snapshot, swapped as a whole; a
//! request takes it once, so that nothing changes under it and no lock is on the query path.
//!
//! Rule: what is in the snapshot was verified, opened and has answered a query; everything else is on the
//! [`super::status::Board`]. Keys are the printed forms (`main/3`), so that a request's names are looked up as they are. What a shard shows
//! changes more often than which shards there are: its view is behind a pointer of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use canopy_common::ids::{ShardId, Version};
use canopy_proto::v1::SearchRequest;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{files::ShardFiles, quarantine::Source};
use crate::view::ShardView;

/// A shard that answers.
pub struct Serving {
    /// Its corpus.
    pub corpus: Arc<str>,
    /// Its shard.
    pub shard: ShardId,
    /// Its version.
    pub version: Version,
    /// Its files.
    pub files: Arc<ShardFiles>,
    /// A query that it answered while it was opened, and answers again when readiness is checked.
    pub probe: Arc<SearchRequest>,
    /// Number of this base at this node; see [`crate::lease`].
    pub lease: u64,
    /// Where its files can be read again; `None`: nowhere.
    pub source: Option<Source>,
    /// Searches that found it.
    pub(crate) asked: AtomicU64,
    pub(crate) suspected: AtomicBool,
    pub(crate) leased_until_us: AtomicU64,
    pub(crate) retired: AtomicBool,
    pub(crate) revoked: AtomicBool,
    live: ArcSwap<ShardView>,
    news: watch::Sender<()>,
}

impl Serving {
    /// A shard about to be published, with its first view.
    pub fn new(
        corpus: Arc<str>,
        view: ShardView,
        files: ShardFiles,
        probe: SearchRequest,
        lease: u64,
    ) -> Self {
        Self {
            corpus,
            shard: view.shard.clone(),
            version: view.version,
            files: Arc::new(files),
            probe: Arc::new(probe),
            lease,
            source: None,
            asked: AtomicU64::new(0),
            suspected: AtomicBool::new(false),
            leased_until_us: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            live: ArcSwap::from_pointee(view),
            news: watch::Sender::new(()),
        }
    }

    /// What a query sees: taken once by each, so that nothing changes under it.
    pub fn view(&self) -> Arc<ShardView> {
        self.live.load_full()
    }

    /// Queries see this from now on. It is a view of the same base.
    pub fn publish_view(&self, view: ShardView) {
        self.live.store(Arc::new(view));
        self.news.send_replace(());
    }

    /// Tells of every view that is published from now on.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Whether it is served no more.
    pub fn retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}

/// Shards of one version by printed name.
pub type Shards = BTreeMap<String, Arc<Serving>>;

/// What is served at one moment.
#[derive(Default, Clone)]
pub struct Snapshot {
    corpora: BTreeMap<String, BTreeMap<Version, Shards>>,
}

impl Snapshot {
    /// The shards held of a version; `None` when there are none.
    pub fn version(&self, corpus: &str, version: Version) -> Option<&Shards> {
        self.corpora.get(corpus)?.get(&version)
    }

    /// Everything that is served.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Serving>> {
        self.corpora.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values)
    }
}

/// The current snapshot.
#[derive(Default)]
pub struct Directory {
    current: ArcSwap<Snapshot>,
    writing: Mutex<()>,
}

impl Directory {
    /// The snapshot, for the length of one request.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Adds a view; the one it takes the place of, if any.
    pub fn publish(&self, serving: Arc<Serving>) -> Option<Arc<Serving>> {
        self.change(|snapshot| {
            let versions = snapshot.corpora.entry(serving.corpus.to_string()).or_default();
            let shards = versions.entry(serving.version).or_default();
            shards.insert(serving.shard.to_string(), serving)
        })
    }

    /// Takes this very view away; whether it was there.
    pub fn remove(&self, serving: &Serving) -> bool {
        self.change(|snapshot| {
            let Some(versions) = snapshot.corpora.get_mut(&*serving.corpus) else { return false };
            let Some(shards) = versions.get_mut(&serving.version) else { return false };
            let name = serving.shard.to_string();
            if shards.get(&name).is_none_or(|there| there.lease != serving.lease) {
                return false;
            }
            shards.remove(&name);
            if shards.is_empty() {
                versions.remove(&serving.version);
            }
            true
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let _one_at_a_time = self.writing.lock();
        let mut next = Snapshot::clone(&self.current.load());
        let result = change(&mut next);
        self.current.store(Arc::new(next));
        result
    }
}
