//! What a query goes by, from its first phase to its last: one routing snapshot and one version. And what it goes by instead
//! when that version can't answer it whole.
//!
//! A version on trial is held by few leaves at first, perhaps by one. When that one is lost, its queries would be answered in
//! part although the version that serves has everything. Therefore such a query is asked again of the version that serves,
//! from the start: once, whole, inside the same deadline, before any hit has gone out. Hits of both are never mixed. Rules:
//!
//! * Only who left the choice to the pins is given another version. `version=N` is answered from N or says what is missing; a
//!   cursor's version that is gone is a cursor that expired.
//! * It counts against the version that could not answer, not for it ([`crate::trial`]).
//! * A query that one version refuses by what it says, and the version that serves would not, is good: a field that was lost, or
//!   is of another kind by now, is the version's fault. It is asked again too, and counts as an error of the version. A query
//!   that both refuse is its author's.
//! * The parts of a comparison are asked of the leaves that hold both versions. A query of the control arm that can't be had
//!   whole there is asked again of everybody who holds its version, so that being compared costs nobody an answer.
//! * A query that waits for a version keeps its place in the gate; only half of the places may wait ([`crate::versions`]).
//! * A version that was retired while this root heard nothing is followed to the one that the leaves serve ([`crate::follow`]).

use std::{sync::Arc, time::Duration};

use canopy_aggregator::gather::{Decision, Gathered};
use canopy_common::{coverage::Outcome, error::ErrorClass, ids::Version, request::RequestContext};
use canopy_proto::{convert, v1};
use canopy_topology::routing::RoutingSnapshot;
use tokio::time::Instant;

use crate::{
    answer::Warning,
    error::{Error, Result},
    request,
    search::{Asked, Root, Trail},
    trial::{self, Tried},
    versions::{Choice, CorpusState, Wait},
};

/// Attempts of the first search of a query are numbered below this, those of the second above it, of a third above twice.
pub(crate) const SECOND: u64 = 1 << 15;
/// Longest reason that is kept, characters.
const REASON: usize = 200;
/// Why a query is asked again that its version refused by what it says.
pub(crate) const REFUSED: &str = "refused";

/// What one query goes by.
pub struct Pinned {
    /// Who serves what.
    pub routing: Arc<RoutingSnapshot>,
    /// Its version.
    pub corpus: Arc<CorpusState>,
    /// A version that whoever is asked must hold too; 0: any holder.
    pub beside: Version,
    /// What answers it when this can't do so whole.
    pub other: Option<Arc<CorpusState>>,
    /// Attempts that an earlier search of it may have numbered.
    pub numbered: u64,
    /// What decided its version; one that follows the leaves is named.
    pub choice: Choice,
}

/// A query that was asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repinned {
    /// The version that could not answer it whole.
    pub from: Version,
    /// Why, from a closed list.
    pub why: &'static str,
    /// What was missing or wrong first, in words.
    pub words: String,
}

impl Pinned {
    /// To one version, whatever becomes of it.
    pub fn to(routing: Arc<RoutingSnapshot>, corpus: Arc<CorpusState>) -> Self {
        let choice = Choice::Named(corpus.manifest.version);
        Self { routing, corpus, beside: Version(0), other: None, numbered: 0, choice }
    }

    /// Why a search is asked again of another version; `None`: it is not.
    pub(crate) fn lost(&self, gathered: &Gathered) -> Option<&'static str> {
        let lost = self.other.is_some() && gathered.decision == Some(Decision::Lost);
        lost.then(|| match (gathered.steps.is_empty(), unheld(gathered)) {
            (true, true) => "unheld",
            (true, false) => "failing",
            (false, _) => "lost",
        })
    }
}

impl Repinned {
    /// Whether its version refused it, rather than answered a part.
    pub(crate) fn refused(&self) -> bool {
        self.why == REFUSED
    }
}

impl Root {
    /// What a query goes by. Errors: no such corpus, version or page.
    pub(crate) async fn pin(&self, asked: &Asked, trail: &mut Trail) -> Result<Pinned> {
        let name = asked.request.corpus.as_str();
        let choice = request::choice(&asked.request, asked.query)?;
        let mut routing = self.routed();
        let mut chosen = self.versions.choose(name, &routing, choice);
        if let (Err(Error::NotOpen { .. }), Choice::Pinned(_)) = (&chosen, choice)
            && let Some(_wait) = self.wait()
            && self.versions.soon(name, self.patience(asked)).await
        {
            routing = self.routed();
            chosen = self.versions.choose(name, &routing, choice);
        }
        let corpus = chosen?;
        if let Choice::Cursor(version) = choice
            && is_gone(&routing, name, version)
        {
            return Err(Error::CursorExpired(version));
        }
        trail.corpus = Some(corpus.clone());
        trail.tried = trial::of(&self.gatherer, &routing, &corpus, choice);
        let beside = trail.beside.or_else(|| trail.tried.and_then(Tried::beside)).unwrap_or(Version(0));
        let other = match choice {
            Choice::Pinned(_) => self.other(&routing, &corpus, beside),
            Choice::Named(_) | Choice::Cursor(_) => None,
        };
        Ok(Pinned { beside, other, choice, ..Pinned::to(routing, corpus) })
    }

    /// Leave to wait for a version: at most half of the places of the gate may.
    fn wait(&self) -> Option<Wait<'_>> {
        self.versions.waits.take(self.gate.admission().limit().div_ceil(2))
    }

    /// A version, once it is open; not longer than until then, and not when too many wait.
    pub(crate) async fn opened(
        &self,
        name: &str,
        version: Version,
        until: Instant,
    ) -> Option<Arc<CorpusState>> {
        if let Some(open) = self.versions.state(name, version) {
            return Some(open);
        }
        let _wait = self.wait()?;
        self.versions.until_open(name, version, until).await
    }

    /// Until when a query may wait for a version: half of its time.
    pub(crate) fn patience(&self, asked: &Asked) -> Instant {
        let asked_for = u64::from(asked.request.timeout_ms);
        let own =
            if asked_for > 0 { Duration::from_millis(asked_for) } else { self.config.default_timeout.0 };
        asked.arrival + asked.limit.map_or(own, |limit| limit.min(own)) / 2
    }

    /// What answers a query when its version can't.
    fn other(
        &self,
        routing: &RoutingSnapshot,
        corpus: &Arc<CorpusState>,
        beside: Version,
    ) -> Option<Arc<CorpusState>> {
        let (name, version) = (&corpus.manifest.corpus, corpus.manifest.version);
        let routed = routing.corpora.get(name)?;
        let on_trial = routed.trial.filter(|trial| trial.version == version);
        let serves = on_trial.map(|trial| trial.control).or_else(|| routed.main())?;
        if serves == version {
            return (beside > Version(0)).then(|| corpus.clone());
        }
        self.versions.state(name, serves)
    }

    /// What is wrong with a query by its version alone: one that is refused by what it says, and would not be by the version that
    /// answers instead.
    pub(crate) async fn refused_alone(
        &self,
        pinned: &Pinned,
        asked: &Asked,
        error: &Error,
    ) -> Option<String> {
        let Error::Refused(failure) = error else { return None };
        let from = pinned.corpus.manifest.version;
        let other = pinned.other.as_ref().filter(|other| other.manifest.version != from)?;
        let by_what_it_says = failure.class == ErrorClass::InvalidArgument;
        (by_what_it_says && self.reads(asked, other).await)
            .then(|| failure.message.chars().take(REASON).collect())
    }

    /// Pins it to what answers instead, by the newest snapshot. `why` is from a closed list; `words`: what was wrong first.
    pub(crate) fn repin(
        &self,
        pinned: Pinned,
        trail: &mut Trail,
        why: &'static str,
        words: String,
    ) -> Pinned {
        let from = pinned.corpus.manifest.version;
        let corpus = pinned.other.unwrap_or(pinned.corpus);
        let to = corpus.manifest.version;
        self.metrics.repinned.with_label_values(&[if from == to { "control" } else { why }]).inc();
        if let Some(unlogged) = self.incidents.due("repinned").filter(|_| from != to) {
            let corpus = &corpus.manifest.corpus;
            tracing::warn!(corpus, %from, %to, why, words, unlogged, "a version could not answer whole");
        }
        trail.repinned = Some(Repinned { from, why, words });
        trail.spent = trail.gathered.tail;
        trail.timeline.fold("repin");
        let (choice, numbered) = (pinned.choice, SECOND);
        Pinned { numbered, choice, ..Pinned::to(self.routed(), corpus) }
    }

    /// Whether a page whose hits could not be fetched is asked again of another version: the leaf that found them is gone. Only
    /// while more time is left than was taken, and for what the budget for extra work pays.
    pub(crate) fn unfetched(
        &self,
        pinned: &Pinned,
        context: &RequestContext,
        asked: &Asked,
        documents: &[v1::FetchedDocument],
    ) -> bool {
        let missing = documents.iter().any(|document| !document.filled);
        let time = context.deadline.remaining() > asked.arrival.elapsed();
        let hedging = self.gatherer.hedging();
        let shards = pinned.corpus.shards.len();
        pinned.other.is_some() && missing && time && hedging.spend(&hedging.config(), shards)
    }
}

impl Repinned {
    /// What the answer says of it; nothing when the version is the same.
    pub(crate) fn warning(&self, corpus: &CorpusState) -> Option<Warning> {
        let to = corpus.manifest.version;
        let from = self.from;
        let message = if self.refused() {
            format!("answered from {to}, because {from} refuses the query: {}", self.words)
        } else {
            format!("answered from {to}, because {from} could not be answered whole")
        };
        (self.from != to).then(|| Warning { code: "repinned".to_owned(), message, query: String::new() })
    }
}

/// No shard was even planned: nobody holds them.
fn unheld(gathered: &Gathered) -> bool {
    let unavailable = |reply: &v1::ShardReply| convert::outcome(reply) == Outcome::Unavailable;
    gathered.shards.iter().any(unavailable)
}

/// The first shard that was lost, in words.
pub(crate) fn missing(corpus: &CorpusState, gathered: &Gathered) -> String {
    let lost = |reply: &&v1::ShardReply| {
        matches!(convert::outcome(reply), Outcome::Unavailable | Outcome::Failed(_))
    };
    let words = |reply: &v1::ShardReply| {
        let shard = corpus.shards.get(reply.shard as usize).map(|(shard, _)| shard.to_string());
        format!("{}: {}", shard.unwrap_or_default(), reply.reason).chars().take(REASON).collect()
    };
    gathered.shards.iter().find(lost).map(words).unwrap_or_default()
}

/// Nobody is pinned to a version any more, and nobody holds any of it.
fn is_gone(routing: &RoutingSnapshot, corpus: &str, version: Version) -> bool {
    let Some(routed) = routing.corpora.get(corpus).filter(|routed| !routed.versions.is_empty()) else {
        return false;
    };
    let pinned = routed.pins.iter().any(|pin| pin.version == version);
    let held = routed.holders(version).is_some_and(|shards| shards.values().any(|leaves| !leaves.is_empty()));
    !pinned && !held
}
