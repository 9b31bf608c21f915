//! Children that break the contract: nothing they send corrupts the account, and the other replica answers.

use std::{sync::Arc, time::Duration};

use canopy_common::error::ErrorClass;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Lie},
    model_tree::{ModelTree, Shape},
};

use canopy_tests::invariants::check;

const LIES: [Lie; 7] =
    [Lie::Twice, Lie::Unknown, Lie::ForeignHit, Lie::TooManyHits, Lie::Version, Lie::Outcome, Lie::Facet];

fn pair() -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(41, 6, 50));
    ModelTree::new(corpus, &Shape { leaves: 2, ..Default::default() })
}

#[tokio::test(start_paused = true)]
async fn a_liar_is_replaced_by_an_honest_replica() {
    for lie in LIES {
        for batch in [1, 3, 16] {
            let tree = pair();
            tree.leaves[0].script(|script| (script.fault, script.batch) = (Fault::Lie(lie), batch));
            for _ in 0..4 {
                let request = tree.corpus.request(tree.query(), 10);
                let gathered = tree.search(request.clone(), Duration::from_millis(300)).await;
                assert!(check(&tree.corpus, &request, &gathered).complete(), "{lie:?} {batch}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn among_liars_shards_are_failed_with_the_reason_and_the_account_adds_up() {
    for lie in LIES {
        let tree = pair();
        for leaf in &tree.leaves {
            leaf.script(|script| (script.fault, script.batch) = (Fault::Lie(lie), 16));
        }
        let request = tree.corpus.request(tree.query(), 10);
        let gathered = tree.search(request.clone(), Duration::from_millis(300)).await;
        let coverage = check(&tree.corpus, &request, &gathered);
        assert_eq!((coverage.failed, coverage.documents_searched), (6, 0), "{lie:?}");
        let class = if lie == Lie::Version { ErrorClass::FailedPrecondition } else { ErrorClass::Internal };
        assert_eq!(gathered.shards[0].error_class, class as u32, "{lie:?}");
        assert!(gathered.shards[0].reason.contains("leaf-"), "{}", gathered.shards[0].reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_boast_is_clamped_to_the_manifest() {
    let tree = pair();
    for leaf in &tree.leaves {
        leaf.script(|script| script.fault = Fault::Lie(Lie::Boast));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), Duration::from_millis(300)).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!(coverage.documents_searched, tree.corpus.documents());
}
