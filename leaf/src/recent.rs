//! What this leaf was asked of late, of each corpus: a new version is asked the same before it serves ([`crate::shards::warm`]),
//! so that the words people ask for are in memory then.
//!
//! One of `EVERY` searches is kept, the last `KEPT` of a corpus; the shards are left out. A call that is not kept costs one
//! atomic.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

use canopy_proto::v1::SearchRequest;
use parking_lot::Mutex;
use prost::Message;

/// Searches of which one is kept.
const EVERY: u64 = 8;
/// Searches kept of a corpus.
const KEPT: usize = 64;
/// Longest query that is kept, bytes.
const LONGEST: usize = 16 << 10;
/// Corpora of which searches are kept.
const CORPORA: usize = 64;

/// The sample.
#[derive(Default)]
pub struct Recent {
    asked: AtomicU64,
    kept: Mutex<BTreeMap<String, VecDeque<SearchRequest>>>,
}

impl Recent {
    /// Takes note of a search, or not.
    pub fn note(&self, request: &SearchRequest) {
        let kept = self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY);
        if !kept || request.query.as_ref().is_some_and(|query| query.encoded_len() > LONGEST) {
            return;
        }
        let bare = SearchRequest {
            corpus: request.corpus.clone(),
            statistics: request.statistics.clone(),
            stages: request.stages.clone(),
            query: request.query.clone(),
            sort: request.sort.clone(),
            facets: request.facets.clone(),
            total: request.total,
            collapse: request.collapse.clone(),
            freshness: request.freshness,
            ..SearchRequest::default()
        };
        let mut kept = self.kept.lock();
        if !kept.contains_key(&bare.corpus) && kept.len() >= CORPORA {
            return;
        }
        let of_corpus = kept.entry(bare.corpus.clone()).or_default();
        if of_corpus.len() == KEPT {
            of_corpus.pop_front();
        }
        of_corpus.push_back(bare);
    }

    /// What was kept of a corpus.
    pub fn sample(&self, corpus: &str) -> Vec<SearchRequest> {
        self.kept.lock().get(corpus).map(|kept| kept.iter().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_of_each_corpus_are_kept_without_their_shards() {
        let recent = Recent::default();
        for number in 0..2000 {
            let corpus = format!("corpus-{}", number / 1000);
            let shards = vec![Default::default()];
            recent.note(&SearchRequest {
                corpus,
                shards,
                collapse: number.to_string(),
                ..Default::default()
            });
        }
        let sample = recent.sample("corpus-1");
        assert_eq!(sample.len(), KEPT);
        assert_eq!(sample.last().unwrap().collapse, "1992");
        assert!(sample.iter().all(|kept| kept.shards.is_empty()));
        assert_eq!(recent.sample("corpus-0").len(), KEPT);
        assert!(recent.sample("other").is_empty());
        for number in 0..2000 {
            recent.note(&SearchRequest { corpus: format!("x{number}"), ..Default::default() });
        }
        assert!(recent.kept.lock().len() <= CORPORA);
    }
}
