//! A leaf without an engine: it answers from a [`ModelCorpus`] with scripted latency and faults. It serves the same
//! interface as a real leaf, in process under paused time or behind gRPC on a simulated network, and counts at the
//! leaf what was asked, started and stopped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    deadline::Deadline,
    error::{ErrorClass, Failure},
    ids::NodeId,
    request::RequestContext,
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, sleep_until},
};

use crate::model_corpus::{ModelCorpus, answer, best};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Refuses at once.
    Refuse(ErrorClass),
    /// Fails after that many shards.
    Fail(ErrorClass, usize),
    /// Ends the stream after that many shards, without an error.
    End(usize),
    /// Goes silent after that many shards.
    Hang(usize),
    /// Says of the shard at that index, modulo their number, that it failed.
    ShardFails(ErrorClass, usize),
    /// Says of every shard that it does not hold it, going by the snapshot of that epoch.
    Unheld(u64),
    /// Has the next version and its own no more, going by the snapshot of that epoch.
    Swapped(u64),
    /// Says of the shard at that index, modulo their number, that it was shed.
    ShardSheds(usize),
    /// Breaks the contract.
    Lie(Lie),
}

/// How a leaf breaks the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Names a shard twice.
    Twice,
    /// Names a shard that was not asked.
    Unknown,
    /// Sends a hit of a shard that it does not settle.
    ForeignHit,
    /// Sends more hits than were asked.
    TooManyHits,
    /// Answers from another version.
    Version,
    /// Claims more documents than the shard has.
    Boast,
    /// Sends an outcome that nobody knows.
    Outcome,
    /// Sends facets that were not asked.
    Facet,
}

/// How a leaf behaves; may change while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// Before anything else.
    pub start: Duration,
    /// Per shard, one after the other.
    pub shard: Duration,
    /// Shards per message.
    pub batch: usize,
    /// Whether a shard that would take longer than the deadline answers at the deadline with what it has.
    pub honours_deadline: bool,
    /// Queue wait it reports, at least.
    pub queue_wait: Duration,
    /// How long after a search came the offsets that it wants are there; a search waits for three quarters of its time at most.
    pub behind: Duration,
    /// Documents of its overlay, per shard.
    pub overlay: u64,
    /// Whether it says that it is leaving.
    pub draining: bool,
    /// What goes wrong with a search.
    pub fault: Fault,
    /// What goes wrong with a fetch.
    pub fetch: Fault,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            start: Duration::from_millis(1),
            shard: Duration::from_millis(1),
            batch: 4,
            honours_deadline: false,
            queue_wait: Duration::ZERO,
            behind: Duration::ZERO,
            overlay: 0,
            draining: false,
            fault: Fault::None,
            fetch: Fault::None,
        }
    }
}

/// What happened at a leaf.
#[derive(Debug, Default)]
pub struct Seen {
    /// Searches that came.
    pub searches: AtomicU64,
    /// Shards asked in them.
    pub shards: AtomicU64,
    /// Searches that were dropped before their end.
    pub dropped: AtomicU64,
    /// Searches that run now.
    pub running: AtomicU64,
    /// Time each search was given, in order.
    pub budgets: Mutex<Vec<Duration>>,
    /// Tied searches that came: their attempt, and their twin.
    pub ties: Mutex<Vec<(u64, v1::Tie)>>,
    /// Shards that a cancel named.
    pub cancelled: AtomicU64,
    /// Items fetched by address.
    pub by_address: AtomicU64,
    /// Items fetched by key.
    pub by_key: AtomicU64,
}

/// A leaf.
pub struct ModelLeaf {
    node: NodeId,
    corpus: Arc<ModelCorpus>,
    script: Mutex<Script>,
    workers: Mutex<Option<Arc<Semaphore>>>,
    /// What happened.
    pub seen: Arc<Seen>,
}

impl ModelLeaf {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.node.0
    }

    /// A leaf that holds all of `corpus`; who asks it for what is the business of the routing.
    pub fn new(node: &str, corpus: Arc<ModelCorpus>) -> Self {
        let (script, workers, seen) = (Mutex::default(), Mutex::default(), Arc::default());
        Self { node: node.into(), corpus, script, workers, seen }
    }

    /// Searches that it works on at once; more wait in the order they came. By default there is no end of workers.
    pub fn workers(&self, count: usize) {
        *self.workers.lock() = Some(Arc::new(Semaphore::new(count)));
    }

    /// Changes the script.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock());
    }
}

/// Counts a search as running until its stream is dropped.
struct Running(Arc<Seen>, bool);

impl Running {
    fn begin(seen: &Arc<Seen>) -> Self {
        seen.running.fetch_add(1, Ordering::SeqCst);
        Self(seen.clone(), false)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A search on its way through its shards.
struct Walk {
    node: NodeId,
    corpus: Arc<ModelCorpus>,
    script: Script,
    deadline: Deadline,
    request: v1::SearchRequest,
    next: usize,
    ended: bool,
    running: Running,
    stale: bool,
    workers: Option<Arc<Semaphore>>,
    working: Option<OwnedSemaphorePermit>,
    waited: Duration,
}

impl Walk {
    /// The next message.
    async fn step(mut self) -> Option<(Result<v1::SearchReply, Failure>, Self)> {
        if self.ended {
            self.running.1 = true;
            return None;
        }
        if self.next == 0 {
            self.reach().await;
            if let Some(workers) = self.workers.take() {
                let came = Instant::now();
                self.working = workers.acquire_owned().await.ok();
                self.waited = came.elapsed();
            }
            sleep(self.script.start).await;
        }
        if let Fault::Refuse(class) = self.script.fault {
            return Some(self.fail(class, "refused"));
        }
        let mut reply = v1::SearchReply { call: Some(self.call()), ..Default::default() };
        while self.next < self.request.shards.len() && reply.shards.len() < self.script.batch.max(1) {
            match self.script.fault {
                Fault::Fail(class, after) if after == self.next => {
                    if reply.shards.is_empty() {
                        return Some(self.fail(class, "broke off"));
                    }
                    break;
                }
                Fault::End(after) if after == self.next => {
                    self.ended = true;
                    break;
                }
                Fault::Hang(after) if after == self.next => {
                    if reply.shards.is_empty() {
                        futures::future::pending::<()>().await;
                    }
                    break;
                }
                _ => self.shard(&mut reply).await,
            }
        }
        self.ended |= self.next == self.request.shards.len();
        self.lie(&mut reply);
        Some((Ok(reply), self))
    }

    /// Waits for the offsets that are wanted.
    async fn reach(&mut self) {
        if !self.request.wanted_offsets.is_empty() {
            let most = self.deadline.remaining() / 4 * 3;
            self.stale = self.script.behind > most;
            sleep(self.script.behind.min(most)).await;
        }
    }

    /// What it says of its overlay; it has read one record of partition 0, and what is wanted once that is there.
    fn newer(&self, reply: &mut v1::ShardReply) {
        if self.script.overlay == 0 && self.script.behind.is_zero() && self.request.wanted_offsets.is_empty()
        {
            return;
        }
        let read = v1::PartitionOffset { partition: 0, offset: 1 };
        let wanted = self.request.wanted_offsets.iter().filter(|_| !self.stale).copied();
        reply.offsets = std::iter::once(read).chain(wanted).collect();
        reply.documents_overlay = self.script.overlay;
        reply.lag_ms = self.script.behind.as_millis() as u64;
        reply.stale = self.stale;
    }

    fn fail(mut self, class: ErrorClass, why: &str) -> (Result<v1::SearchReply, Failure>, Self) {
        self.ended = true;
        (Err(Failure::new(class, why)), self)
    }

    fn call(&self) -> v1::CallReport {
        v1::CallReport {
            node: self.node.to_string(),
            in_flight: self.running.0.running.load(Ordering::SeqCst) as u32,
            queue_wait_us: self.script.queue_wait.max(self.waited).as_micros() as u64,
            pushback_ms: 0,
            epoch: 1,
            draining: self.script.draining,
        }
    }

    async fn shard(&mut self, reply: &mut v1::SearchReply) {
        let index = self.next as u32;
        self.next += 1;
        let count = self.request.shards.len();
        let (mut version, mut instead) = (self.corpus.version, None);
        if let Fault::Swapped(epoch) = self.script.fault {
            version += 1;
            instead = Some(v1::Instead { version, epoch });
        }
        let refusal = match self.script.fault {
            Fault::Swapped(epoch) if self.request.version != version => {
                Some((v1::Outcome::Failed, ErrorClass::FailedPrecondition as u32, epoch))
            }
            Fault::ShardFails(class, at) if at % count == index as usize => {
                Some((v1::Outcome::Failed, class as u32, 0))
            }
            Fault::ShardSheds(at) if at % count == index as usize => Some((v1::Outcome::Shed, 0, 0)),
            Fault::Unheld(epoch) => Some((v1::Outcome::Failed, ErrorClass::FailedPrecondition as u32, epoch)),
            _ => None,
        };
        if let Some((outcome, error_class, wrong_epoch)) = refusal {
            let reason = "scripted".to_owned();
            let outcome = outcome as i32;
            reply.shards.push(v1::ShardReply {
                shard: index,
                outcome,
                error_class,
                reason,
                wrong_epoch,
                instead,
                ..Default::default()
            });
            return;
        }
        let Some(shard) = self.corpus.shard(&self.request.shards[index as usize].shard) else { return };
        let all = shard.documents.len();
        let done_at = Instant::now() + self.script.shard;
        let deadline = self.deadline.instant();
        let searched = if self.script.honours_deadline && done_at > deadline {
            let had = deadline.saturating_duration_since(Instant::now());
            sleep_until(deadline).await;
            (all as f64 * had.as_secs_f64() / self.script.shard.as_secs_f64()) as usize
        } else {
            sleep_until(done_at).await;
            all
        };
        let (mut shard_reply, hits) = answer(&self.request, index, shard, version, searched);
        shard_reply.node = self.node.to_string();
        shard_reply.lease = 1;
        self.newer(&mut shard_reply);
        let k = self.request.shards.iter().map(|shard| shard.k).max().unwrap_or(0) as usize;
        let both = std::mem::take(&mut reply.hits).into_iter().chain(hits).collect();
        reply.hits = best(&self.request, both, k);
        reply.shards.push(shard_reply);
    }

    fn lie(&self, reply: &mut v1::SearchReply) {
        let Fault::Lie(lie) = self.script.fault else { return };
        let Some(first) = reply.shards.first().cloned() else { return };
        let strange = v1::Hit { shard: u32::MAX, score: 99.0, ..Default::default() };
        match lie {
            Lie::Twice => reply.shards.push(first),
            Lie::Unknown => reply.shards[0].shard = u32::MAX,
            Lie::ForeignHit => reply.hits.push(strange),
            Lie::TooManyHits => {
                reply.hits.resize(20_000, v1::Hit { shard: first.shard, score: 99.0, ..Default::default() });
            }
            Lie::Version => reply.shards.iter_mut().for_each(|shard| shard.version += 1),
            Lie::Boast => reply.shards.iter_mut().for_each(|shard| {
                shard.documents_searched = u64::MAX;
                shard.documents_pruned = u64::MAX;
            }),
            Lie::Outcome => reply.shards.iter_mut().for_each(|shard| shard.outcome = 4711),
            Lie::Facet => reply.shards[0].facets.push(v1::FacetCounts { facet: 999, ..Default::default() }),
        }
    }
}

impl SearchNode for ModelLeaf {
    fn search(&self, context: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        self.seen.searches.fetch_add(1, Ordering::SeqCst);
        self.seen.shards.fetch_add(request.shards.len() as u64, Ordering::SeqCst);
        self.seen.budgets.lock().push(context.deadline.remaining());
        if let Some(tie) = &request.tie {
            self.seen.ties.lock().push((request.attempt_id, tie.clone()));
        }
        let walk = Walk {
            node: self.node.clone(),
            corpus: self.corpus.clone(),
            script: *self.script.lock(),
            deadline: context.deadline,
            request,
            next: 0,
            ended: false,
            running: Running::begin(&self.seen),
            stale: false,
            workers: self.workers.lock().clone(),
            working: None,
            waited: Duration::ZERO,
        };
        stream::unfold(walk, Walk::step).boxed()
    }

    fn fetch(
        &self,
        _context: RequestContext,
        request: v1::FetchRequest,
    ) -> BoxFuture<'static, Result<v1::FetchReply, Failure>> {
        let (script, corpus, seen) = (*self.script.lock(), self.corpus.clone(), self.seen.clone());
        let own = self.node.to_string();
        async move {
            sleep(script.start).await;
            match script.fetch {
                Fault::Refuse(class) | Fault::Fail(class, _) => return Err(Failure::new(class, "refused")),
                Fault::Hang(_) => futures::future::pending::<()>().await,
                _ => {}
            }
            let document = |item: &v1::FetchItem| {
                let by_address = item.node == own && item.lease != 0;
                let counter = if by_address { &seen.by_address } else { &seen.by_key };
                counter.fetch_add(1, Ordering::SeqCst);
                let shard = corpus.shard(&item.shard);
                let known = shard.is_some_and(|shard| {
                    shard
                        .documents
                        .iter()
                        .any(|document| document.key.parts() == (item.key_high, item.key_low))
                });
                let lost = script.fetch == Fault::End(0) || !known;
                let key = format!("{:016x}{:016x}", item.key_high, item.key_low);
                let reason = if lost { "the document is not here".to_owned() } else { String::new() };
                v1::FetchedDocument { filled: !lost, key, title: own.clone(), reason, ..Default::default() }
            };
            let documents = request.items.iter().map(document).collect();
            Ok(v1::FetchReply { documents, call: None })
        }
        .boxed()
    }

    fn cancel(&self, request: v1::CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        let count = request.shards.len() as u32;
        self.seen.cancelled.fetch_add(u64::from(count), Ordering::SeqCst);
        futures::future::ready(Ok(count)).boxed()
    }
}
