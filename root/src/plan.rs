//! From a checked request and a parsed query to the message for the tree: every shard of the version, each asked for
//! as many hits as can matter, so that the account is kept over all of them whether anybody holds them or not.

use canopy_common::ids::{KeyHash, QueryId};
use canopy_proto::v1;

use crate::{config::RootConfig, pin::Pinned, query::Parsed, request::Wanted};

/// The message of phase one.
pub fn search(query_id: QueryId, wanted: &Wanted, parsed: Parsed, pinned: &Pinned) -> v1::SearchRequest {
    let Pinned { routing, corpus, .. } = pinned;
    // A collapsed page passes over the earlier ones instead (see `request`).
    let cursor = wanted.cursor.as_ref().filter(|_| wanted.collapse.is_empty());
    let after = cursor.map(crate::cursors::Cursor::after);
    let shards = corpus.shards.iter().map(|(shard, documents)| v1::ShardRequest {
        shard: shard.to_string(),
        k: wanted.offset + wanted.k,
        documents: *documents,
        after: after.clone(),
    });
    v1::SearchRequest {
        query_id: query_id.0.to_vec().into(),
        priority: priority(wanted) as i32,
        corpus: corpus.manifest.corpus.clone(),
        version: corpus.manifest.version.0,
        statistics: Some(parsed.statistics),
        epoch: routing.epoch.0,
        shards: shards.collect(),
        freshness: wanted.freshness as i32,
        wanted_offsets: wanted.offsets.clone(),
        stages: Some(wanted.stages.clone()),
        query: Some(parsed.query),
        sort: wanted.sort.clone(),
        facets: wanted.facets.clone(),
        total: wanted.total as i32,
        collapse: wanted.collapse.clone(),
        completion: Some(wanted.completion),
        hedge: wanted.hedge,
        trace: wanted.trace,
        session: wanted.session.clone(),
        beside: pinned.beside.0,
        attempt_id: pinned.numbered,
        ..Default::default()
    }
}

fn priority(wanted: &Wanted) -> v1::Priority {
    match wanted.priority {
        canopy_common::request::Priority::Interactive => v1::Priority::Interactive,
        canopy_common::request::Priority::Batch => v1::Priority::Batch,
    }
}

/// The message of phase two for `hits`, without its statistics unless a breakdown is wanted.
pub fn fetch(
    search: &v1::SearchRequest,
    wanted: &Wanted,
    config: &RootConfig,
    hits: &[v1::Hit],
    replies: &[v1::ShardReply],
    key_field: &str,
) -> v1::FetchRequest {
    let item = |hit: &v1::Hit| {
        let reply = replies.get(hit.shard as usize);
        v1::FetchItem {
            shard: search
                .shards
                .get(hit.shard as usize)
                .map_or_else(String::new, |asked| asked.shard.clone()),
            key_high: hit.key_high,
            key_low: hit.key_low,
            address: hit.address,
            node: reply.map_or_else(String::new, |reply| reply.node.clone()),
            lease: reply.map_or(0, |reply| reply.lease),
        }
    };
    let snippet =
        v1::SnippetBy { max_chars: config.snippet_chars, open: "<b>".to_owned(), close: "</b>".to_owned() };
    // On the wire an empty list means all fields; a page without fields asks for the key alone.
    let none = vec![key_field.to_owned()];
    v1::FetchRequest {
        query_id: search.query_id.to_vec(),
        corpus: search.corpus.clone(),
        version: search.version,
        epoch: search.epoch,
        items: hits.iter().map(item).collect(),
        fields: if wanted.fields.is_empty() { none } else { wanted.fields.clone() },
        snippet: wanted.snippet.then_some(snippet),
        query: search.query.clone(),
        statistics: wanted.explain.then(|| search.statistics.clone()).flatten(),
        stages: search.stages.clone(),
        explain: wanted.explain,
        priority: search.priority,
        beside: search.beside,
        ..Default::default()
    }
}

/// The hits of this page: each document once, each value of the collapse field once, then offset and k.
pub fn page(hits: Vec<v1::Hit>, wanted: &Wanted) -> Vec<v1::Hit> {
    let mut keys = std::collections::BTreeSet::new();
    let mut values = std::collections::BTreeSet::new();
    let fresh = hits.into_iter().filter(|hit| {
        let first = keys.insert(KeyHash::from_parts(hit.key_high, hit.key_low));
        let alone =
            wanted.collapse.is_empty() || hit.collapse.is_empty() || values.insert(hit.collapse.clone());
        first && alone
    });
    fresh.skip(wanted.offset as usize).take(wanted.k as usize).collect()
}
