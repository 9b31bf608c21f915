//! What every answer of the engine must satisfy, whatever happened: the account adds up and the hits are the
//! brute-force best of what was searched, to the bit.

use std::sync::atomic::Ordering;

use canopy_aggregator::gather::Gathered;
use canopy_common::{
    coverage::{Coverage, ShardOutcome},
    ids::Version,
};
use canopy_proto::{convert, v1};

use crate::{
    model_corpus::{ModelCorpus, expected},
    model_tree::ModelTree,
};

/// Coverage of a gathered search.
pub fn coverage(request: &v1::SearchRequest, gathered: &Gathered) -> Coverage {
    let lines = request.shards.iter().zip(&gathered.shards).map(|(asked, reply)| ShardOutcome {
        shard: asked.shard.parse().expect("a shard name"),
        version: Version(reply.version),
        documents: asked.documents,
        outcome: convert::outcome(reply),
        reason: reply.reason.clone(),
    });
    Coverage::of(lines)
}

/// Checks an answer and returns its coverage.
pub fn check(corpus: &ModelCorpus, request: &v1::SearchRequest, gathered: &Gathered) -> Coverage {
    assert_eq!(gathered.shards.len(), request.shards.len());
    let wanted = expected(corpus, request, &gathered.shards);
    // Where a branch could not be asked again for more hits, it says so, and the page is what came.
    if gathered.shards.iter().all(|reply| reply.cut != v1::Cut::Hits as i32) {
        assert_eq!(places(&gathered.hits), places(&wanted));
    }
    for (index, reply) in gathered.shards.iter().enumerate() {
        assert_eq!(reply.shard as usize, index);
        let answered = reply.outcome == v1::Outcome::Answered as i32;
        assert_eq!(answered, gathered.children[index].is_some(), "{reply:?}");
        assert!(answered || !reply.reason.is_empty(), "{reply:?}");
    }
    let coverage = coverage(request, gathered);
    assert!(coverage.adds_up());
    assert_eq!(
        coverage.documents_searched + coverage.documents_pruned + coverage.documents_missing(),
        corpus.documents()
    );
    coverage
}

/// (shard, key, score bits): equal lists are equal to the bit.
pub fn places(hits: &[v1::Hit]) -> Vec<(u32, u64, u64, u32)> {
    hits.iter().map(|hit| (hit.shard, hit.key_high, hit.key_low, hit.score.to_bits())).collect()
}

/// Searches that run at the leaves now.
pub fn running(tree: &ModelTree) -> u64 {
    tree.leaves.iter().map(|leaf| leaf.seen.running.load(Ordering::SeqCst)).sum()
}
