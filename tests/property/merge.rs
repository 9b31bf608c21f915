//! The merge gives the same list however the hits are cut into messages and batches, in whatever order they come, and
//! however often they come.

use canopy_aggregator::merge::{HitMerge, facets};
use canopy_proto::v1;
use canopy_tests::{
    invariants::places,
    model_corpus::{ModelCorpus, answer, best, expected},
};
use proptest::prelude::*;

use crate::patterns::cases;

fn request(corpus: &ModelCorpus, k: u32, sort: bool, collapse: bool) -> v1::SearchRequest {
    let query = canopy_common::ids::QueryId([0; 16]);
    let by = v1::SortBy { field: "published".to_owned(), descending: true };
    v1::SearchRequest {
        sort: if sort { vec![by] } else { vec![] },
        collapse: if collapse { "host".to_owned() } else { String::new() },
        facets: vec![v1::FacetBy { field: "host".to_owned(), size: 4, exact: false }],
        ..corpus.request(query, k)
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_cut_order_and_repetition_gives_the_brute_force_list(
        seed in any::<u64>(),
        (shards, documents, k) in (0..12_usize, 0..40_usize, 0..30_u32),
        (sort, collapse) in (any::<bool>(), any::<bool>()),
        batches in prop::collection::vec(0..4_usize, 12),
        twice in prop::collection::vec(any::<bool>(), 12),
        order in any::<u64>(),
    ) {
        let corpus = ModelCorpus::generate(seed, shards, documents);
        let request = request(&corpus, k, sort, collapse);
        let replies: Vec<(v1::ShardReply, Vec<v1::Hit>)> = (0..shards)
            .map(|at| answer(&request, at as u32, &corpus.shards[at], corpus.version, usize::MAX))
            .collect();

        // Below: one merge a batch, some hits twice, in an order of the seed's. Above: a merge of the batches.
        let mut above = HitMerge::of(&request);
        for batch in 0..4 {
            let mut below = HitMerge::of(&request);
            let mine = (0..shards).filter(|at| batches[*at] == batch);
            let mut hits: Vec<v1::Hit> = mine
                .flat_map(|at| vec![replies[at].1.clone(); 1 + usize::from(twice[at])])
                .flatten()
                .collect();
            shuffle(&mut hits, order);
            for hit in hits {
                below.push(hit);
            }
            for hit in below.take() {
                above.push(hit);
            }
        }
        let shard_replies: Vec<v1::ShardReply> = replies.iter().map(|reply| reply.0.clone()).collect();
        let wanted = expected(&corpus, &request, &shard_replies);
        prop_assert_eq!(places(&above.take()), places(&wanted));
        let all = replies.iter().flat_map(|reply| reply.1.clone()).collect();
        prop_assert_eq!(places(&best(&request, all, k as usize)), places(&wanted));
    }

    #[test]
    fn facet_counts_are_the_truth_within_their_bound(
        seed in any::<u64>(),
        (shards, documents) in (1..12_usize, 0..40_usize),
        missing in prop::collection::vec(any::<bool>(), 12),
    ) {
        let corpus = ModelCorpus::generate(seed, shards, documents);
        let request = request(&corpus, 3, false, false);
        let replies: Vec<v1::ShardReply> = (0..shards)
            .map(|at| {
                if missing[at] {
                    return v1::ShardReply { outcome: v1::Outcome::TimedOut as i32, ..Default::default() };
                }
                answer(&request, at as u32, &corpus.shards[at], corpus.version, usize::MAX).0
            })
            .collect();
        let facet = facets(&request.facets, &replies).remove(0);
        prop_assert_eq!(facet.lower_bound, missing[..shards].contains(&true));
        for (value, count, short) in facet.values {
            let there = corpus.shards.iter().zip(&missing).filter(|(_, missing)| !**missing);
            let documents = there.flat_map(|(shard, _)| &shard.documents);
            let truth = documents.filter(|document| document.host == value).count() as u64;
            prop_assert!(count <= truth && truth <= count + short, "{value}: {count} {truth} {short}");
        }
    }
}

/// Fisher-Yates with a small generator.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let dice = canopy_common::rng::Dice::seeded(seed);
    for at in (1..items.len()).rev() {
        items.swap(at, dice.below(at as u64 + 1) as usize);
    }
}
