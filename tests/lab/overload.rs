//! A burst, and what it leaves behind.

use canopy_lab::overload::{self, Protection, Settings, plot};
use canopy_tests::form::by_form;

#[test]
fn unprotected_arms_stay_down_after_a_burst_and_the_protected_one_is_well_within_a_second() {
    let times = by_form((3, 9, 16), (5, 15, 30), (10, 20, 60));
    let report = overload::run(&Settings { times, threads: 2, ..Settings::default() }, &|_| {}).unwrap();
    for arm in &report.arms {
        assert!(arm.before > 0.99, "{arm:?}");
        match arm.protection {
            Protection::None | Protection::Timeouts => {
                assert!(arm.after < 0.05 && arm.well_after.is_none(), "{arm:?}");
                assert!(arm.attempts_after > 2.5, "{arm:?}");
            }
            Protection::Protected => {
                assert!(arm.burst > 0.85, "{arm:?}");
                assert!(arm.after >= 0.99 && arm.attempts_after <= 1.1, "{arm:?}");
                assert!(arm.well_after.is_some_and(|seconds| seconds <= 1), "{arm:?}");
                assert!(arm.begun <= 1.1, "{arm:?}");
            }
        }
    }
    let svg = plot::svg(&report).unwrap();
    assert!(svg.contains("answered in time") && svg.contains("timeouts"));
}
