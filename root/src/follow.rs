//! A root whose snapshot is older than the leaves' follows the leaves: when nobody holds the version that its snapshot names
//! any more, and the leaves say which one they serve, it serves that one.
//!
//! The failure this prevents: the one root whose link is cut pins its queries to a version that was retired without it, and
//! refuses all of them although every leaf would answer. Rules:
//!
//! * Only who goes by a newer snapshot than this root is followed, and only where a shard was refused by all who could have it: a
//!   leaf that is late changes nothing.
//! * Whether this root's own link is alive is not asked. A newer epoch that every holder names is proof that the snapshot here is
//!   old, and a link can look alive that brings nothing: a stream that hangs in the service, reports that are taken beside a watch that
//!   is not. It is only said on the status page.
//! * A version is served when its statistics are open here, verified as always; until then it is opened, in the background.
//! * One version per query, always: the query that learns of it is asked again from the start, once, and those after it go by the
//!   snapshot with that version in place of the pins, on all leaves that the snapshot knows for a shard.
//! * It is bound to the snapshot that it corrects: the next one that is heard rules again.
//!
//! A root that was stopped for a while is the same case, and better off: it finds the newer snapshot by itself, and goes by that.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwapOption;
use canopy_common::ids::{Epoch, NodeId, ShardId, Version};
use canopy_proto::v1;
use canopy_topology::routing::{ALL_QUERIES, CorpusRouting, Pin, Replicas, RoutingSnapshot, VersionRouting};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    pin::{self, Pinned, Repinned},
    search::{Asked, Root, Trail},
    versions::{Choice, CorpusState},
};

/// Longest that queries wait for a version to be opened, from when it was first wanted.
pub(crate) const OPENS: Duration = Duration::from_secs(2);
/// Why a query is asked again whose version was retired.
const RETIRED: &str = "retired";

/// What the leaves serve of a corpus instead.
#[derive(Debug, Clone)]
struct Led {
    /// Nobody holds it.
    from: Version,
    to: Version,
    /// By the newest snapshot of which a leaf told.
    epoch: Epoch,
    /// When it was told first.
    since: Instant,
    /// Queries go to it.
    routed: bool,
}

/// A snapshot and what the leaves say beyond it.
#[derive(Clone)]
struct Followed {
    base: Epoch,
    led: BTreeMap<String, Led>,
    snapshot: Arc<RoutingSnapshot>,
}

/// What this root follows the leaves in; nothing while its snapshot holds.
pub struct Follow {
    now: ArcSwapOption<Followed>,
    changes: watch::Sender<()>,
}

impl Default for Follow {
    fn default() -> Self {
        Self { now: ArcSwapOption::empty(), changes: watch::channel(()).0 }
    }
}

impl Follow {
    /// The snapshot to go by in place of `base`.
    pub fn over(&self, base: Arc<RoutingSnapshot>) -> Arc<RoutingSnapshot> {
        match &*self.now.load() {
            Some(followed) if followed.base == base.epoch => followed.snapshot.clone(),
            _ => base,
        }
    }

    /// Whoever keeps something in step with it.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// For `/status`: corpus, version, whether queries go to it.
    pub fn status(&self, base: Epoch) -> Value {
        let now = self.now.load_full().filter(|followed| followed.base == base);
        let led = now.iter().flat_map(|followed| &followed.led);
        let one = |(name, led): (&String, &Led)| {
            let state = if led.routed { "serving" } else { "opening" };
            json!({ "corpus": name, "version": led.to, "instead_of": led.from, "state": state, "their_epoch": led.epoch })
        };
        led.map(one).collect()
    }

    /// In words; `None`: it follows nobody.
    pub(crate) fn words(&self, base: Epoch) -> Option<String> {
        let now = self.now.load_full().filter(|followed| followed.base == base)?;
        let one = |(name, led): (&String, &Led)| format!("{name} {} in place of {}", led.to, led.from);
        Some(now.led.iter().map(one).collect::<Vec<_>>().join(", "))
    }

    /// Takes over what a leaf said; when it was first told so. `open`: queries can go to it.
    fn learn(
        &self,
        base: &RoutingSnapshot,
        corpus: &str,
        from: Version,
        instead: v1::Instead,
        open: bool,
    ) -> Instant {
        let (to, epoch, now) = (Version(instead.version), Epoch(instead.epoch), Instant::now());
        let (mut changed, mut since) = (false, now);
        self.now.rcu(|current| {
            let current = current.as_ref().filter(|current| current.base == base.epoch);
            let mut led = current.map(|current| current.led.clone()).unwrap_or_default();
            let next = Led { from, to, epoch, since: now, routed: open };
            changed = match led.entry(corpus.to_owned()) {
                Entry::Vacant(entry) => {
                    entry.insert(next);
                    true
                }
                Entry::Occupied(mut entry) => {
                    let known = entry.get_mut();
                    if known.to == to {
                        since = known.since;
                        let opened = open && !known.routed;
                        known.routed |= open;
                        opened
                    } else {
                        let newer = epoch > known.epoch;
                        if newer {
                            *known = next;
                        }
                        newer
                    }
                }
            };
            if let (false, Some(current)) = (changed, current) {
                return Some(current.clone());
            }
            let snapshot = Arc::new(corrected(base, &led));
            Some(Arc::new(Followed { base: base.epoch, led, snapshot }))
        });
        if changed {
            tracing::warn!(corpus, %from, %to, open, "the leaves serve another version than the snapshot names; following them until a newer one is heard");
            self.changes.send_replace(());
        }
        since
    }
}

/// The snapshot with what the leaves serve in place of the pins.
fn corrected(base: &RoutingSnapshot, led: &BTreeMap<String, Led>) -> RoutingSnapshot {
    let mut snapshot = base.clone();
    for (name, led) in led {
        let Some(corpus) = snapshot.corpora.get_mut(name) else { continue };
        if !led.routed {
            corpus.versions.entry(led.to).or_default();
            continue;
        }
        let held = everywhere(corpus);
        if let Some(gone) = corpus.versions.get_mut(&led.from) {
            gone.held.clear();
        }
        let wanted = corpus.versions.remove(&led.to).map(|routing| routing.wanted).unwrap_or_default();
        corpus.versions.insert(led.to, VersionRouting { wanted, held });
        corpus.pins = vec![Pin { version: led.to, share: ALL_QUERIES }];
        corpus.trial = None;
    }
    snapshot
}

/// All leaves that are known of each shard, in any version.
fn everywhere(corpus: &CorpusRouting) -> Replicas {
    let mut leaves: BTreeMap<&ShardId, Vec<NodeId>> = BTreeMap::new();
    let lists = corpus.versions.values().flat_map(|routing| [&routing.held, &routing.wanted]);
    for (shard, nodes) in lists.flatten() {
        let known = leaves.entry(shard).or_default();
        for node in nodes.iter() {
            if !known.contains(node) {
                known.push(node.clone());
            }
        }
    }
    // Shards with the same leaves share one list, so that they are one branch.
    let mut lists: BTreeMap<Vec<NodeId>, Arc<[NodeId]>> = BTreeMap::new();
    let one = |(shard, nodes): (&ShardId, Vec<NodeId>)| {
        let list = lists.entry(nodes).or_insert_with_key(|nodes| nodes.iter().cloned().collect());
        (shard.clone(), list.clone())
    };
    leaves.into_iter().map(one).collect()
}

/// What leaves that go by a newer snapshot serve instead, by the newest of them.
fn instead(trail: &Trail, pinned: &Pinned) -> Option<v1::Instead> {
    let shards = trail.gathered.shards.iter();
    let told = shards.filter_map(|reply| reply.instead).filter(|instead| {
        instead.epoch > pinned.routing.epoch.0 && instead.version != pinned.corpus.manifest.version.0
    });
    told.max_by_key(|instead| instead.epoch)
}

impl Root {
    /// The snapshot that queries go by.
    pub(crate) fn routed(&self) -> Arc<RoutingSnapshot> {
        self.versions.followed.over(self.routing.now())
    }

    /// What a query is asked of whose version was retired without this root; `None`: that is not what happened to it, or there is
    /// nothing to ask.
    pub(crate) async fn followed(&self, asked: &Asked, trail: &mut Trail, pinned: &Pinned) -> Option<Pinned> {
        let Choice::Pinned(stable) = pinned.choice else { return None };
        let told = instead(trail, pinned)?;
        let (name, from) = (asked.request.corpus.as_str(), pinned.corpus.manifest.version);
        let half = self.patience(asked);
        let base = self.routing.now();
        let corpus = if base.epoch > pinned.routing.epoch {
            let to = self.routed().corpora.get(name)?.pinned(stable)?;
            self.opened(name, to, half.min(Instant::now() + OPENS)).await?
        } else {
            self.led(&base, name, from, told, half).await?
        };
        let to = corpus.manifest.version;
        if to == from {
            return None;
        }
        self.metrics.repinned.with_label_values(&[RETIRED]).inc();
        let words = pin::missing(&pinned.corpus, &trail.gathered);
        trail.repinned = Some(Repinned { from, why: RETIRED, words });
        trail.spent = trail.gathered.tail;
        trail.tried = None;
        trail.corpus = Some(corpus.clone());
        trail.timeline.fold("repin");
        let next = Pinned::to(self.routed(), corpus);
        Some(Pinned { numbered: pinned.numbered + pin::SECOND, ..next })
    }

    /// The version that the leaves serve, once it is open here.
    async fn led(
        &self,
        base: &RoutingSnapshot,
        name: &str,
        from: Version,
        told: v1::Instead,
        until: Instant,
    ) -> Option<Arc<CorpusState>> {
        let (versions, to) = (&self.versions, Version(told.version));
        let open = versions.state(name, to);
        let since = versions.followed.learn(base, name, from, told, open.is_some());
        if open.is_some() {
            return open;
        }
        let opened = self.opened(name, to, until.min(since + OPENS)).await?;
        versions.followed.learn(base, name, from, told, true);
        Some(opened)
    }
}

#[cfg(test)]
mod tests;
