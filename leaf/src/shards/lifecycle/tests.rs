//! A leaf that follows a routing snapshot through swaps, rollbacks and damage, while it answers.

use canopy_common::ids::{Epoch, ShardId};
use canopy_proto::{SearchNode, v1::ShardReply};
use canopy_topology::routing::{CorpusRouting, Replicas, VersionRouting};
use object_store::{ObjectStoreExt, memory::InMemory};

use super::*;
use crate::{
    fixture::{self, Built, CORPUS, context, outcomes, pages, until},
    node::{LeafNode, Parts, SearchShard},
    reply::outcome_word,
    shards::Line,
};

mod broken;
mod keeping;
mod room;

const LONG: Duration = Duration::from_mins(2);
const SHORT: Duration = Duration::from_secs(5);

/// A leaf that follows; the snapshot of epoch 0 says nothing.
struct Following {
    parts: Arc<Parts>,
    node: LeafNode,
    routing: Routing,
    epoch: u64,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    fn new(store: VersionStore, config: LeafConfig) -> Self {
        Self::searching(store, config, fixture::real())
    }

    fn searching(store: VersionStore, config: LeafConfig, search: SearchShard) -> Self {
        let parts = fixture::parts(config, search);
        let routing = Routing::from(RoutingSnapshot::default());
        let (config, recent) = (parts.config.clone(), parts.recent.clone());
        let lifecycle = Lifecycle::new(store, parts.shards.clone(), config, recent, parts.drain.clone());
        let task = tokio::spawn(Arc::new(lifecycle).run(routing.clone()));
        Self { node: LeafNode::new(parts.clone()), parts, routing, epoch: 0, task }
    }

    /// From now on the leaf should hold these versions of `shards` shards.
    fn want(&mut self, versions: &[Version], shards: u32) {
        let leaf: Arc<[NodeId]> = [self.parts.shards.node.clone()].into();
        let all: Replicas = (0..shards).map(|number| (ShardId::new("main", number), leaf.clone())).collect();
        let each = versions
            .iter()
            .map(|version| (*version, VersionRouting { wanted: all.clone(), held: Replicas::new() }));
        self.follow(CorpusRouting { versions: each.collect(), ..CorpusRouting::default() });
    }

    /// From now on the leaf should hold one shard of whichever version is the newest.
    fn want_newest(&mut self) {
        let leaf: Arc<[NodeId]> = [self.parts.shards.node.clone()].into();
        let shards = [(ShardId::new("main", 0), leaf)].into();
        self.follow(CorpusRouting { shards, ..CorpusRouting::default() });
    }

    fn follow(&mut self, corpus: CorpusRouting) {
        self.epoch += 1;
        let corpora = [(CORPUS.to_owned(), corpus)].into();
        self.routing.publish(RoutingSnapshot { epoch: Epoch(self.epoch), corpora, ..Default::default() });
    }

    /// Until its one shard is in this state.
    async fn is(&self, state: State) {
        until(state.as_str(), || {
            self.parts.shards.board.all().first().is_some_and(|(_, line)| line.state == state)
        })
        .await;
    }

    fn lines(&self, version: Version) -> Vec<Line> {
        let all = self.parts.shards.board.all();
        all.into_iter().filter(|(place, _)| place.version == Some(version)).map(|(_, line)| line).collect()
    }

    async fn serves(&self, version: Version, shards: usize) {
        let serving = |line: &Line| line.state == State::Serving;
        until("the version serves", || {
            let lines = self.lines(version);
            lines.len() == shards && lines.iter().all(serving)
        })
        .await;
    }

    async fn ask(&self, built: &Built) -> Vec<ShardReply> {
        let shards = built.manifest.shards.len() as u32;
        // A view is held for as long as its searches may take.
        outcomes(self.node.search(context(1, SHORT), built.request("fox")), shards).await
    }
}

fn found(replies: &[ShardReply]) -> (Vec<&'static str>, u64) {
    (replies.iter().map(outcome_word).collect(), replies.iter().map(|reply| reply.documents_searched).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_answers_from_both_versions_and_a_rollback_opens_nothing() {
    let mut first = Built::new(&pages(30), 2).await;
    let old = first.manifest.clone();
    let mut config = fixture::config(1, 16);
    config.retain = canopy_common::config::Time::ms(600_000);
    let mut leaf = Following::new(first.store.clone(), config);
    assert!(!leaf.parts.shards.board.settled(), "nothing is known yet");
    leaf.want(&[old.version], 2);
    leaf.serves(old.version, 2).await;
    for _ in 0..16 {
        leaf.ask(&first).await;
    }
    first.next(&pages(60)).await;
    leaf.want(&[old.version, first.manifest.version], 2);
    leaf.serves(first.manifest.version, 2).await;
    assert_eq!(found(&leaf.ask(&first).await), (vec!["answered"; 2], 60));
    // The old one is wanted no more, and answers on for whoever is pinned to it.
    leaf.want(&[first.manifest.version], 2);
    until("it retires", || leaf.lines(old.version).iter().all(|line| line.state == State::Retiring)).await;
    let new = std::mem::replace(&mut first.manifest, old.clone());
    assert_eq!(found(&leaf.ask(&first).await), (vec!["answered"; 2], 30));
    let verified: Vec<_> = leaf.lines(old.version).iter().map(|line| line.verified).collect();
    leaf.want(&[old.version], 2);
    leaf.serves(old.version, 2).await;
    let after: Vec<_> = leaf.lines(old.version).iter().map(|line| line.verified).collect();
    assert_eq!(verified, after, "a rollback reads nothing");
    assert!(leaf.lines(new.version).iter().all(|line| line.state == State::Retiring));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_versions_that_come_at_once_the_last_serves_and_the_others_are_gone() {
    let mut built = Built::new(&pages(30), 2).await;
    let mut versions = vec![built.manifest.version];
    for count in [40, 50, 60] {
        built.next(&pages(count)).await;
        versions.push(built.manifest.version);
    }
    let mut config = fixture::config(1, 16);
    config.retain = canopy_common::config::Time::ms(0);
    let mut leaf = Following::new(built.store.clone(), config);
    for version in &versions {
        leaf.want(&[*version], 2);
        tokio::task::yield_now().await;
    }
    let last = versions[3];
    leaf.serves(last, 2).await;
    until("the others end", || leaf.parts.shards.board.all().len() == 2).await;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"; 2], 60));
    assert_eq!(leaf.parts.shards.directory.snapshot().all().count(), 2, "nothing else is mapped");
    until("leases end", || {
        leaf.parts.shards.leases.sweep();
        leaf.parts.shards.leases.len() == 2
    })
    .await;
}

/// Everything that is in a store.
async fn in_memory(built: &Built) -> Arc<InMemory> {
    let objects = Arc::new(InMemory::new());
    let local = built.store.local().unwrap().clone();
    let mut open = vec![local.clone()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(&local).unwrap().to_str().unwrap();
                objects.put(&name.into(), std::fs::read(&path).unwrap().into()).await.unwrap();
            }
        }
    }
    objects
}

/// A leaf that copies the files of its store, and keeps nothing longer than it has to.
fn copying(cache: &Path) -> LeafConfig {
    LeafConfig {
        cache_dir: cache.to_str().unwrap().to_owned(),
        cache_local: true,
        retain: canopy_common::config::Time::ms(0),
        ..fixture::config(1, 16)
    }
}

/// Where such a leaf keeps a version.
fn kept(cache: &Path, version: Version) -> PathBuf {
    cache.join("leaf-1").join(VersionStore::version_path(CORPUS, version))
}

/// A whole file of the right length with another content, as a bad disk leaves it.
fn spoil(cache: &Path, built: &Built) -> PathBuf {
    let file = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    let damaged = kept(cache, built.manifest.version).join(&file.path);
    std::fs::create_dir_all(damaged.parent().unwrap()).unwrap();
    std::fs::write(&damaged, vec![0; file.bytes as usize]).unwrap();
    damaged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_damaged_of_the_newest_version_is_fetched_again_of_the_same() {
    let mut built = Built::new(&pages(30), 1).await;
    let cache = tempfile::tempdir().unwrap();
    spoil(cache.path(), &built);
    let mut leaf = Following::new(built.store.clone(), copying(cache.path()));
    leaf.want_newest();
    leaf.is(State::Failed).await;
    let old = built.manifest.clone();
    built.next(&pages(40)).await;
    built.manifest = old;
    leaf.is(State::Serving).await;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_a_remote_store_that_came_damaged_is_fetched_again() {
    let built = Built::new(&pages(30), 1).await;
    let store = VersionStore::remote(in_memory(&built).await);
    let cache = tempfile::tempdir().unwrap();
    let config = LeafConfig {
        cache_dir: cache.path().to_str().unwrap().to_owned(),
        retain: canopy_common::config::Time::ms(0),
        ..fixture::config(1, 16)
    };
    let version = built.manifest.version;
    let damaged = spoil(cache.path(), &built);
    let mut leaf = Following::new(store, config);
    leaf.want(&[version], 1);
    until("the damage is found", || {
        leaf.lines(version).first().is_some_and(|line| line.state == State::Failed)
    })
    .await;
    assert!(!damaged.exists(), "it is not kept");
    assert!(leaf.lines(version)[0].last_error.contains("BLAKE3"));
    leaf.serves(version, 1).await;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 30));
    leaf.want(&[], 0);
    until("it is gone", || leaf.parts.shards.board.all().is_empty()).await;
    until("its files are gone", || !damaged.exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_a_version_does_not_have_is_void_where_the_service_places_and_hides_nothing() {
    let built = Built::new(&pages(30), 2).await;
    let version = built.manifest.version;
    let mut leaf = Following::new(built.store.clone(), fixture::config(1, 16));
    let here: Arc<[NodeId]> = [leaf.parts.shards.node.clone()].into();
    let place = |leaf: &mut Following, shards: std::ops::Range<u32>| {
        let wanted = shards.map(|number| (ShardId::new("main", number), here.clone())).collect();
        let routing = VersionRouting { wanted, held: Replicas::new() };
        let versions = [(version, routing)].into();
        leaf.follow(CorpusRouting { placed_shards: 4, versions, ..CorpusRouting::default() });
    };
    place(&mut leaf, 0..4);
    let states = |leaf: &Following| leaf.lines(version).iter().map(|line| line.state).collect::<Vec<_>>();
    let all = [State::Serving, State::Serving, State::Void, State::Void];
    until("it has what there is", || states(&leaf) == all).await;
    let board = &leaf.parts.shards.board;
    assert!(board.settled() && board.wants_any() && board.lacking_json().as_array().unwrap().is_empty());
    let told = crate::shards::holdings::condition(board).holdings;
    let void =
        |holding: &&canopy_topology::link::Holding| holding.progress == canopy_topology::link::Progress::Void;
    assert_eq!(told.iter().filter(void).count(), 2);
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"; 2], 30));
    // With nothing but what is void it is a spare.
    place(&mut leaf, 2..4);
    until("it goes", || leaf.lines(version).iter().all(|line| line.state != State::Serving)).await;
    assert!(leaf.parts.shards.board.settled() && !leaf.parts.shards.board.wants_any());
}
