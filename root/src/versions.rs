//! The versions that this root serves: manifest and statistics of each, opened and verified before any query is sent to it,
//! and read by every query through one snapshot.
//!
//! A query carries the numbers of its pinned version, so a root without them could only guess scores. Therefore a version is
//! served only once its statistics file has the length and checksum that the manifest states, and its analysis is the one of
//! this build: a query that is pinned to one that is not open is answered from the one that serves, and while that is not open
//! the root is not ready. During a rollout two versions of a corpus are open; which of them a query gets is decided here, once,
//! for all its shards and phases ([`Versions::choose`]). A corpus that has nothing to open, because its name was mistyped or it
//! has no version yet, is told of and keeps no other one from its queries ([`Versions::pending`]). What the routing snapshot
//! does not name any more is let go of when its last query has ended ([`keep`]).

mod cache;
mod keep;
mod open;
mod waits;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{ShardId, Version},
};
use canopy_format::{
    manifest::Manifest,
    schema::{Kind, SEARCH_FIELD},
    statistics::Statistics,
    store::PassedOver,
};
use canopy_topology::routing::{CorpusRouting, RoutingSnapshot};
pub use keep::{Opening, keep};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
pub(crate) use waits::Wait;
use waits::Waits;

use crate::{
    error::{Error, Result},
    follow::{Follow, OPENS},
};

/// Why nothing is known of a corpus.
pub(crate) const UNHEARD: &str = "this root has heard no topology service yet";

/// Bytes of an average token with its space, for estimates of answer sizes.
const BYTES_PER_TOKEN: u64 = 7;
/// Bytes of an average keyword, date or number with its name.
const BYTES_PER_VALUE: u64 = 64;

/// One open version of a corpus. Immutable.
pub struct CorpusState {
    /// Its table of contents.
    pub manifest: Manifest,
    /// Its document frequencies.
    pub statistics: Statistics,
    /// Every shard with its documents, in the manifest's order: the account of every query is kept over these.
    pub shards: Vec<(ShardId, u64)>,
    /// Newer versions that can't be served.
    pub passed_over: Vec<PassedOver>,
}

impl CorpusState {
    /// From a verified version.
    pub fn new(manifest: Manifest, statistics: Statistics) -> Self {
        let shards = manifest.shards.iter().map(|entry| (entry.shard.clone(), entry.documents)).collect();
        Self { manifest, statistics, shards, passed_over: Vec::new() }
    }

    /// Bytes that a field takes in an answer, on average over the version's documents.
    pub fn average_bytes(&self, field: &str) -> u64 {
        let text = self.manifest.schema.field(field).is_some_and(|field| field.kind == Kind::Text);
        if !text {
            return BYTES_PER_VALUE;
        }
        let tokens = &self.manifest.statistics.tokens;
        let total = tokens.get(field).or_else(|| tokens.get(SEARCH_FIELD)).copied().unwrap_or(0);
        (total / self.manifest.documents().max(1)).saturating_mul(BYTES_PER_TOKEN)
    }
}

/// What is known of a corpus.
#[derive(Clone, Default)]
struct Corpus {
    /// By number; for versions of a static topology that names none, the one that was the newest.
    open: BTreeMap<Version, Arc<CorpusState>>,
    /// What most queries get.
    main: Option<Version>,
    /// Why something is not open.
    waiting: String,
    /// It was looked at and there is nothing to open: no such corpus, no version, or none that this build takes.
    nothing: bool,
    /// Versions that can't be opened anywhere, and why.
    hopeless: BTreeMap<Version, String>,
    /// It was served, and since then waits for another version.
    since: Option<Instant>,
}

impl Corpus {
    /// Where the pins name a version, no other takes its place: what happens to be open may be on trial, or not be held.
    fn main(&self) -> Option<&Arc<CorpusState>> {
        match self.main {
            Some(version) => self.open.get(&version),
            None => self.open.values().next_back(),
        }
    }
}

/// What decides the version of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The client names it.
    Named(Version),
    /// Its cursor was read from it.
    Cursor(Version),
    /// The pins do, by a number that stays the same for who should stay on one version.
    Pinned(u64),
}

/// All corpora of the routing snapshot, open or opening. Readers take a snapshot and never wait.
pub struct Versions {
    corpora: ArcSwap<BTreeMap<String, Corpus>>,
    /// What the leaves serve beyond the snapshot.
    pub followed: Follow,
    /// Some topology was heard of.
    heard: AtomicBool,
    opened: Notify,
    /// Queries that wait for a version.
    pub(crate) waits: Waits,
}

impl Versions {
    /// The corpora that are to be opened.
    pub fn expecting(names: impl IntoIterator<Item = String>) -> Self {
        let opening = |name| {
            let waiting = "its version is being opened".to_owned();
            (name, Corpus { waiting, ..Corpus::default() })
        };
        let corpora: BTreeMap<_, _> = names.into_iter().map(opening).collect();
        Self {
            heard: AtomicBool::new(!corpora.is_empty()),
            corpora: ArcSwap::from_pointee(corpora),
            followed: Follow::default(),
            opened: Notify::new(),
            waits: Waits::default(),
        }
    }

    /// Whether any topology was heard of; before that no corpus is known, which says nothing of whether it exists.
    pub fn heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    fn unknown(&self, name: &str) -> Error {
        let name = name.chars().take(80).collect();
        if self.heard() {
            Error::UnknownCorpus(name)
        } else {
            Error::NotOpen { corpus: name, why: UNHEARD.to_owned() }
        }
    }

    /// A version, once it is open; not longer than until then.
    pub(crate) async fn until_open(
        &self,
        name: &str,
        version: Version,
        until: Instant,
    ) -> Option<Arc<CorpusState>> {
        self.opens(|| self.state(name, version), until).await
    }

    /// Waits for what a corpus that was served is to be served from, when that was made known a moment ago; whether it is open now.
    pub(crate) async fn soon(&self, name: &str, until: Instant) -> bool {
        let since = self.corpora.load().get(name).and_then(|corpus| corpus.since);
        let Some(since) = since else { return false };
        let main = || self.corpora.load().get(name)?.main().cloned();
        self.opens(main, until.min(since + OPENS)).await.is_some()
    }

    async fn opens<T>(&self, find: impl Fn() -> Option<T>, until: Instant) -> Option<T> {
        loop {
            let mut opened = pin!(self.opened.notified());
            opened.as_mut().enable();
            if let Some(found) = find() {
                return Some(found);
            }
            tokio::select! {
                biased;
                () = opened => {}
                () = tokio::time::sleep_until(until) => return find(),
            }
        }
    }

    /// The version that most queries of a corpus get.
    pub fn corpus(&self, name: &str) -> Result<Arc<CorpusState>> {
        let corpora = self.corpora.load();
        let corpus = corpora.get(name).ok_or_else(|| self.unknown(name))?;
        corpus.main().cloned().ok_or_else(|| not_open(name, corpus))
    }

    /// The version of one query: the asked one, else the one it is pinned to. Errors: no such corpus, none open, or not the
    /// asked one.
    pub fn choose(&self, name: &str, routing: &RoutingSnapshot, choice: Choice) -> Result<Arc<CorpusState>> {
        let corpora = self.corpora.load();
        let corpus = corpora.get(name).ok_or_else(|| self.unknown(name))?;
        if corpus.open.is_empty() {
            return Err(not_open(name, corpus));
        }
        let open = |version: &Version| corpus.open.get(version).cloned();
        match &choice {
            Choice::Named(version) => open(version).ok_or_else(|| not_resident(*version, corpus)),
            Choice::Cursor(version) => open(version).ok_or_else(|| {
                let named = |routed: &CorpusRouting| routed.versions.contains_key(version);
                let kept = routing.corpora.get(name).is_some_and(named);
                if kept { not_open(name, corpus) } else { Error::CursorExpired(*version) }
            }),
            Choice::Pinned(stable) => {
                let routed = routing.corpora.get(name);
                let pinned = routed.and_then(|routed| open(&routed.pinned(*stable)?));
                let control = || routed.and_then(|routed| open(&routed.trial?.control));
                let instead = || corpus.main().cloned().or_else(control);
                pinned.or_else(instead).ok_or_else(|| not_open(name, corpus))
            }
        }
    }

    /// What most queries of each corpus get, by name of the corpus.
    pub fn open(&self) -> Vec<Arc<CorpusState>> {
        self.corpora.load().values().filter_map(Corpus::main).cloned().collect()
    }

    /// What is not open yet and why; empty when all is.
    pub fn opening(&self) -> Vec<String> {
        let corpora = self.corpora.load();
        let opening = corpora.iter().filter(|(_, corpus)| corpus.main().is_none());
        opening.map(|(name, corpus)| format!("{name}: {}", corpus.waiting)).collect()
    }

    /// Whether no corpus is known.
    pub fn is_empty(&self) -> bool {
        self.corpora.load().is_empty()
    }

    /// What may still open by itself, and why it has not: it was not looked at yet, or the way to it is broken. What was
    /// looked at and is not there, or is at fault, is not among it.
    pub fn pending(&self) -> Vec<String> {
        let corpora = self.corpora.load();
        let pending = corpora.iter().filter(|(_, corpus)| corpus.main().is_none() && !corpus.nothing);
        pending.map(|(name, corpus)| format!("{name}: {}", corpus.waiting)).collect()
    }

    /// Every open version.
    pub fn resident(&self) -> Vec<(String, Version)> {
        let corpora = self.corpora.load();
        let each = corpora
            .iter()
            .flat_map(|(name, corpus)| corpus.open.keys().map(move |version| (name.clone(), *version)));
        each.collect()
    }

    /// For `/status`.
    pub fn status(&self) -> Value {
        let one = |corpus: &Corpus| match corpus.main() {
            Some(state) => json!({
                "state": "serving", "version": state.manifest.version, "documents": state.manifest.documents(),
                "shards": state.shards.len(), "statistics": state.statistics.id(),
                "open": corpus.open.keys().collect::<Vec<_>>(), "waiting": corpus.waiting,
            }),
            None => json!({ "state": "opening", "why": corpus.waiting }),
        };
        self.corpora.load().iter().map(|(name, corpus)| (name.clone(), one(corpus))).collect()
    }

    /// Newer versions than those that are served, which can't be.
    pub fn passed_over(&self) -> Vec<Value> {
        let open = self.open();
        let each = open.iter().flat_map(|state| {
            let one = |passed: &PassedOver| {
                json!({ "corpus": state.manifest.corpus, "version": passed.version, "reason": passed.reason })
            };
            state.passed_over.iter().map(one)
        });
        each.collect()
    }

    /// A version can be searched from now on.
    pub fn publish(&self, state: CorpusState) {
        let (name, version, state) = (state.manifest.corpus.clone(), state.manifest.version, Arc::new(state));
        self.change(&name, |corpus| {
            corpus.open.insert(version, state.clone());
            corpus.hopeless.remove(&version);
            corpus.waiting.clear();
            corpus.nothing = false;
            if corpus.main().is_some() {
                corpus.since = None;
            }
        });
        self.opened.notify_waiters();
    }

    /// A corpus more that is to be opened.
    #[cfg(test)]
    pub(crate) fn expect(&self, name: &str) {
        self.change(name, |corpus| "its version is being opened".clone_into(&mut corpus.waiting));
    }

    pub(crate) fn wait(&self, name: &str, version: Option<Version>, error: &Error) {
        use canopy_format::error::Error as Format;
        // It is tried again, ever more seldom; a store that is mended makes it good.
        let hopeless = match error {
            Error::Version(error) => error.of_the_version() || matches!(error, Format::NoVersion { .. }),
            _ => false,
        };
        let nothing = match error {
            Error::Version(Format::NoCorpus(_) | Format::NoVersionYet(_) | Format::NoVersion { .. }) => true,
            Error::Version(error) => error.of_the_version(),
            _ => false,
        };
        self.change(name, |corpus| {
            corpus.waiting = error.to_string();
            if version.is_none() || version == corpus.main {
                corpus.nothing = nothing;
            }
            if let Some(version) = version.filter(|_| hopeless) {
                corpus.hopeless.insert(version, error.to_string());
            }
        });
    }

    /// Versions that can't be opened anywhere, and why.
    pub fn hopeless(&self) -> Vec<(String, Version, String)> {
        let corpora = self.corpora.load();
        let each = corpora.iter().flat_map(|(name, corpus)| {
            corpus.hopeless.iter().map(move |(version, why)| (name.clone(), *version, why.clone()))
        });
        each.collect()
    }

    /// A version that is open, of any corpus.
    pub fn state(&self, name: &str, version: Version) -> Option<Arc<CorpusState>> {
        self.corpora.load().get(name)?.open.get(&version).cloned()
    }

    fn change(&self, name: &str, change: impl Fn(&mut Corpus)) {
        self.corpora.rcu(|corpora| {
            let mut next = BTreeMap::clone(corpora);
            change(next.entry(name.to_owned()).or_default());
            next
        });
    }

    /// Lets go of what the routing snapshot does not name; queries that have it keep it.
    pub(crate) fn follow(&self, routing: &RoutingSnapshot) {
        self.heard.fetch_or(routing.known(), Ordering::Relaxed);
        let now = Instant::now();
        self.corpora.rcu(|corpora| {
            let each = routing.corpora.iter().map(|(name, wanted)| {
                let mut corpus = corpora.get(name).cloned().unwrap_or_default();
                let served = corpus.main().is_some();
                if !wanted.versions.is_empty() {
                    corpus.open.retain(|version, _| wanted.versions.contains_key(version));
                    corpus.hopeless.retain(|version, _| wanted.versions.contains_key(version));
                }
                let main = wanted.main();
                corpus.nothing &= main == corpus.main;
                corpus.main = main;
                corpus.since = match corpus.main() {
                    Some(_) => None,
                    None if served => Some(now),
                    None => corpus.since,
                };
                if corpus.main().is_none() && corpus.waiting.is_empty() {
                    "its version is being opened".clone_into(&mut corpus.waiting);
                }
                (name.clone(), corpus)
            });
            each.collect::<BTreeMap<_, _>>()
        });
    }
}

fn not_open(name: &str, corpus: &Corpus) -> Error {
    Error::NotOpen { corpus: name.to_owned(), why: corpus.waiting.clone() }
}

fn not_resident(asked: Version, corpus: &Corpus) -> Error {
    let open: Vec<_> = corpus.open.keys().map(Version::to_string).collect();
    let are = if open.len() == 1 { "is" } else { "are" };
    let message = format!("{asked} is not resident here; {} {are}", open.join(", "));
    let field = Some("version".to_owned());
    Failure { field, ..Failure::new(ErrorClass::FailedPrecondition, message) }.into()
}

#[cfg(test)]
mod tests;
