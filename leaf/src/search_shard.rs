//! One shard's part of a search: request and view in, hits and the shard's account out. Blocking; runs on a search
//! thread. Knows neither the network nor the runtime.

use std::time::Duration;

use canopy_common::error::Failure;
use canopy_proto::v1;
use tokio::time::Instant;

use crate::{stop::Stop, view::ShardView};

/// What a shard answers.
#[derive(Debug, Clone, Default)]
pub struct ShardResult {
    /// In result order, at most the `k` asked.
    pub hits: Vec<v1::Hit>,
    /// The account. `node`, `lease`, `queue_us` and `lag_ms` are for the caller to fill.
    pub reply: v1::ShardReply,
    /// Why the shard failed; bad input is the same for every shard, so it may end the whole call.
    pub failure: Option<Failure>,
}

impl ShardResult {
    /// A shard that failed.
    pub fn failed(shard_index: u32, failure: Failure) -> Self {
        let reply = v1::ShardReply {
            shard: shard_index,
            outcome: v1::Outcome::Failed as i32,
            error_class: failure.class as u32,
            reason: failure.message.clone(),
            ..Default::default()
        };
        Self { hits: Vec::new(), reply, failure: Some(failure) }
    }
}

/// Searches one shard. `shard_index` is the shard's place in `request.shards`. When `stop` fires, what was found so far
/// is the answer, with `CUT_DEADLINE` and the exact number of documents considered.
pub fn search(view: &ShardView, request: &v1::SearchRequest, shard_index: u32, stop: &Stop) -> ShardResult {
    let started = Instant::now();
    let _ = (view, request, stop);
    let mut result = ShardResult::failed(
        shard_index,
        Failure::new(canopy_common::error::ErrorClass::Internal, "not written yet"),
    );
    result.reply.search_us = started.elapsed().max(Duration::ZERO).as_micros() as u64;
    result
}
