//! What became of every shard that this leaf should hold, in each version: one line each, always all of them, whether idle,
//! opening or broken. For the status page, for the reasons in refusals, for readiness, and for what is to be done next.
//! Never on the query path of a shard that is served.
//!
//! Rules: a line that is wanted is brought to an end, good or bad; one that is wanted no more while somebody works on it
//! ends when he notices, one that serves is kept for a time (`retiring`, it still answers) and served again at once when it is
//! wanted again, everything else goes at once. A leaf that has a shard in one version lacks nothing of it, whatever becomes
//! of another version of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_common::ids::{ShardId, Version};
use canopy_format::{manifest::ShardEntry, store::PassedOver};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::room::Amounts;
use crate::{error::Result, overlay::follow::Report};

/// Pauses before what came damaged from the store is fetched again; then it is given up.
const FETCHED_AGAIN: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(80)];

/// Where a shard is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Should be held; nothing was done yet, or its version is not known yet.
    Wanted,
    /// Files are brought from the store.
    Fetching,
    /// Files are compared with the manifest.
    Verifying,
    /// The engine opens it.
    Opening,
    /// What was written since its version was cut is replayed.
    Replaying,
    /// Its first queries run.
    Warming,
    /// Answers.
    Serving,
    /// Answers, and will not for long.
    Retiring,
    /// Damaged; not read any more.
    Quarantined,
    /// Can't be held: wrong format, not in the version, no room.
    Failed,
    /// The version has no such shard, another one has: nothing is to be held.
    Void,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 11] = [
        Self::Wanted,
        Self::Fetching,
        Self::Verifying,
        Self::Opening,
        Self::Replaying,
        Self::Warming,
        Self::Serving,
        Self::Retiring,
        Self::Quarantined,
        Self::Failed,
        Self::Void,
    ];

    /// The word in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Fetching => "fetching",
            Self::Verifying => "verifying",
            Self::Opening => "opening",
            Self::Replaying => "replaying",
            Self::Warming => "warming",
            Self::Serving => "serving",
            Self::Retiring => "retiring",
            Self::Quarantined => "quarantined",
            Self::Failed => "failed",
            Self::Void => "void",
        }
    }

    /// Nothing will change by itself.
    pub fn settled(self) -> bool {
        self.answers() || matches!(self, Self::Quarantined | Self::Failed | Self::Void)
    }

    /// Queries can be asked of it.
    pub fn answers(self) -> bool {
        matches!(self, Self::Serving | Self::Retiring)
    }

    /// Somebody works on it.
    pub fn worked_on(self) -> bool {
        matches!(self, Self::Fetching | Self::Verifying | Self::Opening | Self::Replaying | Self::Warming)
    }
}

/// A shard of a version that should be held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its corpus.
    pub corpus: Arc<str>,
    /// Which shard.
    pub shard: ShardId,
    /// Which version; `None`: the one that is the newest when it is looked for.
    pub version: Option<Version>,
}

/// One shard's line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Where it is.
    pub state: State,
    /// Whether it should be held.
    pub wanted: bool,
    /// Its version; `None`: not known yet.
    pub version: Option<Version>,
    /// Documents, by the manifest.
    pub documents: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// What it takes of this machine; nothing before it was admitted and when it failed.
    pub takes: Amounts,
    /// What lies over it; `None`: nothing is followed.
    pub overlay: Option<Box<Report>>,
    /// Bytes brought from the store so far.
    pub fetched: u64,
    /// Bytes verified so far.
    pub verified: u64,
    /// How often in a row what came from the store was damaged.
    pub damaged: u32,
    /// The last thing that went wrong; empty: nothing.
    pub last_error: String,
    /// It will not get better by itself; whether on no leaf. For the topology service.
    pub given_up: Option<bool>,
    /// When it is tried again, or retired.
    pub due: Option<Instant>,
}

impl Line {
    fn of(version: Option<Version>) -> Self {
        Self {
            state: State::Wanted,
            wanted: true,
            version,
            documents: 0,
            bytes: 0,
            takes: Amounts::default(),
            overlay: None,
            fetched: 0,
            verified: 0,
            damaged: 0,
            last_error: String::new(),
            given_up: None,
            due: None,
        }
    }

    /// Memory that it takes, with what lies over it.
    pub fn memory(&self) -> u64 {
        self.takes.memory.saturating_add(self.overlay.as_ref().map_or(0, |overlay| overlay.bytes))
    }

    /// The version it answers from.
    pub fn serving(&self) -> Option<Version> {
        self.version.filter(|_| self.state.answers())
    }

    /// Whether work on it can begin.
    fn startable(&self, now: Instant) -> bool {
        let failed = matches!(self.state, State::Failed | State::Quarantined);
        let again = failed && self.due.is_some_and(|due| due <= now);
        self.wanted && (self.state == State::Wanted || again)
    }
}

/// All lines, and the versions that no shard is opened from though they are the newest.
#[derive(Default)]
pub struct Board {
    lines: Mutex<BTreeMap<Place, Line>>,
    /// Whether it was ever heard what should be held, which may be nothing.
    heard: AtomicBool,
    passed_over: Mutex<BTreeMap<String, Vec<PassedOver>>>,
}

impl Board {
    /// Adds a shard that should be held.
    pub fn want(&self, place: Place) {
        self.lines.lock().entry(place).or_insert_with_key(|place| Line::of(place.version)).wanted = true;
    }

    /// These should be held from `now` on and nothing else; what serves and should not is kept for `retain`. What is not even
    /// worked on has no line any more; these are given back, since some of their files may have come.
    pub fn follow(&self, wanted: &BTreeSet<Place>, now: Instant, retain: Duration) -> Vec<Place> {
        let mut lines = self.lines.lock();
        self.heard.store(true, Ordering::Release);
        let goes = |place: &Place, line: &mut Line| {
            if wanted.contains(place) {
                return false;
            }
            line.wanted = false;
            if line.state == State::Serving {
                line.state = State::Retiring;
                line.due = Some(now + retain);
            }
            !line.state.answers() && !line.state.worked_on()
        };
        let gone = lines.extract_if(.., goes).map(|(place, _)| place).collect();
        for place in wanted {
            let line = lines.entry(place.clone()).or_insert_with(|| Line::of(place.version));
            line.wanted = true;
            if line.state == State::Retiring {
                line.state = State::Serving;
                line.due = None;
            }
        }
        gone
    }

    /// A shard that work can begin on, and where it was: its line says that it is fetched from now on.
    pub fn start(&self, now: Instant) -> Option<(Place, State)> {
        let mut lines = self.lines.lock();
        let (place, line) = lines.iter_mut().find(|(_, line)| line.startable(now))?;
        let was = line.state;
        *line = Line {
            state: State::Fetching,
            damaged: line.damaged,
            last_error: line.last_error.clone(),
            ..Line::of(line.version)
        };
        Some((place.clone(), was))
    }

    /// Lets a shard in, and takes its room, so that of two that begin at the same time only one gets the last of it.
    /// Errors: it does not fit.
    pub fn reserve(
        &self,
        place: &Place,
        version: Version,
        entry: &ShardEntry,
        limits: &Amounts,
    ) -> Result<()> {
        let mut lines = self.lines.lock();
        let mut held = Amounts::default();
        for (_, line) in lines.iter().filter(|(other, _)| *other != place) {
            held.memory = held.memory.saturating_add(line.memory());
            held.mappings += line.takes.mappings;
            held.handles += if line.state.worked_on() { line.takes.handles } else { 0 };
        }
        limits.admit(held, entry)?;
        if let Some(line) = lines.get_mut(place) {
            line.version = Some(version);
            line.documents = entry.documents;
            line.bytes = entry.bytes;
            line.takes = Amounts::of(entry);
        }
        Ok(())
    }

    /// Takes away what is kept long enough, and what broke while it was wanted no more.
    pub fn retired(&self, now: Instant) -> Vec<(Place, Line)> {
        self.take(|_, line| !line.wanted && line.due.is_some_and(|due| due <= now))
    }

    /// Takes away what is kept and could go.
    pub fn retired_if(&self, mut goes: impl FnMut(&Place, &Line) -> bool) -> Vec<(Place, Line)> {
        self.take(|place, line| line.state == State::Retiring && goes(place, line))
    }

    fn take(&self, mut goes: impl FnMut(&Place, &Line) -> bool) -> Vec<(Place, Line)> {
        self.lines.lock().extract_if(.., |place, line| goes(place, line)).collect()
    }

    /// Memory and file bytes of what answers only until its time has come.
    pub fn going(&self) -> (u64, u64) {
        let lines = self.lines.lock();
        let going = lines.values().filter(|line| line.state == State::Retiring);
        going.fold((0, 0), |(memory, bytes), line| (memory + line.memory(), bytes + line.bytes))
    }

    /// When something is to be done next by itself; `idle`: whether work can begin then.
    pub fn due(&self, idle: bool) -> Option<Instant> {
        let lines = self.lines.lock();
        let counts = |line: &&Line| idle || !line.wanted;
        lines.values().filter(counts).filter_map(|line| line.due).min()
    }

    /// Changes a line.
    pub fn update(&self, place: &Place, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.lines.lock().get_mut(place) {
            change(line);
        }
    }

    /// Changes the line of a view.
    pub fn update_view(
        &self,
        corpus: &str,
        shard: &ShardId,
        version: Version,
        change: impl FnOnce(&mut Line),
    ) {
        let mut lines = self.lines.lock();
        let of_view = |(place, line): &(&Place, &mut Line)| {
            *place.corpus == *corpus && place.shard == *shard && line.version == Some(version)
        };
        if let Some((_, line)) = lines.iter_mut().find(of_view) {
            change(line);
        }
    }

    /// Takes a line away that is not wanted any more; whether it was.
    pub fn give_up(&self, place: &Place) -> bool {
        let mut lines = self.lines.lock();
        let unwanted = lines.get(place).is_none_or(|line| !line.wanted);
        if unwanted {
            lines.remove(place);
        }
        unwanted
    }

    /// A view of it answers; one that is not wanted any more is retired `retain` from `now`.
    pub fn serves(&self, place: &Place, version: Version, now: Instant, retain: Duration) {
        self.update(place, |line| {
            line.version = Some(version);
            line.damaged = 0;
            line.last_error.clear();
            (line.state, line.due) =
                if line.wanted { (State::Serving, None) } else { (State::Retiring, Some(now + retain)) };
        });
    }

    /// Work on it was broken off: it begins anew, and takes nothing until then.
    pub fn begin_anew(&self, place: &Place) {
        self.update(place, |line| (line.state, line.takes) = (State::Wanted, Amounts::default()));
    }

    /// The version of a line, when that is known.
    pub fn version(&self, place: &Place) -> Option<Version> {
        self.lines.lock().get(place).and_then(|line| line.version)
    }

    /// Whether it is known of every line which version it is.
    pub fn versions_known(&self) -> bool {
        self.lines.lock().values().all(|line| line.version.is_some())
    }

    /// Whether it has a line.
    pub fn has(&self, place: &Place) -> bool {
        self.lines.lock().contains_key(place)
    }

    /// What was fetched for a line is damaged: after which pause it is fetched again, `None`: not any more. A store whose copy is
    /// damaged would else be read for ever.
    pub fn came_damaged(&self, place: &Place) -> Option<Duration> {
        let mut times = 0;
        self.update(place, |line| {
            line.damaged = line.damaged.saturating_add(1);
            times = line.damaged;
        });
        FETCHED_AGAIN.get(times.saturating_sub(1) as usize).copied()
    }

    /// Whether somebody works on it, as far as its line says.
    pub fn worked_on(&self, place: &Place) -> bool {
        self.lines.lock().get(place).is_some_and(|line| line.state.worked_on())
    }

    /// Whether it should still be held.
    pub fn wanted(&self, place: &Place) -> bool {
        self.lines.lock().get(place).is_some_and(|line| line.wanted)
    }

    /// The lines of a shard, oldest version first.
    pub fn lines(&self, corpus: &str, shard: &ShardId) -> Vec<Line> {
        let lines = self.lines.lock();
        let of_shard = lines.iter().filter(|(place, _)| *place.corpus == *corpus && place.shard == *shard);
        of_shard.map(|(_, line)| line.clone()).collect()
    }

    /// Every line.
    pub fn all(&self) -> Vec<(Place, Line)> {
        self.lines.lock().iter().map(|(place, line)| (place.clone(), line.clone())).collect()
    }

    /// Lines in each state.
    pub fn counts(&self) -> BTreeMap<State, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines.lock().values() {
            *counts.entry(line.state).or_default() += 1;
        }
        counts
    }

    /// Shards that should be held and are neither served in any version nor given up.
    pub fn opening(&self) -> usize {
        self.lacking().values().filter(|lines| lines.iter().any(|line| !line.state.settled())).count()
    }

    /// Shards that should be held and are served in no version, with their lines.
    fn lacking(&self) -> BTreeMap<(Arc<str>, ShardId), Vec<Line>> {
        let lines = self.lines.lock();
        let mut shards: BTreeMap<_, Vec<Line>> = BTreeMap::new();
        let wanted = |line: &Line| line.wanted && line.state != State::Void;
        for (place, line) in lines.iter().filter(|(_, line)| wanted(line) || line.state.answers()) {
            shards.entry((place.corpus.clone(), place.shard.clone())).or_default().push(line.clone());
        }
        shards.retain(|_, lines| lines.iter().all(|line| !line.state.answers()));
        shards
    }

    /// Whether it is known what should be held and every shard of it has come to an end, good or bad. True when
    /// nothing should be.
    pub fn settled(&self) -> bool {
        let heard = self.heard.load(Ordering::Acquire) || self.wants_any();
        heard && self.opening() == 0
    }

    /// Whether anything should be held.
    pub fn wants_any(&self) -> bool {
        self.lines.lock().values().any(|line| line.wanted && line.state != State::Void)
    }

    /// Newer versions of a corpus than the one that is opened, which can't be served.
    pub fn pass_over(&self, corpus: &str, versions: Vec<PassedOver>) {
        self.passed_over.lock().insert(corpus.to_owned(), versions);
    }

    /// All of them, for the status page.
    pub fn passed_over(&self) -> Vec<serde_json::Value> {
        let passed_over = self.passed_over.lock();
        let each = passed_over.iter().flat_map(|(corpus, versions)| {
            versions.iter().map(move |passed| {
                serde_json::json!({ "corpus": corpus, "version": passed.version, "reason": passed.reason })
            })
        });
        each.collect()
    }

    /// What should be held and answers in no version, with why, for the status page.
    pub fn lacking_json(&self) -> serde_json::Value {
        let each = self.lacking().into_iter().map(|((corpus, shard), lines)| {
            let line = lines.last();
            serde_json::json!({
                "corpus": &*corpus,
                "shard": shard.to_string(),
                "state": line.map(|line| line.state.as_str()),
                "last_error": line.map(|line| line.last_error.as_str()),
            })
        });
        each.collect()
    }

    /// For the status page; `now_us`: wall time.
    pub fn to_json(&self, now_us: i64) -> serde_json::Value {
        let lines = self.lines.lock();
        let shards = lines.iter().map(|(place, line)| {
            serde_json::json!({
                "corpus": &*place.corpus,
                "shard": place.shard.to_string(),
                "wanted": line.version.filter(|_| line.wanted).map(|version| version.0),
                "version": line.version.map(|version| version.0),
                "serving": line.serving().map(|version| version.0),
                "state": line.state.as_str(),
                "documents": line.documents.to_string(),
                "bytes": line.bytes.to_string(),
                "resident_bytes": line.memory().to_string(),
                "fetched_bytes": line.fetched.to_string(),
                "verified_bytes": line.verified.to_string(),
                "last_error": line.last_error,
                "overlay": line.overlay.as_ref().map(|overlay| overlay.to_json(now_us)),
            })
        });
        shards.collect()
    }
}

#[cfg(test)]
mod tests;
