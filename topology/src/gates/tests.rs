//! What the gates find, and how often they cry wolf, over simulated arms: a lognormal body of mean 8 ms and sigma 0.5
//! with a share of hiccups of 180 to 220 ms. All seeded.

use canopy_common::rng::Dice;

use super::*;
use crate::{
    gates::{latencies::Latencies, rank::rank_test, spending::LOOKS},
    rollout::Verdict,
};

/// How the queries of a version behave.
#[derive(Clone, Copy)]
struct Model {
    body: f64,
    hiccups: f64,
    errors: f64,
    zero_results: f64,
}

const GOOD: Model = Model { body: 1.0, hiccups: 0.01, errors: 0.001, zero_results: 0.02 };

/// A normal draw.
fn normal(dice: &Dice) -> f64 {
    let radius = (-2.0 * (1.0 - dice.unit()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * dice.unit()).cos()
}

fn latency_us(model: &Model, dice: &Dice) -> u64 {
    let ms = if dice.unit() < model.hiccups {
        180.0 + 40.0 * dice.unit()
    } else {
        let sigma = 0.5;
        model.body * 8.0 * (sigma * normal(dice) - sigma * sigma / 2.0).exp()
    };
    (ms * 1e3) as u64
}

fn draw(arm: &mut Arm, model: &Model, queries: u64, dice: &Dice) {
    for _ in 0..queries {
        arm.queries += 1;
        arm.errors += u64::from(dice.unit() < model.errors);
        arm.partial += u64::from(dice.unit() < 0.005);
        arm.zero_results += u64::from(dice.unit() < model.zero_results);
        arm.latencies.record(latency_us(model, dice));
    }
}

/// Runs one gate, judged at each look.
fn gate(policy: &GatePolicy, model: &Model, dice: &Dice) -> Judgement {
    let (mut seen, mut spent) = (Comparison::default(), Spent::default());
    let looks = LOOKS.into_iter().chain([policy.sample]);
    for sample in looks {
        let more = sample - seen.control.queries;
        draw(&mut seen.control, &GOOD, more, dice);
        draw(&mut seen.treatment, model, more, dice);
        let (next, judgement) = judge(policy, spent, &seen);
        spent = next;
        if judgement.verdict != Verdict::Wait {
            return judgement;
        }
    }
    unreachable!("a gate says something when its sample is there")
}

fn caught(runs: u64, name: &str, policy: &GatePolicy, model: &Model) -> (f64, f64) {
    let dice = Dice::seeded(1).stream(name);
    let (mut found, mut hard) = (0, 0);
    for _ in 0..runs {
        let judgement = gate(policy, model, &dice);
        found += u64::from(judgement.verdict > Verdict::Wait);
        hard += u64::from(judgement.verdict == Verdict::HardBreach);
    }
    (found as f64 / runs as f64, hard as f64 / runs as f64)
}

#[test]
fn twice_the_hiccups_are_found_in_3000_queries_an_arm() {
    let (found, hard) = caught(500, "hiccups", &GatePolicy::of(1, 3_000), &Model { hiccups: 0.02, ..GOOD });
    println!("hiccups 1 -> 2 %: {found} caught, {hard} hard");
    assert!(found >= 0.8, "{found}");
    let (found, _) = caught(300, "long", &GatePolicy::of(1, 4_600), &Model { hiccups: 0.02, ..GOOD });
    println!("hiccups 1 -> 2 %, in 4,600: {found} caught");
    assert!(found >= 0.8, "{found}");
}

#[test]
fn a_slower_body_is_found_in_1000_queries_an_arm() {
    let dice = Dice::seeded(2);
    for sample in [3_000, 4_600] {
        let policy = GatePolicy::of(1, sample);
        let mut found = 0;
        for _ in 0..500 {
            let judgement = gate(&policy, &Model { body: 1.1, ..GOOD }, &dice);
            found += u64::from(judgement.verdict > Verdict::Wait && judgement.sample <= 1_000);
        }
        println!("+10 % body, {sample} planned: {found} of 500 caught by 1,000");
        assert!(found >= 400, "{found} of 500");
    }
}

#[test]
fn a_good_version_passes_a_gate_and_a_whole_rollout() {
    let dice = Dice::seeded(3);
    let short = [GatePolicy::of(1, 3_000)];
    let rollout = [GatePolicy::of(1, 4_600), GatePolicy::of(10, 4_600), GatePolicy::of(50, 4_600)];
    for gates in [&short[..], &rollout[..]] {
        let alarm = |_: &u64| gates.iter().any(|policy| gate(policy, &GOOD, &dice).verdict > Verdict::Wait);
        let alarms = (0..500_u64).filter(alarm).count();
        println!("false alarms of 500 over {} gates: {alarms}", gates.len());
        assert!(alarms <= 10, "{alarms}");
    }
}

#[test]
fn the_rank_test_alone_is_blind_to_hiccups() {
    let dice = Dice::seeded(4);
    let mut found = 0;
    for _ in 0..500 {
        let (mut control, mut treatment) = (Latencies::default(), Latencies::default());
        for _ in 0..3_000 {
            control.record(latency_us(&GOOD, &dice));
            treatment.record(latency_us(&Model { hiccups: 0.02, ..GOOD }, &dice));
        }
        found += u64::from(rank_test(&control, &treatment).unwrap().p < 0.01);
    }
    println!("hiccups 1 -> 2 %: the rank test alone finds {found} of 500");
    assert!(found <= 25, "{found} of 500");
}

#[test]
fn a_broken_field_is_a_hard_breach_within_a_few_hundred_queries() {
    let dice = Dice::seeded(5);
    for zero_results in [0.15, 0.4] {
        for _ in 0..50 {
            let judgement = gate(&GatePolicy::of(1, 3_000), &Model { zero_results, ..GOOD }, &dice);
            assert_eq!(judgement.verdict, Verdict::HardBreach);
            let by = if zero_results > 0.3 { 200 } else { 1_000 };
            assert!(judgement.sample <= by, "{}", judgement.reason());
            assert!(judgement.reason().contains("HARD BREACH zero results"), "{}", judgement.reason());
        }
    }
    let judgement = gate(&GatePolicy::of(1, 3_000), &Model { errors: 0.1, ..GOOD }, &dice);
    assert!(judgement.reason().contains("HARD BREACH errors"), "{}", judgement.reason());
}

#[test]
fn a_difference_that_does_not_matter_is_none_whatever_the_sample() {
    let dice = Dice::seeded(6);
    let mut seen = Comparison::default();
    draw(&mut seen.control, &GOOD, 200_000, &dice);
    draw(&mut seen.treatment, &Model { body: 1.02, zero_results: 0.023, ..GOOD }, 200_000, &dice);
    let (_, judgement) = judge(&GatePolicy::of(1, 3_000), Spent::default(), &seen);
    assert_eq!(judgement.verdict, Verdict::Pass, "{}", judgement.reason());
    let p = |metric: &str| judgement.findings.iter().find(|it| it.metric == metric).unwrap().p.unwrap();
    assert!(p("median ms") < 1e-9, "it is significant");
}

#[test]
fn answers_that_differ_too_much_are_a_breach_in_the_shadow() {
    let policy = GatePolicy::of(0, 200);
    let shadow = |overlap: f64, spread: f64| {
        let mut seen = Comparison::default();
        let dice = Dice::seeded(7);
        for _ in 0..200 {
            seen.control.queries += 1;
            seen.treatment.queries += 1;
            let value = (overlap + spread * (dice.unit() - 0.5)).clamp(0.0, 1.0);
            seen.overlap.record(value);
            seen.rank_biased_overlap.record(value);
        }
        judge(&policy, Spent::default(), &seen).1
    };
    assert_eq!(shadow(0.8, 0.4).verdict, Verdict::Pass);
    assert_eq!(shadow(0.49, 0.9).verdict, Verdict::Pass, "not proved");
    assert_eq!(shadow(0.35, 0.4).verdict, Verdict::SoftBreach);
    assert_eq!(shadow(0.1, 0.1).verdict, Verdict::HardBreach);
}

#[test]
fn judged_queries_and_missing_numbers() {
    let mut seen = Comparison { ndcg: Some([0.6, 0.598]), ..Comparison::default() };
    let policy = GatePolicy::of(1, 100);
    let verdict = |seen: &Comparison| judge(&policy, Spent::default(), seen).1.verdict;
    assert_eq!(verdict(&seen), Verdict::Wait);
    seen.ndcg = Some([0.6, 0.58]);
    assert_eq!(verdict(&seen), Verdict::SoftBreach);
    seen.ndcg = Some([0.6, 0.5]);
    assert_eq!(verdict(&seen), Verdict::HardBreach);
    seen.ndcg = None;
    (seen.control.queries, seen.treatment.queries) = (500, 500);
    assert_eq!(verdict(&seen), Verdict::Wait, "no latency was counted");
    seen.control.latencies.record(5_000);
    seen.treatment.latencies.record(5_000);
    let (spent, judgement) = judge(&policy, Spent::default(), &seen);
    assert_eq!((judgement.verdict, spent.looks), (Verdict::Pass, 1));
    assert_eq!(judge(&policy, spent, &seen).0, spent, "asking again spends nothing");
    let json = serde_json::to_string(&judgement).unwrap();
    assert_eq!(serde_json::from_str::<Judgement>(&json).unwrap(), judgement);
}
