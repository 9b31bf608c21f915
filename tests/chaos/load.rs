//! Queries at a steady rate, whatever the answers take, as far as the machine keeps up: a pile of queries that nobody can answer in
//! time would be about the machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_tests::api::{Answered, Api, path};
use tokio::{sync::Semaphore, task::JoinHandle, time::Instant};

/// Queries that are not answered yet, at most. Fewer than any node takes at once.
const UNDER_WAY: usize = 32;

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Told>>,
}

/// What came of one query.
pub struct Told {
    /// When it was sent.
    pub sent: Instant,
    /// When its answer, or its failure, had come.
    pub came: Instant,
    /// `None` is a connection that failed.
    pub answered: Option<Answered>,
}

impl Load {
    /// Sends a query every `every`; `None` is a connection that failed.
    pub fn start(api: Api, every: Duration, parameters: &[(&str, &str)]) -> Self {
        let path = path("web", parameters);
        Self::asking(every, move |_| {
            let (api, path) = (api.clone(), path.clone());
            async move { api.try_get(&path).await }
        })
    }

    /// Asks every `every`, whatever becomes of those before; `ask` is given the number of the query.
    pub fn asking<F>(every: Duration, ask: impl Fn(usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<Answered>> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            let room = Arc::new(Semaphore::new(UNDER_WAY));
            let mut sent: Vec<JoinHandle<Told>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let place = room.clone().acquire_owned().await.expect("it is never closed");
                let (asking, sent_at) = (ask(sent.len()), Instant::now());
                sent.push(tokio::spawn(async move {
                    let answered = asking.await;
                    drop(place);
                    Told { sent: sent_at, came: Instant::now(), answered }
                }));
            }
            let mut answers = Vec::new();
            for one in sent {
                answers.push(one.await.expect("a task"));
            }
            answers
        });
        Self { stop, task }
    }

    /// Ends it; all answers, in the order of their queries.
    pub async fn finish(self) -> Vec<Option<Answered>> {
        self.told().await.into_iter().map(|told| told.answered).collect()
    }

    /// The same, with the times.
    pub async fn told(self) -> Vec<Told> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("a task")
    }
}

/// Those that were sent after the first answer that is `wanted` had come. Two queries that are under way at once may be answered in
/// either order.
pub fn after_the_first(told: &[Told], wanted: impl Fn(&Told) -> bool) -> Vec<&Told> {
    let first =
        told.iter().filter(|told| wanted(told)).map(|told| told.came).min().expect("one that is wanted");
    told.iter().filter(|told| told.sent > first).collect()
}

/// So many callers, each of which waits for its answer before it asks again: a load that a slow machine does not pile up.
/// What they were answered, and when they asked.
pub async fn callers(
    count: usize,
    api: &Api,
    time: Duration,
    parameters: &[(&str, &str)],
) -> Vec<(Duration, Option<Answered>)> {
    let (path, began) = (path("web", parameters), Instant::now());
    let one = || async {
        let mut answers = Vec::new();
        while began.elapsed() < time {
            let at = began.elapsed();
            answers.push((at, api.try_get(&path).await));
        }
        answers
    };
    futures::future::join_all((0..count).map(|_| one())).await.into_iter().flatten().collect()
}

/// Lets a load run for so long.
pub async fn pass(time: Duration) {
    tokio::time::sleep_until(Instant::now() + time).await;
}
