//! Which seeds a run takes.

use std::ops::Range;

use canopy_tests::sim_tree::{Report, Scenario, simulate};

#[expect(clippy::disallowed_methods, reason = "the one switch of these tests")]
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `default` seeds, or what the environment says.
pub fn seeds(default: u64) -> Range<u64> {
    match (variable("SIM_SEED"), variable("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..default,
    }
}

/// Runs a scenario for each seed and checks it; a failing seed is named.
pub fn each(default: u64, scenario: impl Fn(u64) -> Scenario, judge: impl Fn(&Scenario, &Report)) {
    for seed in seeds(default) {
        let scenario = scenario(seed);
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let report = simulate(&scenario);
            judge(&scenario, &report);
        }));
        if let Err(cause) = judged {
            eprintln!("failed with SIM_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}
