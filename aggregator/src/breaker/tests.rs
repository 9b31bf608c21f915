//! Sequences of endings and time, and where the breaker then stands.

use super::*;

/// Something that happens to a breaker.
enum Step {
    /// So many calls end with that sign.
    Calls(u32, Sign),
    /// So many milliseconds pass.
    Wait(u64),
    /// The place of the probe is asked for, and had or not.
    Probe(bool),
    /// It stands like that.
    Is(&'static str),
}

use Sign::{Bad, Good, Late, Lost};
use Step::{Calls, Is, Probe, Wait};

fn word(position: Position) -> &'static str {
    match position {
        Position::Closed => "closed",
        Position::Open(Fault::Gone, _) => "gone",
        Position::Open(Fault::Failing, _) => "failing",
        Position::HalfOpen(_) => "half open",
    }
}

async fn play(name: &str, steps: Vec<Step>) {
    let mut breaker = Breaker::default();
    for (number, step) in steps.into_iter().enumerate() {
        let now = Instant::now();
        match step {
            Calls(count, sign) => (0..count).for_each(|_| {
                breaker.take(sign, now, now, 0.5);
            }),
            Wait(ms) => tokio::time::advance(Duration::from_millis(ms)).await,
            Probe(had) => assert_eq!(breaker.take_probe(now), had, "{name}, step {number}"),
            Is(expected) => assert_eq!(word(breaker.position(now)), expected, "{name}, step {number}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_sequence_ends_where_it_should() {
    let table = [
        ("five lost in a row", vec![Calls(4, Lost), Is("closed"), Calls(1, Lost), Is("gone")]),
        (
            "five without a word",
            vec![Calls(3, Late), Calls(1, Lost), Is("closed"), Calls(1, Late), Is("failing")],
        ),
        ("a failure is a word", vec![Calls(4, Late), Calls(1, Bad), Calls(4, Late), Is("closed")]),
        ("an answer between", vec![Calls(4, Lost), Calls(1, Good), Calls(4, Lost), Is("closed")]),
        ("failures are not lost", vec![Calls(19, Bad), Is("closed"), Calls(1, Bad), Is("failing")]),
        ("half of twenty", vec![Calls(11, Good), Calls(10, Bad), Is("closed"), Calls(1, Bad), Is("failing")]),
        ("less than half", vec![Calls(60, Good), Calls(50, Bad), Is("closed")]),
        ("too few", vec![Calls(19, Bad), Wait(20_000), Calls(19, Bad), Is("closed")]),
        ("over several parts", vec![Calls(10, Bad), Wait(5000), Calls(10, Bad), Is("failing")]),
        (
            "nothing passes, then one probe",
            vec![
                Calls(5, Lost),
                Probe(false),
                Wait(999),
                Is("gone"),
                Wait(1),
                Is("half open"),
                Probe(true),
                Probe(false),
                Calls(1, Good),
                Is("closed"),
                Probe(false),
            ],
        ),
        (
            "a failed probe doubles, to 5 s",
            vec![
                Calls(5, Lost),
                Wait(1000),
                Probe(true),
                Calls(1, Bad),
                Is("gone"),
                Probe(false),
                Wait(1999),
                Is("gone"),
                Wait(1),
                Probe(true),
                Calls(1, Lost),
                Wait(3999),
                Is("gone"),
                Wait(1),
                Calls(1, Lost),
                Wait(5000),
                Calls(1, Lost),
                Wait(4999),
                Is("gone"),
                Wait(1),
                Is("half open"),
                Calls(1, Lost),
                Wait(5000),
                Is("half open"),
            ],
        ),
        (
            "a lost probe is given up",
            vec![Calls(5, Lost), Wait(1000), Probe(true), Wait(59_999), Probe(false), Wait(1), Probe(true)],
        ),
        (
            "panic does not lengthen it",
            vec![Calls(5, Lost), Calls(100, Lost), Wait(999), Is("gone"), Wait(1), Is("half open")],
        ),
        ("an answer in panic closes it", vec![Calls(5, Lost), Wait(10), Calls(1, Good), Is("closed")]),
        (
            "openings are remembered",
            vec![
                Calls(5, Lost),
                Wait(1000),
                Calls(1, Good),
                Is("closed"),
                Calls(5, Lost),
                Wait(1999),
                Is("gone"),
                Wait(1),
                Is("half open"),
            ],
        ),
        (
            "and forgotten",
            vec![
                Calls(5, Lost),
                Wait(1000),
                Calls(1, Good),
                Wait(61_000),
                Calls(5, Lost),
                Wait(1000),
                Is("half open"),
            ],
        ),
    ];
    for (name, steps) in table {
        play(name, steps).await;
    }
}

#[tokio::test(start_paused = true)]
async fn late_news_of_old_calls_decide_nothing() {
    let mut breaker = Breaker::default();
    let old = Instant::now();
    tokio::time::advance(Duration::from_millis(5)).await;
    let now = Instant::now();
    (0..5).for_each(|_| {
        breaker.take(Sign::Lost, now, now, 0.5);
    });
    assert!(!breaker.take(Sign::Good, old, now, 0.5));
    assert_eq!(word(breaker.position(now)), "gone");
    tokio::time::advance(Duration::from_secs(1)).await;
    let later = Instant::now();
    breaker.take(Sign::Bad, old, later, 0.5);
    assert_eq!(word(breaker.position(later)), "half open");
}

#[tokio::test(start_paused = true)]
async fn the_time_it_stays_open_is_drawn() {
    let length = |lot: f64| {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        (0..5).for_each(|_| {
            breaker.take(Sign::Lost, now, now, lot);
        });
        let Position::Open(_, until) = breaker.position(now) else { panic!("open") };
        (until - now).as_millis()
    };
    assert_eq!((length(0.0), length(0.5), length(0.999)), (750, 1000, 1249));
}
