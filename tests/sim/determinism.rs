//! The same seed gives the same history, byte by byte, with concurrency and every kind of fault; so a failure that was
//! seen once can be seen again.

use std::time::Duration;

use canopy_common::rng::Dice;
use canopy_tests::{
    model_leaf::{Fault, Script},
    sim_tree::{Happening, Scenario, simulate},
};

use crate::seeds::{each, seeds};

/// A storm: random happenings over two levels.
fn storm(seed: u64) -> Scenario {
    let mut scenario = Scenario { queries: 300, ..Scenario::calm(seed).two_levels() };
    scenario.completion.mode = (seed % 3) as i32;
    scenario.completion.all_but = 2;
    let dice = Dice::seeded(seed).stream("storm");
    let at = |n: u64| Duration::from_millis(200 * n + dice.below(200));
    for n in 0..14 {
        let host = |of: u64| if of < 4 { format!("leaf-{of}") } else { format!("agg-{}", of - 4) };
        let (one, other) = (host(dice.below(7)), host(dice.below(7)));
        let (start, end) = (at(n), at(n + 2));
        let (from, to) = match dice.below(5) {
            0 if one != other => {
                (Happening::Partition(one.clone(), other.clone()), Happening::Repair(one, other))
            }
            1 if one != other => {
                (Happening::Hold(one.clone(), other.clone()), Happening::Release(one, other))
            }
            2 => {
                let leaf = dice.below(4) as usize;
                let fault = [Fault::Hang(1), Fault::End(1), Fault::ShardSheds(0)][dice.below(3) as usize];
                let script = Script { fault, ..Default::default() };
                (Happening::Script(leaf, script), Happening::Script(leaf, Script::default()))
            }
            3 => (Happening::Kill(one.clone()), Happening::Start(one)),
            _ => (Happening::Crash(one.clone()), Happening::Bounce(one)),
        };
        scenario.happenings.push((start, from));
        scenario.happenings.push((end, to));
    }
    scenario.happenings.sort_by_key(|happening| happening.0);
    scenario
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in seeds(3) {
        let (once, again) = (simulate(&storm(seed)), simulate(&storm(seed)));
        assert!(once.history.len() > 300);
        for (number, (a, b)) in once.history.iter().zip(&again.history).enumerate() {
            assert_eq!(a, b, "SIM_SEED={seed}, line {number}");
        }
        assert_eq!(once.history.len(), again.history.len(), "SIM_SEED={seed}");
    }
    assert_ne!(simulate(&storm(1)).history, simulate(&storm(2)).history);
}

#[test]
fn in_any_storm_every_query_is_answered_once_in_time_with_a_right_account() {
    each(8, storm, |scenario, report| {
        assert_eq!(report.answered.len(), scenario.queries);
        for (number, answered) in report.answered.iter().enumerate() {
            assert_eq!(answered.number, number);
            assert!(answered.took <= scenario.latest(), "{answered:?}");
            assert!(answered.coverage.adds_up());
        }
    });
}
