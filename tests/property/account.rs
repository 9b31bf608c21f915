//! Whatever leaves do, the account adds up, the hits are the brute-force best of what was searched, the answer is in
//! time, extra work is bounded and nothing is left running.

use std::{sync::atomic::Ordering, time::Duration};

use canopy_aggregator::{
    gather::Decision,
    merge::{facets, total},
};
use canopy_proto::v1;
use canopy_tests::{
    invariants::{check, places, running},
    model_leaf::Fault,
};
use proptest::prelude::*;

use crate::patterns::{Outcome, cases, fault, pattern};

proptest! {
    #![proptest_config(cases(5000))]

    #[test]
    fn any_pattern_of_faults_gives_a_right_flagged_answer_in_time(
        pattern in pattern(|| fault().boxed())
    ) {
        let Outcome { tree, request, gathered, took } = pattern.run();
        let coverage = check(&tree.corpus, &request, &gathered);

        let budget = Duration::from_millis(pattern.budget_ms);
        let end = budget.saturating_sub(Duration::from_millis(40).min(budget / 4));
        // The runtime's timer has millisecond grain; replies that are here at the end are taken for one more.
        prop_assert!(took <= end + Duration::from_millis(3), "{took:?} of {budget:?}");

        let decision = gathered.decision.expect("a decision");
        let open = coverage.answered < coverage.shards_total;
        prop_assert!(decision != Decision::Cancelled);
        prop_assert!(decision != Decision::AllBut || pattern.all_but >= coverage.shards_total - coverage.answered);
        let enough = coverage.documents_total == 0 || coverage.ratio() >= pattern.min_coverage.max(0.949);
        prop_assert!(decision != Decision::Adaptive || (open && enough));

        let asked: u64 = tree.leaves.iter().map(|leaf| leaf.seen.shards.load(Ordering::SeqCst)).sum();
        // A first try and two retries at the leaves, twice over when an aggregator was replaced.
        let levels = if pattern.aggregators > 0 { 4 } else { 1 };
        prop_assert!(asked <= 3 * levels * request.shards.len() as u64, "{asked}");
        prop_assert_eq!(running(&tree), 0);

        let (sum, lower_bound) = total(&gathered.shards);
        prop_assert_eq!(sum, coverage.documents_searched);
        prop_assert_eq!(lower_bound, !coverage.complete() && !request.shards.is_empty());
        for facet in facets(&request.facets, &gathered.shards) {
            prop_assert_eq!(facet.lower_bound, lower_bound);
        }
    }
}

proptest! {
    #![proptest_config(cases(2500))]

    /// One bad leaf of any kind, two replicas, time enough: nothing is lost and the list is that of a sound tree.
    #[test]
    fn retries_never_change_the_result(
        mut pattern in pattern(|| Just(Fault::None).boxed()),
        bad in any::<prop::sample::Index>(),
        fault in fault().prop_filter("recoverable", |fault| recoverable(*fault)),
    ) {
        pattern.leaves = pattern.leaves.max(2);
        pattern.scripts.resize(pattern.leaves, pattern.scripts[0]);
        pattern.replicas = pattern.replicas.max(2);
        pattern.budget_ms = 10_000;
        pattern.mode = v1::completion::Mode::All;
        for script in &mut pattern.scripts {
            script.start = script.start.min(Duration::from_millis(20));
            script.shard = script.shard.min(Duration::from_millis(20));
        }
        let sound = pattern.run();
        prop_assert!(sound.request.shards.is_empty() || check(&sound.tree.corpus, &sound.request, &sound.gathered).complete());
        let bad = bad.index(pattern.leaves);
        pattern.scripts[bad].fault = fault;
        let broken = pattern.run();
        check(&broken.tree.corpus, &broken.request, &broken.gathered);
        prop_assert_eq!(places(&sound.gathered.hits), places(&broken.gathered.hits));
        prop_assert_eq!(total(&sound.gathered.shards), total(&broken.gathered.shards));
        let facets = |outcome: &Outcome| facets(&outcome.request.facets, &outcome.gathered.shards);
        prop_assert_eq!(facets(&sound), facets(&broken));
    }
}

/// Whether another replica is asked after this.
fn recoverable(fault: Fault) -> bool {
    use canopy_common::error::ErrorClass;
    match fault {
        Fault::Refuse(class) | Fault::Fail(class, _) | Fault::ShardFails(class, _) => {
            class.retryable() || class == ErrorClass::Cancelled
        }
        Fault::Hang(_) => false,
        Fault::None
        | Fault::End(_)
        | Fault::Unheld(_)
        | Fault::Swapped(_)
        | Fault::ShardSheds(_)
        | Fault::Lie(_) => true,
    }
}
