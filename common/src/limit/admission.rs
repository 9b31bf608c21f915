//! Admission to a node that runs its calls at once: one adaptive limit, and the time that is left.
//!
//! Two reasons to refuse, both before any work: as many calls run as the limit allows; or less time is left than nine
//! of ten calls take here while the node is busy (an idle one may try: it takes nothing from anybody). Rule: a refusal
//! takes no lock that work holds, and says how long to stay away. A call that is dropped teaches nothing. Batch calls
//! are timed apart: with theirs among them, nobody who waits would have the time that "most calls" take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Bounds, Gradient, Times};
use crate::{
    deadline::Deadline,
    error::{ErrorClass, Failure},
    request::Priority,
};

/// Shortest and longest hint of how long to stay away.
const PUSHBACK: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// So many run, which is the limit now.
    Full(u32),
    /// So little time is left, and nine of ten calls take so long.
    TooLate(Duration, Duration),
}

impl Refusal {
    /// The word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full(_) => "full",
            Self::TooLate(..) => "too_late",
        }
    }

    /// The failure that its caller sees.
    pub fn failure(self, pushback: Duration) -> Failure {
        let message = match self {
            Self::Full(limit) => format!("{limit} calls run here, which is the limit now; ask another node"),
            Self::TooLate(left, p90) => format!(
                "{left:?} are left, and most calls here take up to {p90:?}; ask another node or allow more time"
            ),
        };
        let failure = Failure::new(ErrorClass::Overloaded, message);
        Failure { pushback_ms: Some((pushback.as_millis() as u64).max(1)), ..failure }
    }
}

/// What admits calls. Shared by its places.
pub struct Admission {
    limit: AtomicU32,
    in_flight: AtomicU32,
    gradient: Mutex<Gradient>,
    /// By priority.
    times: [Times; 2],
    /// Smoothed time for which a place is held, however its call ends, us.
    held_us: AtomicU64,
}

impl Admission {
    /// Admits within these bounds; equal ones make a fixed limit.
    pub fn new(bounds: Bounds) -> Self {
        let gradient = Gradient::new(bounds, Instant::now());
        Self {
            limit: AtomicU32::new(gradient.limit()),
            in_flight: AtomicU32::new(0),
            gradient: Mutex::new(gradient),
            times: Default::default(),
            held_us: AtomicU64::new(0),
        }
    }

    /// Calls that may run at once now.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Calls that run.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Times of the calls of a priority.
    pub fn times(&self, priority: Priority) -> &Times {
        &self.times[priority as usize]
    }

    /// Calls that run, as a share of the limit.
    pub fn occupancy(&self) -> f64 {
        f64::from(self.in_flight()) / f64::from(self.limit().max(1))
    }

    /// How long a refused caller should stay away: until some of what runs has ended.
    pub fn pushback(&self) -> Duration {
        let mean = self.times.iter().map(Times::mean).max().unwrap_or_default();
        (mean / 2).clamp(PUSHBACK[0], PUSHBACK[1])
    }

    /// How long the one behind `ahead` others will wait for a place, at the pace at which places were given back lately.
    pub fn wait(&self, ahead: usize) -> Duration {
        let (running, limit) = (self.in_flight(), self.limit());
        let turns = ahead as u64 + 1 + u64::from(running.saturating_sub(limit));
        Duration::from_micros(
            self.held_us.load(Ordering::Relaxed).saturating_mul(turns) / u64::from(running.max(1)),
        )
    }

    /// Whether less time is left than nine of ten calls take, while others need the room.
    pub fn too_late(&self, priority: Priority, deadline: Deadline) -> Option<Refusal> {
        if self.in_flight() * 2 < self.limit() {
            return None;
        }
        let (left, p90) = (deadline.remaining(), self.times(priority).p90());
        (left < p90).then_some(Refusal::TooLate(left, p90))
    }

    /// A place for a call, if there is one and it makes sense.
    pub fn enter(self: &Arc<Self>, priority: Priority, deadline: Deadline) -> Result<Place, Refusal> {
        if let Some(refusal) = self.too_late(priority, deadline) {
            return Err(refusal);
        }
        self.take(priority)
    }

    /// A place for a call, if there is one. Batch fills three quarters of the limit, so that a person finds room.
    pub fn take(self: &Arc<Self>, priority: Priority) -> Result<Place, Refusal> {
        let limit = match priority {
            Priority::Interactive => self.limit(),
            Priority::Batch => self.limit() - self.limit() / 4,
        };
        let free = |running: u32| (running < limit).then_some(running + 1);
        match self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => Ok(Place { admission: self.clone(), priority, since: Instant::now() }),
            Err(_) => Err(Refusal::Full(limit)),
        }
    }
}

/// Counts a call as running until it is dropped.
pub struct Place {
    admission: Arc<Admission>,
    priority: Priority,
    since: Instant,
}

impl Place {
    /// Calls that run, this one included.
    pub fn in_flight(&self) -> u32 {
        self.admission.in_flight()
    }

    /// The call ended by itself (not because its caller left): its time counts.
    pub fn ended(self) {
        let (now, admission) = (Instant::now(), &self.admission);
        let took = now.saturating_duration_since(self.since);
        admission.times(self.priority).record(took);
        let mut gradient = admission.gradient.lock();
        gradient.ended(now, took, admission.in_flight());
        admission.limit.store(gradient.limit(), Ordering::Relaxed);
    }

    /// The call ended without all it wanted, because what it asks below is overloaded.
    pub fn cut(self) {
        let admission = &self.admission;
        let mut gradient = admission.gradient.lock();
        gradient.cut(Instant::now(), admission.in_flight());
        admission.limit.store(gradient.limit(), Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.since.elapsed().as_micros() as u64;
        let before = self.admission.held_us.load(Ordering::Relaxed);
        let next = if before == 0 { held } else { before - before / 16 + held / 16 };
        self.admission.held_us.store(next, Ordering::Relaxed);
        self.admission.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn enter(admission: &Arc<Admission>, deadline: Deadline) -> Result<Place, Refusal> {
        admission.enter(Priority::Interactive, deadline)
    }

    #[tokio::test(start_paused = true)]
    async fn it_admits_up_to_its_limit_and_gives_places_back() {
        let admission = Arc::new(Admission::new(Bounds { min: 2, max: 2 }));
        let a = enter(&admission, Deadline::after(LONG)).ok().unwrap();
        let _b = enter(&admission, Deadline::after(LONG)).ok().unwrap();
        assert_eq!(enter(&admission, Deadline::after(LONG)).err(), Some(Refusal::Full(2)));
        assert_eq!(admission.occupancy(), 1.0);
        a.ended();
        assert!(enter(&admission, Deadline::after(LONG)).is_ok());
        assert_eq!(admission.in_flight(), 1, "a place that is dropped is free");
        let failure = Refusal::Full(2).failure(Duration::ZERO);
        assert_eq!((failure.class, failure.pushback_ms), (ErrorClass::Overloaded, Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_hardly_be_in_time_is_refused_while_the_node_is_busy() {
        let admission = Arc::new(Admission::new(Bounds { min: 4, max: 4 }));
        for _ in 0..40 {
            let place = enter(&admission, Deadline::after(LONG)).ok().unwrap();
            tokio::time::advance(Duration::from_millis(20)).await;
            place.ended();
        }
        let short = Deadline::after(Duration::from_millis(5));
        // While less than half is taken, any may try.
        let _first = enter(&admission, short).ok().unwrap();
        let _second = enter(&admission, short).ok().unwrap();
        let refusal = enter(&admission, short).err().unwrap();
        assert!(matches!(refusal, Refusal::TooLate(..)), "{refusal:?}");
        assert!(enter(&admission, Deadline::after(LONG)).is_ok());
        assert_eq!(admission.pushback(), Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_batch_takes_locks_nobody_else_out() {
        let admission = Arc::new(Admission::new(Bounds { min: 4, max: 4 }));
        for _ in 0..40 {
            let place = admission.take(Priority::Batch).ok().unwrap();
            tokio::time::advance(Duration::from_millis(100)).await;
            place.ended();
        }
        let _batch: Vec<_> = (0..2).map_while(|_| admission.take(Priority::Batch).ok()).collect();
        let short = Deadline::after(Duration::from_millis(35));
        assert!(enter(&admission, short).is_ok());
        assert!(admission.too_late(Priority::Batch, short).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn batch_leaves_room_for_people() {
        let admission = Arc::new(Admission::new(Bounds { min: 8, max: 8 }));
        let batch: Vec<_> = (0..9).map_while(|_| admission.take(Priority::Batch).ok()).collect();
        assert_eq!(batch.len(), 6);
        assert!(admission.take(Priority::Interactive).is_ok());
    }
}
