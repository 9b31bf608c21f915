//! Buckets hold their values, quantiles are right, losers do not bend them, what is old fades.

use canopy_common::rng::Dice;

use super::*;

fn ms(n: f64) -> Duration {
    Duration::from_secs_f64(n / 1000.0)
}

fn millis(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

fn close(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= expected * part
}

#[test]
fn every_time_is_in_a_bucket_that_holds_it() {
    let mut times: Vec<u64> =
        (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect();
    times.extend((0..5000).map(|n| n * 13_001));
    for us in times {
        let at = bucket(us);
        assert!(at < BUCKETS);
        if at < BUCKETS - 1 {
            assert!((us as f64) < edge(at), "{us} {at}");
        }
        if at > 0 {
            assert!(us as f64 >= edge(at - 1), "{us} {at}");
        }
    }
    assert!(
        (0..BUCKETS - 1)
            .all(|at| edge(at + 1) > edge(at) && edge(at + 1) / edge(at) <= 1.0 + 1.0 / 32.0 + 1e-9)
    );
}

#[test]
fn quantiles_of_plain_values_are_right_within_a_bucket() {
    let mut record = Record::default();
    for n in 1..=10_000 {
        record.took(ms(f64::from(n) / 10.0));
    }
    let survival = record.survival();
    for (q, expected) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (0.999, 999.0), (0.01, 10.0)] {
        let value = millis(survival.quantile(q));
        assert!(close(value, expected, 0.015), "{q}: {value}");
        assert!((survival.longer_than(expected * 1000.0) - (1.0 - q)).abs() < 0.01 * (1.0 - q) + 0.001);
    }
    assert_eq!(survival.longer_than(0.0), 1.0);
    assert_eq!(survival.longer_than(1e12), 0.0);
}

#[test]
fn nothing_seen_says_nothing() {
    let survival = Record::default().survival();
    assert_eq!((survival.quantile(0.5), survival.longer_than(5e6)), (None, 1.0));
    let mut record = Record::default();
    record.stopped(ms(10.0));
    record.stopped(Duration::MAX);
    assert_eq!(record.survival().quantile(0.5), None);
}

/// A hedge at 15 ms stops the first attempt when it wins. The product-limit estimate gives the quantiles of the
/// attempts as if none had been stopped; leaving the stopped ones out gives a p99 that is far too short.
#[test]
fn losers_do_not_bend_the_quantiles() {
    let dice = Dice::seeded(5);
    let exponential = || -8.0 * (1.0 - dice.unit()).ln();
    let (mut all, mut censored, mut winners) = (Record::default(), Record::default(), Record::default());
    for _ in 0..200_000 {
        let (first, hedge) = (exponential(), 15.0 + exponential());
        all.took(ms(first));
        if first <= hedge {
            censored.took(ms(first));
            winners.took(ms(first));
        } else {
            censored.stopped(ms(hedge));
        }
    }
    for q in [0.5, 0.9, 0.99] {
        let truth = millis(all.survival().quantile(q));
        assert!(close(millis(censored.survival().quantile(q)), truth, 0.03), "{q}");
    }
    let truth = millis(all.survival().quantile(0.99));
    assert!(millis(winners.survival().quantile(0.99)) < 0.9 * truth);
}

#[test]
fn what_is_old_weighs_less_and_is_gone_in_the_end() {
    let mut record = Record::default();
    for _ in 0..1000 {
        record.took(ms(100.0));
    }
    for _ in 0..10 {
        record.fade(0.5);
    }
    for _ in 0..100 {
        record.took(ms(10.0));
    }
    assert!(close(millis(record.survival().quantile(0.5)), 10.0, 0.03));
    assert!((record.samples() - 100.98).abs() < 0.1);
    (0..60).for_each(|_| record.fade(0.5));
    assert_eq!(record.survival().quantile(0.5), None);
    record.took(ms(1.0));
    record.clear();
    assert_eq!((record.samples(), record.survival().quantile(0.5)), (0.0, None));
}
