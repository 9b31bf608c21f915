//! A search that asks for offsets of the log waits for the views of its shards to reach them, before it is admitted: it
//! holds no thread and no place in the queue meanwhile. It waits for three quarters of its time at most; what was not
//! reached by then is searched all the same, and its shard says `stale`.

use std::sync::Arc;

use canopy_proto::v1::PartitionOffset;
use tokio::time::Instant;

use crate::{call::Call, shards::Serving};

/// Until when a search waits; `None`: every shard is there.
pub fn wait(call: &Call) -> Option<Instant> {
    let wanted = &call.request.wanted_offsets;
    if wanted.is_empty() || call.targets().iter().all(|target| target.serving.view().reached(wanted)) {
        return None;
    }
    Some(Instant::now() + call.deadline.remaining() / 4 * 3)
}

/// Ends when every shard of the call has reached what it wants.
pub async fn reached(call: &Call) {
    for target in call.targets() {
        one(&target.serving, &call.request.wanted_offsets).await;
    }
}

async fn one(serving: &Arc<Serving>, wanted: &[PartitionOffset]) {
    let mut news = serving.news();
    while !serving.view().reached(wanted) {
        // The sender lives as long as the serving.
        if news.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
