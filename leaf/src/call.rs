//! One search at this leaf: which shards are asked, who works on them, what has settled.
//!
//! Search threads settle shards; the stream of [`crate::search`] takes what has settled and sends it. Rules: every
//! asked shard settles exactly once, whoever is first (a thread, the deadline's timer, a cancel); what comes later is
//! dropped. Shards that finish close together share a message: a result is held back at most `coalesce`, judged by how
//! long this thread's last shard took, so that short searches coalesce and long ones are sent at once. Units:
//! microseconds since arrival.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use canopy_common::{deadline::Deadline, error::Failure};
use canopy_proto::v1::{Hit, SearchRequest, ShardReply, Span};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    shards::Serving,
    stop::Stop,
    tie::{Action, Event, Tied},
};

/// A shard to search.
pub struct Target {
    /// Its place in the request.
    pub index: u32,
    /// Its view.
    pub serving: Arc<Serving>,
    /// Tells its search to stop.
    pub stop: Stop,
    cancelled: Arc<AtomicBool>,
}

/// A shard that has come to an end.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    /// Its hits, in result order.
    pub hits: Vec<Hit>,
    /// Its account.
    pub reply: ShardReply,
    /// Its timeline, when asked.
    pub span: Option<Span>,
}

#[derive(Default)]
struct Outbox {
    settled: Vec<bool>,
    open: usize,
    waiting: Vec<Settled>,
    since: Option<Instant>,
    due: bool,
    fatal: Option<Failure>,
    closed: bool,
}

/// What the stream finds.
pub enum Found {
    /// These are to be sent; `last`: nothing will follow.
    Send {
        /// What has settled.
        settled: Vec<Settled>,
        /// Nothing is open any more.
        last: bool,
    },
    /// The whole call failed.
    Fatal(Failure),
    /// Nothing to send before this moment, if any.
    Wait(Option<Instant>),
    /// All was sent.
    End,
}

/// The state of one search.
pub struct Call {
    /// Number of this call at this leaf; owns its tasks.
    pub number: u64,
    /// The request.
    pub request: Arc<SearchRequest>,
    /// When it came.
    pub arrived: Instant,
    /// When it ends.
    pub deadline: Deadline,
    /// Continues on the search threads.
    pub span: tracing::Span,
    /// Its twin, when it is tied.
    pub tied: Option<Tied>,
    targets: Vec<Target>,
    next: AtomicUsize,
    queue_us: AtomicU64,
    stopped_us: AtomicU64,
    coalesce: Duration,
    outbox: Mutex<Outbox>,
    /// Wakes the stream.
    pub wake: Notify,
}

const NOT_YET: u64 = u64::MAX;
/// No thread has begun, and none will.
const GIVEN_BACK: u64 = u64::MAX - 1;

impl Call {
    /// A call for `request`, whose searchable shards are `servings`; the others are settled by the caller.
    pub fn new(
        number: u64,
        request: Arc<SearchRequest>,
        deadline: Deadline,
        servings: Vec<(u32, Arc<Serving>)>,
        coalesce: Duration,
        span: tracing::Span,
    ) -> Self {
        // Threads stop a little earlier than the stream, so that what they found until then is still sent.
        let remaining = deadline.remaining();
        let margin = (remaining / 10).min(Duration::from_millis(2));
        let work_until = deadline.child(margin);
        let targets = servings.into_iter().map(|(index, serving)| {
            let cancelled = Arc::new(AtomicBool::new(false));
            Target { index, serving, stop: Stop::new(work_until, cancelled.clone()), cancelled }
        });
        let shards = request.shards.len();
        Self {
            number,
            arrived: Instant::now(),
            deadline,
            span,
            tied: None,
            targets: targets.collect(),
            next: AtomicUsize::new(0),
            queue_us: AtomicU64::new(NOT_YET),
            stopped_us: AtomicU64::new(NOT_YET),
            coalesce,
            // A call for no shards has nothing to wait for.
            outbox: Mutex::new(Outbox {
                settled: vec![false; shards],
                open: shards,
                due: shards == 0,
                ..Outbox::default()
            }),
            wake: Notify::new(),
            request,
        }
    }

    /// Shards to search.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Microseconds since arrival.
    pub fn elapsed_us(&self) -> u64 {
        self.arrived.elapsed().as_micros() as u64
    }

    /// A thread begins to work on the call; the first one counts. How long it waited, and what its tie asks for; `None`:
    /// another thread has given it back.
    pub fn begin(&self) -> Option<(Duration, Action)> {
        let now = self.elapsed_us();
        let first = self.queue_us.compare_exchange(NOT_YET, now, Ordering::Relaxed, Ordering::Relaxed);
        match (first, &self.tied) {
            (Err(GIVEN_BACK), _) => None,
            (Err(earlier), _) => Some((Duration::from_micros(earlier), Action::Nothing)),
            (Ok(_), None) => Some((Duration::from_micros(now), Action::Nothing)),
            (Ok(_), Some(tied)) => {
                Some((Duration::from_micros(now), tied.on(Event::Begins(tied.claim(now)))))
            }
        }
    }

    /// Gives back a call that no thread has begun with; false when one has. One step with [`Call::begin`]: a copy that
    /// has told its twin to drop is never dropped itself by another thread that still saw it waiting.
    pub fn give_back(&self) -> bool {
        let before =
            self.queue_us.compare_exchange(NOT_YET, GIVEN_BACK, Ordering::Relaxed, Ordering::Relaxed);
        matches!(before, Ok(_) | Err(GIVEN_BACK))
    }

    /// Whether a thread has begun to work on it.
    pub fn begun(&self) -> bool {
        !matches!(self.queue_us.load(Ordering::Relaxed), NOT_YET | GIVEN_BACK)
    }

    /// How long it waited for a thread, or has been waiting.
    pub fn queue_us(&self) -> u64 {
        match self.queue_us.load(Ordering::Relaxed) {
            NOT_YET | GIVEN_BACK => self.elapsed_us(),
            waited => waited,
        }
    }

    /// The next shard that nobody works on and nobody has stopped.
    pub fn next_target(&self) -> Option<&Target> {
        loop {
            let target = self.targets.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            if !target.cancelled.load(Ordering::Relaxed) {
                return Some(target);
            }
        }
    }

    /// Time since the call was stopped; `None`: it was not.
    pub fn since_stopped(&self) -> Option<Duration> {
        let stopped = self.stopped_us.load(Ordering::Relaxed);
        (stopped != NOT_YET).then(|| Duration::from_micros(self.elapsed_us().saturating_sub(stopped)))
    }

    /// Settles a shard; false when it had settled before. `took`: how long its search took. `accepted` runs before the
    /// stream can see the result.
    pub fn settle(&self, settled: Settled, took: Duration, accepted: impl FnOnce()) -> bool {
        let mut outbox = self.outbox.lock();
        let Some(done) = outbox.settled.get_mut(settled.reply.shard as usize) else { return false };
        if std::mem::replace(done, true) {
            return false;
        }
        outbox.open -= 1;
        let now = Instant::now();
        let since = *outbox.since.get_or_insert(now);
        let first = outbox.waiting.is_empty();
        outbox.waiting.push(settled);
        outbox.due |= outbox.open == 0 || now - since + took > self.coalesce;
        let wake = outbox.due || first;
        accepted();
        drop(outbox);
        if wake {
            self.wake.notify_one();
        }
        true
    }

    /// Settles every open shard of `which` (all when empty) with what `make` gives; how many there were. Their searches
    /// are told to stop. `accepted` is told the number before the stream can see the results.
    pub fn settle_open(
        &self,
        which: &[u32],
        make: impl Fn(u32) -> ShardReply,
        accepted: impl FnOnce(usize),
    ) -> usize {
        let mut count = 0;
        let mut outbox = self.outbox.lock();
        for index in 0..outbox.settled.len() as u32 {
            let asked = which.is_empty() || which.contains(&index);
            if asked && !std::mem::replace(&mut outbox.settled[index as usize], true) {
                outbox.open -= 1;
                outbox.waiting.push(Settled { reply: make(index), ..Settled::default() });
                count += 1;
            }
        }
        outbox.due |= count > 0;
        accepted(count);
        drop(outbox);
        self.stop(which);
        self.wake.notify_one();
        count
    }

    /// Ends the call for good with a failure that is the same for every shard.
    pub fn fail(&self, failure: Failure) {
        self.outbox.lock().fatal.get_or_insert(failure);
        self.stop(&[]);
        self.wake.notify_one();
    }

    /// Nobody takes results any more; the number of shards that were open.
    pub fn close(&self) -> usize {
        self.stop(&[]);
        let mut outbox = self.outbox.lock();
        outbox.closed = true;
        outbox.waiting.clear();
        outbox.settled.fill(true);
        std::mem::take(&mut outbox.open)
    }

    fn stop(&self, which: &[u32]) {
        let now = self.elapsed_us();
        let _first_counts =
            self.stopped_us.compare_exchange(NOT_YET, now, Ordering::Relaxed, Ordering::Relaxed);
        for target in &self.targets {
            if which.is_empty() || which.contains(&target.index) {
                target.cancelled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether every shard has settled.
    pub fn all_settled(&self) -> bool {
        self.outbox.lock().open == 0
    }

    /// What the stream should do now; `force`: send what waits even if more is near.
    pub fn find(&self, force: bool) -> Found {
        let mut outbox = self.outbox.lock();
        if let Some(failure) = outbox.fatal.take() {
            outbox.closed = true;
            return Found::Fatal(failure);
        }
        if outbox.closed {
            return Found::End;
        }
        if outbox.waiting.is_empty() && outbox.open > 0 {
            return Found::Wait(None);
        }
        if !(outbox.due || force) {
            return Found::Wait(outbox.since.map(|since| since + self.coalesce));
        }
        outbox.due = false;
        outbox.since = None;
        let last = outbox.open == 0;
        outbox.closed = last;
        Found::Send { settled: std::mem::take(&mut outbox.waiting), last }
    }
}

#[cfg(test)]
mod tests;
