//! One RPC of a branch: what was asked of whom, and the stream of its replies.
//!
//! Dropping a [`Call`] is what cancels: the stream goes (the far side sees its call reset) and the attempt's
//! cancellation token fires (a node in this process stops its work). The transport's timeout covers only the start of
//! a stream, so nothing here relies on it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{Epoch, NodeId},
};
use canopy_proto::{ReplyStream, v1};
use futures::{
    Stream,
    stream::{AbortHandle, Abortable, FuturesUnordered, StreamFuture},
};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::{
    retry::{History, Retry},
    watched::Watched,
};
use crate::load::{Ending, InFlight};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Runs.
    Pending,
    /// Its replies settled shards.
    Won,
    /// All its shards were settled by others.
    Lost,
    /// It failed or was refused.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl Fate {
    /// The word on the timeline.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Won => "won",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why an attempt was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first of its branch.
    First,
    /// The one before was late.
    Hedge,
    /// A copy that was sent at once.
    Copy,
    /// The second of two that know each other.
    Tied,
    /// The one before failed.
    Retry(Retry),
    /// The one before was asked for fewer hits than it may hold of the page.
    More,
}

impl Kind {
    /// The word on the timeline.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Hedge => "hedge",
            Self::Copy => "copy",
            Self::Tied => "tied",
            Self::Retry(_) => "retry",
            Self::More => "more",
        }
    }

    /// Whether it is sent while another one runs.
    pub fn is_hedge(self) -> bool {
        matches!(self, Self::Hedge | Self::Copy | Self::Tied)
    }

    /// The kind of retry it is.
    pub fn retry(self) -> Option<Retry> {
        match self {
            Self::Retry(retry) => Some(retry),
            _ => None,
        }
    }
}

/// One attempt.
pub struct Attempt {
    /// Unique in the whole tree for its query.
    pub id: u64,
    /// Index of its branch.
    pub branch: usize,
    /// Why it was sent.
    pub kind: Kind,
    /// It waits for offsets of the log: its time says nothing of its node.
    pub waits: bool,
    /// It knows its twin.
    pub tied: bool,
    /// Where its time is noted.
    pub watched: Watched,
    /// Whom it asked.
    pub node: NodeId,
    /// Shards asked, as indexes in the request's shards; replies index this list.
    pub shards: Vec<u32>,
    /// Which of them a reply named.
    pub replied: Vec<bool>,
    /// How many of them no reply named yet.
    pub waiting: u32,
    /// Which of them its node was told to stop.
    pub stopped: Vec<usize>,
    /// What was tried for these shards, this attempt included.
    pub history: History,
    /// When it was sent.
    pub sent: Instant,
    /// The snapshot that it was planned by.
    pub epoch: Epoch,
    /// Time it was given.
    pub budget: Duration,
    /// Whether it settled a shard.
    pub won: bool,
    /// The first refusal of a shard that was open.
    pub refusal: Option<ErrorClass>,
    /// Its node does not have what it was asked for.
    pub unheld: bool,
    /// How it ended.
    pub fate: Fate,
    /// Timeline of the far side.
    pub spans: Vec<v1::Span>,
    /// When it ended.
    pub ended: Option<Instant>,
    /// Stops its stream.
    pub stop: AbortHandle,
    /// Counted as in flight until it ends.
    pub flight: Option<InFlight>,
}

impl Attempt {
    /// Whether any reply came.
    pub fn started(&self) -> bool {
        self.replied.contains(&true)
    }

    /// Shards that no reply named.
    pub fn unanswered(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().zip(&self.replied).filter(|(_, replied)| !**replied).map(|(shard, _)| *shard)
    }

    /// Says how its call ended, as far as that tells of the node. Before [`Attempt::end`], once.
    pub fn told(&self, ending: Ending) {
        if let Some(flight) = &self.flight {
            flight.ended(if self.waits { ending.untimed() } else { ending }, self.budget);
        }
    }

    /// Ends it; the first fate stays. True when it was running.
    pub fn end(&mut self, fate: Fate) -> bool {
        if self.fate != Fate::Pending {
            return false;
        }
        self.fate = fate;
        let now = Instant::now();
        self.ended = Some(now);
        self.flight = None;
        self.watched.ended(fate, now.saturating_duration_since(self.sent), self.waiting == 0);
        true
    }

    /// What is kept of it, times relative to `arrival`.
    pub fn step(&self, arrival: Instant) -> Step {
        let micros = |time: Duration| time.as_micros() as u64;
        let until = self.ended.unwrap_or_else(Instant::now);
        Step {
            node: self.node.clone(),
            attempt: self.id,
            kind: self.kind.as_str(),
            fate: self.fate,
            shard: self.shards.first().copied().unwrap_or_default(),
            shards: self.shards.len(),
            start_us: micros(self.sent.saturating_duration_since(arrival)),
            duration_us: micros(until.saturating_duration_since(self.sent)),
        }
    }

    /// Its line on the timeline, times relative to `arrival`.
    pub fn span(&self, this: &NodeId, arrival: Instant, shard: &str) -> v1::Span {
        let micros = |time: Duration| time.as_micros() as u64;
        let until = self.ended.unwrap_or_else(Instant::now);
        v1::Span {
            node: this.to_string(),
            name: format!("ask {}, {} shards, {}", self.node, self.shards.len(), self.kind.as_str()),
            start_us: micros(self.sent.saturating_duration_since(arrival)),
            duration_us: micros(until.saturating_duration_since(self.sent)),
            shard: shard.to_owned(),
            attempt_id: self.id,
            fate: self.fate.as_str().to_owned(),
            children: self.spans.clone(),
        }
    }
}

/// What is kept of an attempt after its search, for whoever asks why it was slow. Times are microseconds since the
/// search began at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whom it asked.
    pub node: NodeId,
    /// Its id.
    pub attempt: u64,
    /// Why it was sent, in the timeline's word.
    pub kind: &'static str,
    /// How it ended.
    pub fate: Fate,
    /// The first shard asked, as index in the request's shards.
    pub shard: u32,
    /// How many were asked.
    pub shards: usize,
    /// When it was sent.
    pub start_us: u64,
    /// How long it ran.
    pub duration_us: u64,
}

impl Step {
    /// When it ended.
    pub fn end_us(&self) -> u64 {
        self.start_us.saturating_add(self.duration_us)
    }

    /// As JSON.
    pub fn record(&self) -> serde_json::Value {
        let millis = |us: u64| us as f64 / 1000.0;
        serde_json::json!({
            "node": self.node.to_string(),
            "attempt": self.attempt.to_string(),
            "shards": self.shards,
            "start_ms": millis(self.start_us),
            "took_ms": millis(self.duration_us),
            "kind": self.kind,
            "fate": self.fate.as_str(),
        })
    }
}

/// What one call said.
#[derive(Debug)]
pub enum Said {
    /// A message.
    Reply(Box<v1::SearchReply>),
    /// It failed.
    Failed(Failure),
    /// It ended, or was stopped.
    Ended,
}

/// Replies of one attempt.
pub struct Call {
    /// Index of the attempt.
    pub attempt: usize,
    replies: Abortable<ReplyStream>,
    span: tracing::Span,
    _stop: DropGuard,
}

impl Call {
    /// The call and the handle that stops it.
    pub fn new(
        attempt: usize,
        replies: ReplyStream,
        stop: DropGuard,
        span: tracing::Span,
    ) -> (Self, AbortHandle) {
        let (handle, registration) = AbortHandle::new_pair();
        let replies = Abortable::new(replies, registration);
        (Self { attempt, replies, span, _stop: stop }, handle)
    }
}

impl Stream for Call {
    type Item = Result<v1::SearchReply, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let _entered = this.span.enter();
        Pin::new(&mut this.replies).poll_next(cx)
    }
}

/// All running calls; each yields itself back with its next message, so that the loop decides whether it goes on.
pub type Calls = FuturesUnordered<StreamFuture<Call>>;
