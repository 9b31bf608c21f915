//! Keeps the open versions in step with the routing snapshot: what some leaf should hold is opened here before queries are
//! sent to it, each version at its own pace, and what is named no more is let go of. While a store is away, opening is
//! tried again with growing pauses; what is open stays open. Units: pauses are wall time of the process' clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use canopy_common::{drain::Drain, ids::Version};
use canopy_format::store::{PassedOver, VersionStore};
use canopy_topology::routing::{Following, Routing, RoutingSnapshot};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use prometheus::IntGauge;
use tokio::sync::watch;

use super::{CorpusState, Versions, cache, open::open};
use crate::error::{Error, Result};

/// First pause after a failure; it doubles to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest when the version itself is at fault.
const LONGEST_OF_DAMAGED: Duration = Duration::from_mins(10);

/// A version to open: of a corpus, `None`: the newest.
type Key = (String, Option<Version>);

struct Tried {
    key: Key,
    pause: Duration,
    result: Result<CorpusState>,
}

/// What opening needs.
pub struct Opening<'a> {
    /// Where versions are.
    pub store: &'a VersionStore,
    /// Where statistics of a remote store are kept.
    pub cache_dir: &'a str,
    /// Ends the work.
    pub drain: &'a Drain,
    /// Counts newer versions that can't be served.
    pub passed_over: &'a IntGauge,
}

impl Opening<'_> {
    fn attempt(&self, key: Key, pause: Option<Duration>) -> BoxFuture<'_, Tried> {
        async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let result = open(self.store, &key.0, key.1, self.cache_dir).await;
            let pause = match &result {
                // Reading a damaged version for ever helps nobody.
                Err(Error::Version(error)) if error.of_the_version() => {
                    pause.map_or(FIRST_PAUSE, |pause| (pause * 4).min(LONGEST_OF_DAMAGED))
                }
                _ => pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE)),
            };
            Tried { key, pause, result }
        }
        .boxed()
    }
}

/// What a snapshot wants open.
fn wanted(routing: &RoutingSnapshot) -> BTreeSet<Key> {
    let each = routing.corpora.iter().flat_map(|(name, corpus)| {
        let versions: Vec<_> = if corpus.versions.is_empty() {
            vec![corpus.version]
        } else {
            corpus.versions.keys().copied().map(Some).collect()
        };
        versions.into_iter().map(move |version| (name.clone(), version))
    });
    each.collect()
}

/// Follows the routing snapshot until the process drains.
pub async fn keep(versions: &Versions, routing: &Routing, opening: Opening<'_>) {
    let (mut following, mut followed) = (routing.follow(), versions.followed.changes());
    let mut keys: BTreeSet<Key> = BTreeSet::new();
    let mut opened: BTreeMap<Key, i64> = BTreeMap::new();
    let mut attempts = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = opening.drain.wait_started() => return,
            () = changed(&mut following, &mut followed) => {
                let snapshot = versions.followed.over(routing.now());
                versions.follow(&snapshot);
                let next = wanted(&snapshot);
                opened.retain(|key, _| next.contains(key));
                for key in next.difference(&keys) {
                    attempts.push(opening.attempt(key.clone(), None));
                }
                keys = next;
            }
            Some(tried) = attempts.next(), if !attempts.is_empty() => {
                let Tried { key, pause, result } = tried;
                if !keys.contains(&key) || opened.contains_key(&key) {
                    continue;
                }
                match result {
                    Ok(state) => drop(opened.insert(key, publish(versions, state))),
                    Err(error) => {
                        let corpus = &key.0;
                        tracing::warn!(corpus, %error, retry_after = ?pause, "version could not be opened");
                        versions.wait(corpus, key.1, &error);
                        attempts.push(opening.attempt(key, Some(pause)));
                    }
                }
            }
        }
        opening.passed_over.set(opened.values().sum());
        if opening.store.local().is_none()
            && !keys.is_empty()
            && keys.iter().all(|key| opened.contains_key(key))
        {
            sweep(versions, opening.cache_dir).await;
        }
    }
}

/// Another snapshot, or the leaves serve something beyond it.
async fn changed(following: &mut Following, followed: &mut watch::Receiver<()>) {
    tokio::select! {
        biased;
        _ = following.next() => {}
        Ok(()) = followed.changed() => {}
    }
}

/// Clears the cache of what is not open.
async fn sweep(versions: &Versions, cache_dir: &str) {
    let (open, cache_dir) = (versions.open(), cache_dir.to_owned());
    let swept = move || cache::sweep(&cache_dir, open.iter().map(|state| &**state));
    match tokio::task::spawn_blocking(swept).await.map_err(std::io::Error::other).flatten() {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "what was kept of versions that are gone was deleted"),
        Err(error) => tracing::warn!(%error, "what was kept of versions that are gone could not be deleted"),
    }
}

/// Newer versions that were passed over.
fn publish(versions: &Versions, state: CorpusState) -> i64 {
    let (corpus, version) = (&state.manifest.corpus, state.manifest.version);
    for PassedOver { version: newer, reason } in &state.passed_over {
        tracing::error!(corpus, %version, %newer, reason, "the newer version can't be served");
    }
    tracing::info!(corpus, %version, "version is open");
    let passed_over = state.passed_over.len() as i64;
    versions.publish(state);
    passed_over
}
