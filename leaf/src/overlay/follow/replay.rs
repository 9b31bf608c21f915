//! The loop of a follower: waits for news, the clock and its own threads, and starts what the policies say.
//!
//! The overlay is in one place at a time: here, or with the thread that applies a batch or takes it down for a
//! checkpoint. Merges, and the writing of checkpoints, run beside that. What goes wrong with the overlay itself (the engine
//! failed, a thread panicked) throws it away and begins from the last checkpoint; what is shown stays shown, and stale.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use canopy_proto::ingest::DeadLetter;
use futures::future::{BoxFuture, FutureExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Following, Report, Shared, Stage,
    link::{Event, Link},
    pace::{self, Seen, Todo},
};
use crate::{
    error::{Error, Result},
    overlay::{
        apply::Applied,
        checkpoint::{self, Snapshot, Written},
        measure::Waiting,
        merge::Job,
        part::Part,
        write::{LARGE, SMALL},
    },
    shards::background::{self, Priority},
    view::ShardView,
};

mod save;
mod tell;

/// How long the log may be away before what is served is called stale.
const AWAY: Duration = Duration::from_secs(3);
/// How often it is told how it goes.
const TELL: Duration = Duration::from_secs(1);
/// Pause before an overlay that broke is begun anew.
const ANEW: Duration = Duration::from_secs(5);
/// Dead letters that wait to be handed over; more are lost, and counted.
const LETTERS: usize = 10_000;
/// Dead letters handed over at a time, and the pause after a try that failed.
const AT_ONCE: usize = 500;
const AGAIN: Duration = Duration::from_secs(1);

/// What a thread gave back.
enum Done {
    Applied {
        applied: Box<Applied>,
        result: Result<()>,
        letters: Vec<DeadLetter>,
        view: Option<ShardView>,
        took: Duration,
    },
    Taken {
        applied: Box<Applied>,
        written: Written,
        snapshot: Result<Snapshot>,
    },
}

type Work<T> = Option<BoxFuture<'static, std::io::Result<T>>>;

struct Loop<'a> {
    of: &'a Following,
    shared: &'a Shared,
    link: Link,
    waiting: Waiting,
    /// `None`: a thread has it.
    applied: Option<Box<Applied>>,
    work: Work<Done>,
    merging: Work<(Job, Result<Option<Part>>)>,
    merged: Option<(Job, Option<Part>)>,
    saving: Work<std::io::Result<()>>,
    written: Option<Written>,
    /// What the last checkpoint has.
    saved: (Instant, BTreeMap<u32, u64>),
    letters: VecDeque<DeadLetter>,
    /// On their way.
    handed: Vec<DeadLetter>,
    telling: Option<BoxFuture<'static, std::result::Result<(), String>>>,
    tell_after: Instant,
    goal: Option<BTreeMap<u32, u64>>,
    shown: Instant,
    unshown: bool,
    since: Option<Instant>,
    /// Since when the log is not heard.
    away: Option<Instant>,
    told: Instant,
    begun: Instant,
    base: u64,
    report: Report,
    over: bool,
}

/// Runs until it is stopped, or nobody could see what it shows.
pub(super) async fn run(of: Following, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        match begin(&of).await {
            Ok((applied, epoch, written)) => {
                let mut replay = Loop::new(&of, &shared, applied, epoch, written);
                match replay.run(&stop).await {
                    Ok(()) => {
                        if stop.is_cancelled() {
                            replay.save().await;
                        }
                        return;
                    }
                    Err(error) => broke(&of, &error),
                }
            }
            Err(error) => broke(&of, &error),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(ANEW) => {}
        }
    }
}

fn broke(of: &Following, error: &Error) {
    let view = &of.ground.view;
    let (shard, version) = (&view.shard, view.version);
    tracing::error!(%shard, %version, %error, "the overlay broke; it is begun anew from its last checkpoint");
    view.lag.set_stale(true);
}

/// The overlay of the checkpoint, or an empty one.
async fn begin(of: &Following) -> Result<(Applied, String, Written)> {
    let (dir, name) = of.checkpoint.clone();
    let (ground, config) = (of.ground.clone(), of.config.clone());
    let read = move || checkpoint::read(&dir, &name, &ground, &config);
    let read = background::run("replay", of.priority, read).await;
    let view = &of.ground.view;
    let (shard, version) = (&view.shard, view.version);
    let read = read.unwrap_or_else(|error| Err(error.to_string()));
    match read {
        Ok(Some(read)) if of.wanted.epoch.is_empty() || of.wanted.epoch == read.epoch => {
            tracing::info!(%shard, %version, offsets = ?read.applied.offsets(), "replays from its checkpoint");
            return Ok((read.applied, read.epoch, read.written));
        }
        Ok(Some(read)) => {
            let epoch = read.epoch;
            tracing::warn!(%shard, %version, epoch, "the checkpoint is of another log; replaying from the cut");
        }
        Ok(None) => {}
        Err(reason) => {
            tracing::warn!(%shard, %version, reason, "the checkpoint can't be used; replaying from the cut");
        }
    }
    let applied = Applied::new(of.ground.clone(), &of.config, of.cut.clone());
    Ok((applied, of.wanted.epoch.clone(), Written::default()))
}

impl<'a> Loop<'a> {
    fn new(of: &'a Following, shared: &'a Shared, applied: Applied, epoch: String, written: Written) -> Self {
        let now = Instant::now();
        let offsets = applied.offsets().clone();
        let mut wanted = of.wanted.clone();
        wanted.epoch = epoch;
        Self {
            of,
            shared,
            link: Link::new(of.source.clone(), wanted),
            waiting: Waiting::new(&offsets),
            applied: Some(Box::new(applied)),
            work: None,
            merging: None,
            merged: None,
            saving: None,
            written: Some(written),
            saved: (now, offsets),
            letters: VecDeque::new(),
            handed: Vec::new(),
            telling: None,
            tell_after: now,
            goal: None,
            shown: now,
            unshown: false,
            since: None,
            away: Some(now),
            told: now,
            begun: now,
            base: 0,
            report: Report::default(),
            over: false,
        }
    }

    fn caught_up(&self) -> bool {
        *self.shared.stage.borrow() == Stage::CaughtUp
    }

    async fn run(&mut self, stop: &CancellationToken) -> Result<()> {
        // What a checkpoint held is better than the base alone while the log is away.
        if let Some(applied) = &self.applied {
            self.show(applied.view());
        }
        while !self.over {
            let due = self.start();
            let next = self.waiting.next();
            let room = self.waiting.size().1 < pace::MOST_BYTES;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                done = wait(&mut self.work) => self.done(flat(done)?)?,
                merged = wait(&mut self.merging) => self.merge_ended(flat(merged)?)?,
                saved = wait(&mut self.saving) => self.saved(saved),
                told = wait_told(&mut self.telling) => self.letters_told(told),
                event = self.link.event(&next), if room => self.event(event),
                () = sleep_until(due) => {}
            }
        }
        Ok(())
    }

    /// Starts what is to be started; when to look again at the latest.
    fn start(&mut self) -> Instant {
        let now = Instant::now();
        self.measure(now);
        let mut due = self.told + TELL;
        if self.telling.is_none() && !self.letters.is_empty() && self.away.is_none() {
            if self.tell_after <= now {
                self.hand_over();
            } else {
                due = due.min(self.tell_after);
            }
        }
        if let Some(applied) = &mut self.applied {
            if let Some((job, part)) = self.merged.take() {
                applied.merged(&job, part);
                self.unshown = true;
            }
            if self.merging.is_none()
                && let Some(job) = applied.merge(now.checked_sub(self.of.config.purge.0))
            {
                self.merging = Some(self.merge(job));
            }
        }
        if self.applied.is_some() {
            match pace::decide(&self.seen(), now) {
                Todo::Apply { large, show } => self.apply(large, show),
                Todo::Wait(until) => {
                    due = until.map_or(due, |until| due.min(until));
                    if self.saved.0 + self.of.config.checkpoint.0 <= now {
                        self.take_down();
                    }
                }
            }
        }
        due
    }

    fn seen(&self) -> Seen {
        let next = self.waiting.next();
        let to_goal = || {
            let left = |(partition, goal): (&u32, &u64)| {
                goal.saturating_sub(next.get(partition).copied().unwrap_or(0))
            };
            self.goal.iter().flatten().map(left).sum()
        };
        let caught_up = self.caught_up();
        Seen {
            waiting: self.waiting.size(),
            behind: if caught_up { self.waiting.behind() } else { to_goal() },
            moved: self.report.offsets != next
                || (self.goal.is_some() && self.report.stage == Stage::Replaying),
            caught_up,
            unshown: self.unshown,
            shown: self.shown,
            refresh: self.of.config.refresh.0,
        }
    }

    fn merge(&self, job: Job) -> BoxFuture<'static, std::io::Result<(Job, Result<Option<Part>>)>> {
        let ground = self.of.ground.clone();
        let work = move || {
            let part = job.run(&ground.view.shard, &ground.view.base.schema);
            (job, part)
        };
        background::run("merge", Priority::Low, work).boxed()
    }

    fn apply(&mut self, large: bool, show: bool) {
        let Some(mut applied) = self.applied.take() else { return };
        let batch = self.waiting.batch();
        let now = Instant::now();
        self.report.refresh_ms = self.since.take().map_or(0, |since| (now - since).as_millis() as u64);
        let budget = if large { LARGE } else { SMALL };
        let work = move || {
            let (begun, mut letters) = (Instant::now(), Vec::new());
            let result = applied.apply(&batch.records, &batch.next, budget, &mut letters);
            let result = result.and_then(|()| if show { applied.close() } else { Ok(()) });
            let view = (show && result.is_ok()).then(|| applied.view());
            Done::Applied { applied, result, letters, view, took: begun.elapsed() }
        };
        self.work = Some(background::run("replay", self.of.priority, work).boxed());
    }

    fn done(&mut self, done: Done) -> Result<()> {
        match done {
            Done::Applied { applied, result, letters, view, took } => {
                result?;
                self.letters.extend(letters);
                while self.letters.len() > LETTERS {
                    self.letters.pop_front();
                    self.report.letters_lost += 1;
                }
                self.report.apply_ms = took.as_millis() as u64;
                self.applied = Some(applied);
                self.unshown = view.is_none();
                if let Some(view) = view {
                    self.waiting.shown();
                    self.show(view);
                }
            }
            Done::Taken { applied, written, snapshot } => {
                self.saved = (Instant::now(), applied.offsets().clone());
                self.applied = Some(applied);
                let (snapshot, dir) = (snapshot?, self.of.checkpoint.0.clone());
                self.written = Some(written);
                self.saving =
                    Some(background::run("save", Priority::Low, move || snapshot.write(&dir)).boxed());
            }
        }
        Ok(())
    }

    fn merge_ended(&mut self, (job, part): (Job, Result<Option<Part>>)) -> Result<()> {
        self.merged = Some((job, part?));
        Ok(())
    }

    /// Publishes, and sees whether that is all that was wanted.
    fn show(&mut self, view: ShardView) {
        self.shown = Instant::now();
        self.report.offsets = (*view.offsets).clone();
        let reached = self.goal.as_ref().is_some_and(|goal| {
            goal.iter().all(|(partition, goal)| view.offsets.get(partition).is_none_or(|next| next >= goal))
        });
        self.over = !self.shared.show(view);
        if reached && !self.caught_up() {
            self.report.stage = Stage::CaughtUp;
            self.shared.stage.send_replace(Stage::CaughtUp);
        }
        self.measure(self.shown);
        self.tell(self.shown);
    }

    fn event(&mut self, event: Event) {
        let lag = &self.of.ground.view.lag;
        match event {
            Event::Ends(epoch, ends) => {
                let next = self.waiting.next();
                let goal: BTreeMap<u32, u64> =
                    ends.into_iter().filter(|(partition, _)| next.contains_key(partition)).collect();
                if self.goal.is_none() {
                    let all =
                        goal.iter().map(|(at, end)| end.saturating_sub(next.get(at).copied().unwrap_or(0)));
                    self.report.replay.0 = all.sum();
                    self.base = self.report.counts.applied;
                    self.begun = Instant::now();
                    self.goal = Some(goal);
                }
                self.report.epoch = epoch;
                self.report.stale.clear();
                if self.report.stage == Stage::Lost {
                    self.report.stage = Stage::Replaying;
                    self.shared.stage.send_replace(Stage::Replaying);
                }
                self.away = None;
                lag.set_stale(false);
            }
            Event::Reply(reply) => {
                let before = self.waiting.size().0;
                self.waiting.take(reply, self.of.clock.now_us());
                if before == 0 && self.waiting.size().0 > 0 {
                    self.since = Some(Instant::now());
                }
            }
            Event::Broken(reason) => {
                self.waiting.broken();
                let away = *self.away.get_or_insert_with(Instant::now);
                if away.elapsed() >= AWAY && self.report.stale.is_empty() {
                    self.stale(format!("the log can't be heard: {reason}"), false);
                }
            }
            Event::Lost(reason) => {
                self.waiting.broken();
                self.away.get_or_insert_with(Instant::now);
                self.report.stage = Stage::Lost;
                self.shared.stage.send_replace(Stage::Lost);
                self.stale(format!("{reason}; load a newer version"), true);
            }
        }
    }
}

/// What a thread gives; never, when none runs.
async fn wait<T>(work: &mut Work<T>) -> std::io::Result<T> {
    match work {
        Some(running) => {
            let done = running.await;
            *work = None;
            done
        }
        None => std::future::pending().await,
    }
}

async fn wait_told(
    telling: &mut Option<BoxFuture<'static, std::result::Result<(), String>>>,
) -> std::result::Result<(), String> {
    match telling {
        Some(running) => {
            let done = running.await;
            *telling = None;
            done
        }
        None => std::future::pending().await,
    }
}

fn flat<T>(done: std::io::Result<T>) -> Result<T> {
    done.map_err(|source| Error::Io { path: "overlay".to_owned(), source })
}
