//! Messages of the search stream: settled shards together, their hits as one list in result order.
//!
//! One list is safe because hits carry the shard they are of, and because the best k of the union are all that any
//! merge above can use. The same holds when hits are collapsed, once the union is collapsed itself: what stands behind
//! k different values here stands behind k different values everywhere.

use std::collections::BTreeSet;

use canopy_common::error::{ErrorClass, Failure};
use canopy_proto::{
    convert,
    v1::{CallReport, Hit, Outcome, SearchReply, SearchRequest, ShardReply, SortValue, sort_value},
};

use crate::call::Settled;

/// One message for these shards.
pub fn message(request: &SearchRequest, settled: Vec<Settled>, call: CallReport) -> SearchReply {
    let most = settled.iter().filter_map(|one| request.shards.get(one.reply.shard as usize));
    let most = most.map(|shard| shard.k as usize).max().unwrap_or(0);
    let (mut lists, mut shards, mut spans) = (Vec::with_capacity(settled.len()), Vec::new(), Vec::new());
    for one in settled {
        if !one.hits.is_empty() {
            lists.push(one.hits);
        }
        shards.push(one.reply);
        spans.extend(one.span);
    }
    SearchReply { hits: merge(request, lists, most), shards, call: Some(call), tail: None, spans }
}

fn merge(request: &SearchRequest, mut lists: Vec<Vec<Hit>>, most: usize) -> Vec<Hit> {
    if lists.len() < 2 {
        return lists.pop().unwrap_or_default();
    }
    let order = convert::order(&request.sort);
    let mut keyed: Vec<_> = lists.into_iter().flatten().map(|hit| (convert::sort_key(&hit), hit)).collect();
    keyed.sort_by(|a, b| order.cmp(&a.0, &b.0));
    if !request.collapse.is_empty() {
        let mut values = BTreeSet::new();
        keyed.retain(|(_, hit)| hit.collapse.is_empty() || values.insert(hit.collapse.clone()));
    }
    keyed.truncate(most);
    keyed.into_iter().map(|(_, hit)| hit).collect()
}

/// Refuses a message that the transport would not carry, before it is encoded. `limit` in bytes.
pub fn fits(reply: &SearchReply, limit: usize) -> Result<(), Failure> {
    let needed = size(reply);
    if needed <= limit {
        return Ok(());
    }
    let message = format!(
        "{} hits and their facets need some {needed} bytes; one message has {limit}: ask for fewer hits, facet values \
         or sort fields",
        reply.hits.len()
    );
    Err(Failure::invalid("k", message).with_limit(limit as u64))
}

/// Encoded size, from above.
fn size(reply: &SearchReply) -> usize {
    let texts = |value: &SortValue| match &value.kind {
        Some(sort_value::Kind::Text(text)) => text.len() + 12,
        _ => 16,
    };
    let hits = reply.hits.iter();
    let hits: usize =
        hits.map(|hit| 64 + hit.collapse.len() + hit.sort.iter().map(texts).sum::<usize>()).sum();
    let facets = reply.shards.iter().flat_map(|shard| &shard.facets);
    let facets: usize =
        facets.map(|facet| 32 + facet.values.iter().map(|value| value.len() + 14).sum::<usize>()).sum();
    let shards: usize = reply.shards.iter().map(|shard| 200 + shard.reason.len() + shard.node.len()).sum();
    hits + facets + shards + 512 + reply.spans.len() * 512
}

/// A shard that did not answer.
pub fn unanswered(shard: u32, node: &str, outcome: Outcome, reason: impl Into<String>) -> ShardReply {
    ShardReply {
        shard,
        outcome: outcome as i32,
        reason: reason.into(),
        node: node.to_owned(),
        ..Default::default()
    }
}

/// A shard that failed.
pub fn failed(shard: u32, node: &str, failure: &Failure) -> ShardReply {
    ShardReply {
        error_class: failure.class as u32,
        ..unanswered(shard, node, Outcome::Failed, failure.message.clone())
    }
}

/// The caller wanted no more.
pub fn cancelled(shard: u32, node: &str) -> ShardReply {
    failed(shard, node, &Failure::new(ErrorClass::Cancelled, "the caller stopped it"))
}

/// The word for metrics.
pub fn outcome_word(reply: &ShardReply) -> &'static str {
    match Outcome::try_from(reply.outcome) {
        Ok(Outcome::Answered) => "answered",
        Ok(Outcome::TimedOut) => "timed_out",
        Ok(Outcome::Shed) => "shed",
        Ok(Outcome::Unavailable) => "unavailable",
        Ok(Outcome::Skipped) => "skipped",
        Ok(Outcome::Failed | Outcome::Unspecified) | Err(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use canopy_proto::v1::ShardRequest;

    use super::*;

    fn settled(shard: u32, scores: &[f32]) -> Settled {
        let hit = |(at, score): (usize, &f32)| Hit {
            shard,
            key_low: u64::from(shard) * 100 + at as u64,
            score: *score,
            ..Default::default()
        };
        let hits = scores.iter().enumerate().map(hit).collect();
        Settled { hits, reply: ShardReply { shard, ..Default::default() }, span: None }
    }

    #[test]
    fn hits_of_several_shards_are_one_list_of_the_largest_k() {
        let shard = |k| ShardRequest { k, ..Default::default() };
        let request = SearchRequest { shards: vec![shard(2), shard(3), shard(9)], ..Default::default() };
        let make = || vec![settled(1, &[5.0, 4.0, 1.0]), settled(0, &[5.0, 3.0])];
        let reply = message(&request, make(), CallReport::default());
        let got: Vec<_> = reply.hits.iter().map(|hit| (hit.shard, hit.score)).collect();
        assert_eq!(got, [(0, 5.0), (1, 5.0), (1, 4.0)]);
        assert_eq!(reply.shards.iter().map(|shard| shard.shard).collect::<Vec<_>>(), [1, 0]);
        assert!(fits(&reply, 4096).is_ok());
        assert_eq!(fits(&reply, 100).unwrap_err().field.as_deref(), Some("k"));
    }

    #[test]
    fn collapsed_hits_are_collapsed_over_the_shards_of_a_message_and_never_more_than_k() {
        let shard = ShardRequest { k: 3, ..Default::default() };
        let mut request = SearchRequest { shards: vec![shard; 2], ..Default::default() };
        request.collapse = "host".into();
        let of = |shard, hits: &[(f32, &str)]| {
            let mut settled = settled(shard, &hits.iter().map(|hit| hit.0).collect::<Vec<_>>());
            settled
                .hits
                .iter_mut()
                .zip(hits)
                .for_each(|(hit, (_, value))| hit.collapse = (*value).to_owned());
            settled
        };
        let lists =
            vec![of(0, &[(9.0, "a"), (8.0, "b"), (2.0, "")]), of(1, &[(7.0, "a"), (6.0, "c"), (5.0, "d")])];
        let reply = message(&request, lists, CallReport::default());
        let got: Vec<_> = reply.hits.iter().map(|hit| (hit.shard, hit.collapse.as_str())).collect();
        assert_eq!(got, [(0, "a"), (0, "b"), (1, "c")]);
    }
}
