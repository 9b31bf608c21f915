//! The way down, the way up, and that noise moves nothing.

use canopy_common::rng::Dice;

use super::*;

const GOOD: Signals = Signals {
    lease_age_ms: 500,
    warm: true,
    draining: false,
    queries: 1_000,
    error_share: 0.001,
    latency_ratio: 1.0,
    lag_ms: Some(100),
};

fn run(health: Health, windows: &[Signals]) -> Health {
    windows.iter().fold(health, |health, seen| health.after(&HealthPolicy::default(), seen))
}

fn healthy() -> Health {
    run(Health::joining(), &[GOOD])
}

#[test]
fn a_node_joins_warms_and_is_healthy() {
    let cold = Signals { warm: false, ..GOOD };
    let health = run(Health::joining(), &[cold]);
    assert_eq!(health.condition, Condition::Warming);
    assert_eq!(run(health, &[cold, cold, GOOD]).condition, Condition::Healthy);
    assert_eq!(run(healthy(), &[cold]).condition, Condition::Healthy, "it serves the old version meanwhile");
}

#[test]
fn three_bad_windows_lead_down_and_ten_good_ones_up() {
    for bad in [
        Signals { error_share: 0.06, ..GOOD },
        Signals { latency_ratio: 3.1, ..GOOD },
        Signals { lag_ms: Some(10_001), ..GOOD },
    ] {
        let down = run(healthy(), &[bad; 2]);
        assert_eq!(down.condition, Condition::Healthy);
        let down = run(down, &[bad]);
        assert_eq!(down.condition, Condition::SubHealthy);
        assert!(!down.reason.is_empty());
        let up = run(down.clone(), &[GOOD; 9]);
        assert_eq!(up.condition, Condition::SubHealthy);
        let up = run(up, &[GOOD]);
        assert_eq!((up.condition, up.reason.as_str()), (Condition::Healthy, ""));
        // Between the limits nothing changes, and counting begins anew.
        let between = Signals { error_share: 0.03, latency_ratio: 2.0, ..GOOD };
        assert_eq!(
            run(down, &[[GOOD; 9].as_slice(), &[between], &[GOOD; 9]].concat()).condition,
            Condition::SubHealthy
        );
        assert_eq!(run(healthy(), &[bad, bad, between, bad, bad, GOOD]).condition, Condition::Healthy);
    }
    let failing = Signals { error_share: 0.9, ..GOOD };
    assert_eq!(run(healthy(), &[failing; 3]).condition, Condition::Faulty);
    let bad = Signals { error_share: 0.06, ..GOOD };
    assert_eq!(run(healthy(), &[[failing; 3], [bad; 3]].concat()).condition, Condition::Faulty);
}

#[test]
fn the_lease_decides_at_once() {
    let late = |lease_age_ms| Signals { lease_age_ms, ..GOOD };
    assert_eq!(run(healthy(), &[late(3_000)]).condition, Condition::Healthy);
    assert_eq!(run(healthy(), &[late(3_001)]).condition, Condition::Faulty);
    let back = run(healthy(), &[[late(3_001)].as_slice(), &[GOOD; 9]].concat());
    assert_eq!(back.condition, Condition::Faulty, "it has to prove itself");
    assert_eq!(run(back, &[GOOD]).condition, Condition::Healthy);
    let gone = run(healthy(), &[late(30_001)]);
    assert_eq!(gone.condition, Condition::Gone);
    assert_eq!(run(gone.clone(), &[GOOD]).condition, Condition::Warming);
    assert_eq!(run(gone, &[GOOD, GOOD]).condition, Condition::Healthy);
    assert_eq!(run(healthy(), &[Signals { draining: true, ..GOOD }]).condition, Condition::Draining);
    assert_eq!(run(healthy(), &[Signals { draining: true, ..GOOD }, GOOD]).condition, Condition::Healthy);
}

#[test]
fn few_queries_and_replay_say_nothing() {
    let quiet = Signals { queries: 5, error_share: 1.0, latency_ratio: 50.0, lag_ms: None, ..GOOD };
    assert_eq!(run(healthy(), &[quiet; 20]).condition, Condition::Healthy);
    let odd = Signals { error_share: f64::NAN, latency_ratio: f64::NAN, ..GOOD };
    assert_eq!(run(healthy(), &[odd; 20]).condition, Condition::Healthy);
}

#[test]
fn one_that_fails_whenever_it_is_asked_is_soon_asked_rarely() {
    let failing = Signals { error_share: 1.0, ..GOOD };
    let quiet = Signals { queries: 0, error_share: 0.0, ..GOOD };
    let (mut health, mut asked) = (healthy(), 0);
    for _ in 0..3_600 {
        let seen = if health.is_healthy() { failing } else { quiet };
        asked += u32::from(health.is_healthy());
        health = run(health, &[seen]);
    }
    assert!((6..=60).contains(&asked), "{asked} seconds of an hour");
    // Once mended it is in again after five minutes, and after ten more a fall is like the first.
    let mended = run(health, &vec![GOOD; 320]);
    assert_eq!(mended.condition, Condition::Healthy);
    let forgiven = run(mended, &vec![GOOD; 600]);
    let down = run(forgiven, &[failing; 3]);
    assert_eq!(down.condition, Condition::Faulty);
    assert_eq!(run(down, &[GOOD; 10]).condition, Condition::Healthy);
}

#[test]
fn noise_around_a_limit_does_not_make_it_flap() {
    for seed in 0..20 {
        let dice = Dice::seeded(seed);
        let (mut health, mut turns) = (healthy(), 0);
        for _ in 0..3_600 {
            // An hour at the limit of 3, give or take a half.
            let latency_ratio = 2.5 + dice.unit();
            let next = run(health.clone(), &[Signals { latency_ratio, ..GOOD }]);
            turns += u32::from(next.condition != health.condition);
            health = next;
        }
        assert!(turns <= 1, "{turns} turns in an hour, seed {seed}");
    }
}
