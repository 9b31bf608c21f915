//! When a class hedges, after how long, and what turns it off.

use canopy_common::rng::Dice;

use super::*;
use crate::hedge::budget::Limits;

fn config() -> HedgeConfig {
    HedgeConfig {
        mode: HedgeMode::Auto,
        default_delay: ms(50),
        percentile: 0.99,
        max_attempts: 3,
        ratio: 0.05,
        limits: Limits { per_second: 10.0, burst: 256.0 },
    }
}

const ASKED: Asked = Asked {
    mode: HedgeMode::Auto,
    branches: 100,
    replicas: 2,
    budget: 0.05,
    frozen: false,
    subtree: false,
    grain: Duration::from_millis(1),
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Attempts of 5 to 15 ms, scaled; every `stall`th one takes 200 ms.
fn feed(class: &mut ClassState, count: u64, scale: f64, stall: u64) {
    let dice = Dice::seeded(9);
    for n in 1..=count {
        let time = if n % stall == 0 { ms(200) } else { ms(5).mul_f64(scale * (1.0 + 2.0 * dice.unit())) };
        class.took(time, None);
    }
}

fn delays(decision: Decision) -> Delays {
    match decision {
        Decision::After { delays, .. } => delays,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_mode_is_obeyed() {
    let now = Instant::now();
    let fresh = || ClassState::new(now);
    let decide = |mode, class: &mut ClassState| class.decide(now, &config(), &Asked { mode, ..ASKED });
    assert_eq!(decide(HedgeMode::Off, &mut fresh()), Decision::Nothing(Why::Off));
    assert_eq!(decide(HedgeMode::Factor(3), &mut fresh()), Decision::Copies(3));
    let fixed = Decision::After { delays: each(ms(7)), learned: false };
    assert_eq!(decide(HedgeMode::Delay(ms(7)), &mut fresh()), fixed);
    // Until enough was seen: the configured delay.
    for mode in [HedgeMode::Auto, HedgeMode::Quantile(0.9), HedgeMode::Tied] {
        assert_eq!(delays(decide(mode, &mut fresh())).first, ms(50), "{mode}");
    }
    let mut class = fresh();
    feed(&mut class, 5000, 1.0, u64::MAX);
    let ninth = delays(decide(HedgeMode::Quantile(0.9), &mut class)).first;
    assert!((13.5..14.5).contains(&(ninth.as_secs_f64() * 1000.0)), "{ninth:?}");
}

#[tokio::test(start_paused = true)]
async fn with_nobody_else_to_ask_there_is_no_hedge() {
    let now = Instant::now();
    let mut class = ClassState::new(now);
    let alone = Asked { replicas: 1, ..ASKED };
    assert_eq!(class.decide(now, &config(), &alone), Decision::Nothing(Why::Alone));
    let single = HedgeConfig { max_attempts: 1, ..config() };
    assert_eq!(class.decide(now, &single, &ASKED), Decision::Nothing(Why::Alone));
}

#[tokio::test(start_paused = true)]
async fn auto_computes_a_delay_that_spends_the_budget_and_keeps_it_for_a_while() {
    let now = Instant::now();
    let mut class = ClassState::new(now);
    feed(&mut class, 20_000, 1.0, 200);
    let first = delays(class.decide(now, &config(), &ASKED));
    assert!((0.03..=0.0501).contains(&first.extra), "{first:?}");
    feed(&mut class, 20_000, 0.5, 200);
    assert_eq!(delays(class.decide(now + ms(2900), &config(), &ASKED)), first);
    let later = delays(class.decide(now + ms(3000), &config(), &ASKED));
    assert!(later.first < first.first, "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_bucket_is_low_a_delay_may_grow_but_not_shrink() {
    let now = Instant::now();
    let frozen = Asked { frozen: true, ..ASKED };
    let mut class = ClassState::new(now);
    feed(&mut class, 20_000, 1.0, 200);
    let first = delays(class.decide(now, &config(), &ASKED));
    feed(&mut class, 60_000, 0.8, 200);
    assert_eq!(delays(class.decide(now + ms(4000), &config(), &frozen)), first);
    feed(&mut class, 200_000, 1.4, 200);
    assert!(delays(class.decide(now + ms(8000), &config(), &frozen)).first > first.first);
}

#[tokio::test(start_paused = true)]
async fn a_global_slowdown_turns_it_off_until_it_is_over_and_one_slow_replica_of_two_does_not() {
    let now = Instant::now();
    let off =
        |class: &mut ClassState, at| matches!(class.decide(at, &config(), &ASKED), Decision::Nothing(_));
    let mut class = ClassState::new(now);
    feed(&mut class, 10_000, 1.0, 200);
    assert!(!off(&mut class, now + ms(1000)));
    feed(&mut class, 500, 3.0, u64::MAX);
    assert_eq!(class.decide(now + ms(2000), &config(), &ASKED), Decision::Nothing(Why::Slowdown));
    // Too few since to say.
    feed(&mut class, 5, 1.0, u64::MAX);
    assert!(off(&mut class, now + ms(3000)));
    feed(&mut class, 500, 1.0, u64::MAX);
    assert!(!off(&mut class, now + ms(4000)));
    // Half of the attempts, those of one replica, are ten times slower.
    feed(&mut class, 250, 1.0, u64::MAX);
    feed(&mut class, 250, 10.0, u64::MAX);
    assert!(!off(&mut class, now + ms(5000)));
}

#[tokio::test(start_paused = true)]
async fn a_slowdown_that_stays_becomes_the_usual() {
    let mut now = Instant::now();
    let mut class = ClassState::new(now);
    feed(&mut class, 1000, 1.0, 200);
    let mut off = 0;
    for _ in 0..600 {
        now += ms(1000);
        feed(&mut class, 30, 3.0, 200);
        off += u32::from(matches!(class.decide(now, &config(), &ASKED), Decision::Nothing(_)));
    }
    assert!((60..180).contains(&off), "{off}");
}

#[tokio::test(start_paused = true)]
async fn pushback_turns_it_off_for_as_long_as_was_asked_but_not_for_ever() {
    let now = Instant::now();
    let mut class = ClassState::new(now);
    let pushback = Decision::Nothing(Why::Pushback);
    class.pushed_back(now, ms(300));
    class.pushed_back(now, ms(100));
    assert_eq!(class.decide(now + ms(299), &config(), &ASKED), pushback);
    assert_ne!(class.decide(now + ms(300), &config(), &ASKED), pushback);
    class.pushed_back(now, Duration::from_hours(1));
    assert_ne!(class.decide(now + ms(5000), &config(), &ASKED), pushback);
    // An operator's own mode is obeyed.
    let fixed = Asked { mode: HedgeMode::Delay(ms(9)), ..ASKED };
    assert!(matches!(class.decide(now, &config(), &fixed), Decision::After { .. }));
}

#[tokio::test(start_paused = true)]
async fn queues_turn_it_off_unless_stalls_are_seen() {
    for (queued, stall, expected) in
        [(0.2, u64::MAX, None), (0.7, u64::MAX, Some(Decision::Nothing(Why::Load))), (0.7, 200, None)]
    {
        let now = Instant::now();
        let mut class = ClassState::new(now);
        let dice = Dice::seeded(3);
        for n in 1..=5000 {
            let service = ms(5).mul_f64(1.0 + dice.unit());
            let service = if n % stall == 0 { service + ms(200) } else { service };
            let time = service.mul_f64(1.0 / (1.0 - queued));
            class.took(time, Some(time.saturating_sub(service)));
        }
        let decision = class.decide(now + ms(1000), &config(), &ASKED);
        match expected {
            Some(expected) => assert_eq!(decision, expected),
            None => assert!(matches!(decision, Decision::After { .. }), "{queued} {stall}: {decision:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hedges_that_never_win_are_given_up_and_tried_again_later() {
    let now = Instant::now();
    for (won, sent, off) in [(0, 100, true), (0, 99, false), (9, 1000, true), (10, 1000, false)] {
        let mut class = ClassState::new(now);
        (0..sent).for_each(|n| class.hedged(n < won));
        assert_eq!(class.win_ratio(), Some(f64::from(won) / f64::from(sent)));
        let at = |minutes: u64| now + Duration::from_mins(minutes);
        assert!(matches!(class.decide(at(9), &config(), &ASKED), Decision::After { .. }));
        let judged = class.decide(at(10), &config(), &ASKED);
        assert_eq!(judged == Decision::Nothing(Why::NeverWins), off, "{won} of {sent}");
        assert!(matches!(class.decide(at(20), &config(), &ASKED), Decision::After { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_subtree_is_hedged_only_after_its_own_p99() {
    let now = Instant::now();
    let subtree = Asked { subtree: true, ..ASKED };
    let mut class = ClassState::new(now);
    assert_eq!(class.decide(now, &config(), &subtree), Decision::Nothing(Why::Unknown));
    feed(&mut class, 5000, 1.0, 50);
    let after = delays(class.decide(now, &config(), &Asked { mode: HedgeMode::Delay(ms(1)), ..subtree }));
    assert!(after.first >= ms(150), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn tied_needs_a_service_time_that_the_timers_can_halve() {
    let now = Instant::now();
    let tied = Asked { mode: HedgeMode::Tied, ..ASKED };
    for (scale, grain, expected) in [(1.0, 1000, false), (6.0, 1000, true), (1.0, 100, true)] {
        let mut class = ClassState::new(now);
        feed(&mut class, 2000, scale, u64::MAX);
        let asked = Asked { grain: Duration::from_micros(grain), ..tied };
        let decision = class.decide(now + ms(1000), &config(), &asked);
        match decision {
            Decision::Tied(delay) => {
                assert!(expected && delay <= ms(10).mul_f64(scale) / 50, "{scale} {grain}: {delay:?}");
            }
            _ => assert!(!expected, "{scale} {grain}: {decision:?}"),
        }
    }
}

#[test]
fn what_is_plenty_fades_faster_and_what_is_scarce_is_kept() {
    let minute = Duration::from_mins(1);
    let table = [(0.0, 0.707), (1000.0, 0.707), (50_000.0, 0.707), (100_000.0, 0.4), (1e9, 0.125)];
    for (samples, expected) in table {
        assert!((fading(samples, minute) - expected).abs() < 0.001, "{samples}");
    }
}
