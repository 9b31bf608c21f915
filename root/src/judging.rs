//! Judged queries of a version on trial: when the topology service tells this root to, it asks each of them of both versions,
//! and tells the sums of nDCG@10 with what else it saw of the trial.
//!
//! The failure this prevents: a version whose answers are full, quick and wrong. Rules: they are asked as batch queries, two at a
//! time, with much time each, because what is measured is what is found and not how fast. A refusal for load is tried
//! again and in the end costs the round, never the version; an answer that stays in part counts with what it has, and none as
//! an answer without a hit: that is what people would get. A query that can't be asked at all says nothing of either. The
//! sums are told once, whole; a task that is still told a minute later was lost, and is done again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_common::{error::ErrorClass, ids::Version};
use canopy_proto::v1::QueryRequest;
use canopy_topology::{
    gates::{
        agreement::DEPTH,
        judged::{JudgedQuery, Paired},
    },
    link::Link,
    routing::Trial,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time::Instant;

use crate::{
    answer::Answer,
    error::{Error, Result},
    search::Root,
    trial::counts,
};

/// Between two looks for tasks.
const LOOK: Duration = Duration::from_millis(500);
/// Queries at a time; each is asked of one version after the other.
const AT_ONCE: usize = 2;
/// How often a query is asked that is refused or answered in part, and the pause between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);
/// Deadline of a query.
const TIMEOUT_MS: u32 = 5_000;
/// A task that was done and is still told after so long is done again.
const LOST: Duration = Duration::from_mins(1);

/// Where tasks come from.
pub trait Tasks: Sync {
    /// Trials whose judged queries this root is to ask, by corpus.
    fn tasks(&self) -> Vec<(String, Trial)>;
    /// The queries of a task. Errors: in words.
    fn queries<'a>(
        &'a self,
        corpus: &'a str,
        gate: u64,
    ) -> BoxFuture<'a, std::result::Result<Vec<JudgedQuery>, String>>;
}

impl Tasks for Link {
    fn tasks(&self) -> Vec<(String, Trial)> {
        self.judge_tasks()
    }

    fn queries<'a>(
        &'a self,
        corpus: &'a str,
        gate: u64,
    ) -> BoxFuture<'a, std::result::Result<Vec<JudgedQuery>, String>> {
        async move { self.judged(corpus, gate).await.map_err(|status| status.message().to_owned()) }.boxed()
    }
}

/// What came of asking one version.
#[derive(Debug, PartialEq)]
enum Keys {
    /// Of its first hits.
    Found(Vec<String>),
    /// The query is refused by what it says.
    Unaskable,
    /// There was no room for it.
    Refused,
}

/// Does what it is told, for ever.
pub async fn run(root: &Arc<Root>, from: &impl Tasks) {
    let mut done: BTreeMap<(String, u64), Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let told = from.tasks();
        done.retain(|(corpus, gate), at| {
            at.elapsed() < LOST && told.iter().any(|(name, trial)| name == corpus && trial.gate == *gate)
        });
        for (corpus, trial) in told {
            let task = (corpus, trial.gate);
            if done.contains_key(&task) {
                continue;
            }
            match from.queries(&task.0, task.1).await {
                Ok(queries) => {
                    if judge(root, from, &task.0, &trial, queries).await {
                        done.insert(task, Instant::now());
                    }
                }
                Err(reason) => {
                    tracing::debug!(
                        corpus = task.0,
                        gate = task.1,
                        reason,
                        "judged queries could not be had"
                    );
                }
            }
        }
    }
}

/// Asks all queries of a task; whether it is done.
async fn judge(
    root: &Arc<Root>,
    from: &impl Tasks,
    corpus: &str,
    trial: &Trial,
    queries: Vec<JudgedQuery>,
) -> bool {
    let (mut paired, all) = (Paired::default(), queries.len());
    let pairs = stream::iter(queries).map(|query| async move {
        let before = ask(root, corpus, trial.control, &query.q).await;
        let after = ask(root, corpus, trial.version, &query.q).await;
        (query, before, after)
    });
    let mut pairs = std::pin::pin!(pairs.buffer_unordered(AT_ONCE));
    while let Some((query, before, after)) = pairs.next().await {
        let told = from.tasks().iter().any(|(name, told)| name == corpus && told.gate == trial.gate);
        match (before, after) {
            _ if !told => return false,
            (Keys::Found(before), Keys::Found(after)) => paired.record(query.ndcg(before), query.ndcg(after)),
            (Keys::Unaskable, _) | (_, Keys::Unaskable) => {}
            (Keys::Refused, _) | (_, Keys::Refused) => return false,
        }
    }
    let (version, asked) = (trial.version, paired.difference.queries);
    let (before, after) = (paired.before.mean(), paired.after.mean());
    tracing::info!(corpus, %version, all, asked, before, after, "judged queries were asked, nDCG@10");
    root.trials.judged(corpus, trial, paired)
}

async fn ask(root: &Arc<Root>, corpus: &str, version: Version, q: &str) -> Keys {
    let request = QueryRequest {
        corpus: corpus.to_owned(),
        q: q.to_owned(),
        k: Some(DEPTH as u32),
        timeout_ms: TIMEOUT_MS,
        completion: "all".to_owned(),
        total: "none".to_owned(),
        ..QueryRequest::default()
    };
    let mut said = Keys::Refused;
    for tried in 1..=TRIES {
        let (result, _) = root.ask_version(&request, version, None).await;
        let whole = result.as_ref().is_ok_and(|answer| answer.coverage.complete);
        said = keys(result);
        if whole || said == Keys::Unaskable || tried == TRIES {
            break;
        }
        tokio::time::sleep(PAUSE * tried).await;
    }
    said
}

fn keys(result: Result<Answer>) -> Keys {
    let counts = counts(&result);
    match result {
        Ok(answer) => Keys::Found(answer.hits.into_iter().map(|hit| hit.key).collect()),
        Err(Error::NothingAnswered { class: ErrorClass::Overloaded, .. }) => Keys::Refused,
        Err(_) if counts => Keys::Found(Vec::new()),
        // A version that is not here yet may come; what is wrong with the query stays.
        Err(Error::Refused(failure)) if failure.class == ErrorClass::InvalidArgument => Keys::Unaskable,
        Err(_) => Keys::Refused,
    }
}

#[cfg(test)]
mod tests;
