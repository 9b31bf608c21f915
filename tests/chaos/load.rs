//! Queries at a steady rate, whatever the answers take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_tests::api::{Answered, Api, path};
use tokio::{task::JoinHandle, time::Instant};

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Option<Answered>>>,
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
            let mut sent: Vec<JoinHandle<Option<Answered>>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                sent.push(tokio::spawn(ask(sent.len())));
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
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("a task")
    }
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
