//! Any subset of leaves is killed: `documents.searched` is exactly the documents of the shards that still have a replica.

use canopy_common::{error::ErrorClass, ids::Version};
use canopy_proto::v1::completion::Mode;
use canopy_tests::{invariants::check, model_leaf::Fault};
use proptest::prelude::*;

use crate::patterns::{Outcome, cases, pattern};

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn what_is_searched_is_what_is_left(
        mut pattern in pattern(|| Just(Fault::None).boxed()),
        dead in prop::collection::vec(any::<bool>(), 7),
    ) {
        pattern.budget_ms = 60_000;
        pattern.mode = Mode::All;
        for (script, dead) in pattern.scripts.iter_mut().zip(&dead) {
            if *dead {
                script.fault = Fault::Refuse(ErrorClass::Unavailable);
            }
        }
        let Outcome { tree, request, gathered, .. } = pattern.run();
        let coverage = check(&tree.corpus, &request, &gathered);

        let alive = |shard: &str| {
            let replicas = tree.routing.holders("web", Version(tree.corpus.version), &shard.parse().expect("a shard name"));
            replicas.iter().any(|leaf| !dead[leaf.0["leaf-".len()..].parse::<usize>().expect("a number")])
        };
        let left: Vec<_> = request.shards.iter().filter(|shard| alive(&shard.shard)).collect();
        let documents: u64 = left.iter().map(|shard| shard.documents).sum();
        prop_assert_eq!(coverage.documents_searched, documents);
        prop_assert_eq!(coverage.answered as usize, left.len());
        prop_assert_eq!(coverage.unavailable as usize, request.shards.len() - left.len());
    }
}
