//! What the root tells of itself.
//!
//! Started = every corpus was looked at: it is open, or there is nothing to open (no such corpus, no version yet, none that
//! this build takes). Ready = started once, and would answer a query: a real query on one of its corpora found at least one
//! shard. A root whose leaves are partly down stays ready, because partial answers are its job, and so does one of whose
//! corpora one can't be served; were it not, one lost leaf or one mistyped name would take every root out of the balancer.
//! However many corpora there are, a probe takes a second at most. Nor does it matter whether the topology service is heard:
//! queries need none; the status page says since when it is not, and in which corpora this root follows the leaves. What it
//! lacks is told on the status page, and by a root that can serve nothing as the reason. The query is asked at most once a
//! probe interval, however often probes come; after a failure sooner, so that a root is not kept from its clients for a whole
//! interval once its leaves answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_common::{admin::Health, error::ErrorClass};
use canopy_proto::v1::QueryRequest;
use canopy_topology::membership::Membership;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    error::Error,
    search::{Asked, Root},
    versions::UNHEARD,
};

/// Longest that a probe takes, whatever number of corpora it asks.
const PROBE: Duration = Duration::from_secs(1);
/// Shorter than that is not worth a word: streams are opened anew now and then, and reports are sent every second.
const QUIET: Duration = Duration::from_secs(5);
/// How long a failure stands at most.
const AGAIN: Duration = Duration::from_millis(100);
/// A word that few documents have, so that the query costs next to nothing.
const PROBE_TEXT: &str = "canopy";

/// Health of a root.
pub struct RootHealth {
    root: Arc<Root>,
    membership: Option<Membership>,
    /// Every corpus was looked at once; those that come later are opened beside what is served.
    begun: AtomicBool,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl RootHealth {
    /// Of this root.
    pub fn new(root: Arc<Root>) -> Self {
        Self { root, membership: None, begun: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// The same, which says when the topology service is not heard.
    pub fn hearing(self, membership: Membership) -> Self {
        Self { membership: Some(membership), ..self }
    }

    /// How long this root is cut off from the topology service: no snapshot stream is alive. `None`: it is not, or there is none.
    fn unheard(&self) -> Option<Duration> {
        self.membership.as_ref()?.unheard().filter(|time| *time > QUIET)
    }

    /// How long the topology service took no report of this root; `None`: it did lately, or there is none.
    fn unreported(&self) -> Option<Duration> {
        self.membership.as_ref()?.unreported().filter(|time| *time > QUIET)
    }

    /// What is to be said beside a failure.
    fn cut_off(&self) -> Option<String> {
        let seconds = self.unheard()?.as_secs();
        let epoch = self.root.routing.now().epoch;
        let follows = match self.root.versions.followed.words(epoch) {
            Some(words) => format!("; following the leaves: {words}"),
            None => String::new(),
        };
        Some(format!("the topology service was not heard for {seconds} s{follows}"))
    }

    /// Whether every corpus was looked at, now or before.
    fn begun(&self) -> bool {
        let versions = &self.root.versions;
        let now = versions.pending().is_empty();
        // Before the first snapshot no corpus is known, and nothing has begun by that.
        if now && !versions.is_empty() {
            self.begun.store(true, Ordering::Relaxed);
        }
        now || self.begun.load(Ordering::Relaxed)
    }

    async fn probe(&self) -> Result<(), String> {
        if !self.root.versions.heard() {
            return Err(UNHEARD.to_owned());
        }
        if !self.begun() {
            return Err(self.root.versions.pending().join("; "));
        }
        let mut lacks = self.root.versions.opening();
        let open = self.root.versions.open();
        if open.is_empty() && lacks.is_empty() {
            return Err("no corpus is routed to this root; name one in topology.placements, or with a topology service: \
                        canopy topology place"
                .to_owned());
        }
        let names: Vec<&str> = open.iter().map(|corpus| corpus.manifest.corpus.as_str()).collect();
        if self.any(&names, &mut lacks).await { Ok(()) } else { Err(lacks.join("; ")) }
    }

    /// Whether any corpus answers. Each is asked when one before it has failed, or has not answered for its part of half of the
    /// time: the last one has the other half.
    async fn any(&self, names: &[&str], lacks: &mut Vec<String>) -> bool {
        let until = Instant::now() + PROBE;
        let part = PROBE / 2 / names.len().max(1) as u32;
        let (mut asked, mut left) = (FuturesUnordered::new(), names.iter());
        loop {
            if let Some(name) = left.next() {
                asked.push(async move { (name, self.ask(name, until).await) });
            }
            tokio::select! {
                biased;
                ended = asked.next() => match ended {
                    Some((_, Ok(()))) => return true,
                    Some((name, Err(error))) => lacks.push(format!("{name}: {error}")),
                    None => return false,
                },
                () = tokio::time::sleep(part), if left.len() > 0 => {}
                () = tokio::time::sleep_until(until) => {
                    lacks.push(format!("{} did not answer for {PROBE:?}", names.join(", ")));
                    return false;
                }
            }
        }
    }

    /// A real query on a corpus.
    async fn ask(&self, corpus: &str, until: Instant) -> Result<(), Error> {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let request = QueryRequest {
            corpus: corpus.to_owned(),
            q: PROBE_TEXT.to_owned(),
            k: Some(1),
            timeout_ms: u32::try_from(left).unwrap_or(u32::MAX).max(1),
            snippet: Some(false),
            total: "none".to_owned(),
            ..Default::default()
        };
        let query = self.root.dice.query_id();
        let asked = Asked { query, arrival: Instant::now(), limit: None, request };
        match self.root.probe(&asked).await {
            // Busy is not broken: a loaded root is one that answers, and so is one whose leaves are loaded; taken out
            // with all others, it would make an outage of an overload.
            Err(Error::Busy(_) | Error::NothingAnswered { class: ErrorClass::Overloaded, .. }) => Ok(()),
            answered => answered,
        }
    }
}

impl Health for RootHealth {
    fn started(&self) -> bool {
        self.begun()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let mut last = self.last.lock().await;
            let interval: Duration = self.root.config.probe_interval.0;
            if let Some((at, result)) = &*last
                && at.elapsed() < if result.is_ok() { interval } else { interval.min(AGAIN) }
            {
                return result.clone();
            }
            let result = self.probe().await.map_err(|reason| match self.cut_off() {
                Some(cut_off) => format!("{reason}; {cut_off}"),
                None => reason,
            });
            *last = Some((Instant::now(), result.clone()));
            result
        })
    }

    fn status(&self) -> Value {
        let epoch = self.root.routing.now().epoch;
        json!({
            "role": "root",
            "node": self.root.node,
            "epoch": epoch,
            "topology": {
                "unheard_ms": self.unheard().map(|time| time.as_millis() as u64),
                "unreported_ms": self.unreported().map(|time| time.as_millis() as u64),
                "follows_leaves": self.root.versions.followed.status(epoch),
            },
            "draining": self.root.drain.leaving(),
            "corpora": self.root.versions.status(),
            "passed_over": self.root.versions.passed_over(),
            "newest": self.root.metrics.newest.status(),
            "nodes": self.root.gatherer.loads().status(),
            "hedging": self.root.gatherer.hedging().status(),
            "policies": self.root.gatherer.policies().status(),
        })
    }
}

#[cfg(test)]
mod tests;
