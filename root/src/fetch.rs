//! Phase two at the root: contents of the page's hits, under what is left of the deadline.
//!
//! Rule: a fetch that fails or is late never takes the page with it; its hits stay and are marked. Large pages go in
//! several messages, so that none comes near the message limit.

use std::sync::Arc;

use canopy_common::request::RequestContext;
use canopy_proto::v1::{self, FetchedDocument};

use crate::{
    pin::Pinned,
    plan,
    request::Wanted,
    search::{Root, Trail},
};

/// Estimated bytes of one fetch message.
const MESSAGE: u64 = 4 << 20;

/// Documents for `hits`, in order; empty ones where phase two had nothing in time.
pub async fn documents(
    root: &Root,
    pinned: &Pinned,
    context: &RequestContext,
    request: &Arc<v1::SearchRequest>,
    wanted: &Wanted,
    hits: &[v1::Hit],
    trail: &Trail,
) -> Vec<FetchedDocument> {
    if hits.is_empty() {
        return Vec::new();
    }
    let Pinned { routing, corpus, .. } = pinned;
    let each = wanted.bytes_per_hit(corpus, &root.config);
    let size = ((MESSAGE / each.max(1)) as usize).clamp(1, canopy_proto::validate::MAX_FETCH);
    let gathered = &trail.gathered;
    let parts = hits.chunks(size).map(|hits| async {
        let key_field = &corpus.manifest.schema.key;
        let message = plan::fetch(request, wanted, &root.config, hits, &gathered.shards, key_field);
        let child = |hit: &v1::Hit| gathered.children.get(hit.shard as usize).cloned().flatten();
        let children: Vec<_> = hits.iter().map(child).collect();
        let fetching = root.gatherer.fetch(context, routing, message, &children);
        let fetched = tokio::time::timeout_at(context.deadline.instant(), fetching).await;
        let mut documents = match fetched {
            Ok(Ok(reply)) => reply.documents,
            Ok(Err(failure)) => {
                tracing::debug!(query = %context.query, %failure, "fetch failed");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        documents.resize(hits.len(), FetchedDocument::default());
        documents
    });
    futures::future::join_all(parts).await.into_iter().flatten().collect()
}
