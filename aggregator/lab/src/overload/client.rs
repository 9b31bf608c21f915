//! A client: it asks, waits as long as it has patience, and asks again, three times in all. What it counts, it counts for
//! the second in which its query came.

use std::sync::Arc;

use canopy_aggregator::gather::lesson::Lesson;
use canopy_common::{
    deadline::Deadline,
    ids::AttemptId,
    limit::Gate,
    request::{Priority, RequestContext},
};
use canopy_proto::v1;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::{draw, world::World};

/// What became of the queries that came within one second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Second {
    /// They were so many.
    pub offered: u64,
    /// Answered by all shards within the client's patience.
    pub good: u64,
    /// Answered by some shards.
    pub partial: u64,
    /// Times they were asked.
    pub attempts: u64,
    /// Of them, those refused by the root: how long that took, ms.
    pub refusals: Vec<f64>,
    /// Calls begun at leaves in this second.
    pub begun: u64,
    /// Time that their workers were taken, of work that ended in this second.
    pub busy: Duration,
}

/// All seconds.
pub(super) struct Tally {
    pub seconds: Vec<Second>,
}

impl Tally {
    pub fn new(seconds: usize) -> Self {
        Self { seconds: vec![Second::default(); seconds] }
    }
}

/// All clients of an arm.
pub(super) struct Client {
    pub world: Arc<World>,
    /// At the root.
    pub gate: Option<Arc<Gate>>,
    /// Whether a call ends when its client has no more patience.
    pub stops: bool,
    pub patience: Duration,
    pub attempts: u32,
    pub tally: Arc<Mutex<Tally>>,
}

/// What one attempt came to.
enum Came {
    Good,
    Partial,
    Nothing,
    /// Refused; to be left alone for so long.
    Refused(Duration),
}

/// Until then nothing ends a search by itself.
const FOREVER: Duration = Duration::from_hours(1);

impl Client {
    /// One query, asked until it is answered.
    pub async fn ask(self: Arc<Self>, query: u64, intended: Instant, second: usize) {
        let count = |change: &dyn Fn(&mut Second)| change(&mut self.tally.lock().seconds[second]);
        count(&|second| second.offered += 1);
        let mut from = intended;
        for attempt in 0..self.attempts {
            count(&|second| second.attempts += 1);
            match self.attempt(query, attempt, from).await {
                Came::Good => return count(&|second| second.good += 1),
                Came::Partial => return count(&|second| second.partial += 1),
                Came::Nothing => {}
                Came::Refused(pushback) => {
                    let took = from.elapsed().as_secs_f64() * 1000.0;
                    count(&|second| second.refusals.push(took));
                    // Not all at the same moment.
                    let share = 1.0 + draw::unit(&[query, u64::from(attempt)]);
                    sleep(pushback.mul_f64(share)).await;
                }
            }
            from = Instant::now();
        }
    }

    async fn attempt(&self, query: u64, attempt: u32, from: Instant) -> Came {
        // Attempts are queries of their own for the tree.
        let number = query * u64::from(self.attempts) + u64::from(attempt);
        let deadline = Deadline::at(from + self.patience);
        if let Some(gate) = &self.gate {
            let Ok(pass) = gate.enter(Priority::Interactive, deadline).await else {
                return Came::Refused(gate.admission().pushback());
            };
            let (came, lesson) = search(&self.world, number, deadline).await;
            match lesson {
                Lesson::Ended => pass.ended(),
                Lesson::Cut => pass.cut(),
                Lesson::Nothing => {}
            }
            return came;
        }
        if self.stops {
            let waited = timeout(self.patience, search(&self.world, number, deadline)).await;
            return waited.map_or(Came::Nothing, |(came, _)| came);
        }
        // The search goes on when nobody waits for it.
        let (world, far) = (self.world.clone(), Deadline::after(FOREVER));
        let search = tokio::spawn(async move { search(&world, number, far).await });
        match timeout(self.patience, search).await {
            Ok(Ok((came, _))) => came,
            Ok(Err(_)) | Err(_) => Came::Nothing,
        }
    }
}

async fn search(world: &World, number: u64, deadline: Deadline) -> (Came, Lesson) {
    let (id, request) = world.query(number);
    let context = RequestContext::new(id, AttemptId(0), deadline);
    let gathered = world.callers[0].search(&context, &world.routing, request).await;
    let answered =
        gathered.shards.iter().filter(|reply| reply.outcome == v1::Outcome::Answered as i32).count();
    let came = match answered {
        0 => Came::Nothing,
        all if all == gathered.shards.len() && !deadline.expired() => Came::Good,
        _ => Came::Partial,
    };
    (came, gathered.lesson())
}
