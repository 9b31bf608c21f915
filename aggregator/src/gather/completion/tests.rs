//! Tables: (what came when) -> (when and why it stops). No runtime waits in these tests.

use v1::completion::Mode;

use super::*;

const DOCUMENTS: u64 = 100;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Replays answers at the given milliseconds (each of one shard of 100 documents) and returns when the rule stops, in
/// milliseconds, and why. Budget 500 ms, reserve 40 ms.
fn replay(
    mode: Mode,
    all_but: u32,
    min_coverage: f64,
    enough: f64,
    shards: u32,
    answers: &[u64],
) -> (u64, Decision) {
    let start = Instant::now();
    let asked = v1::Completion { mode: mode as i32, all_but, min_coverage };
    let config = GatherConfig { enough_coverage: enough, ..Default::default() };
    let mut rule = Completion::new(Some(&asked), &config, start + ms(500), start + ms(460));
    let mut progress =
        Progress { shards, open: shards, documents: u64::from(shards) * DOCUMENTS, ..Default::default() };
    let mut now = start;
    let mut answers = answers.iter().map(|at| start + ms(*at)).peekable();
    loop {
        let until = match rule.decide(now, &progress) {
            Verdict::Finish(decision) => return ((now - start).as_millis() as u64, decision),
            Verdict::Wait(until) => until,
        };
        now = match answers.peek() {
            Some(at) if *at <= until => {
                progress.open -= 1;
                progress.answered += 1;
                progress.covered += DOCUMENTS;
                answers.next().unwrap_or(until)
            }
            _ => until,
        };
    }
}

#[test]
fn adaptive_waits_a_share_of_the_time_left_for_stragglers() {
    let nine = [100; 9];
    // Nine of ten at 100 ms, the last hangs: 20 % of the 400 ms left.
    assert_eq!(replay(Mode::Adaptive, 0, 0.9, 0.9, 10, &nine), (180, Decision::Adaptive));
    // The last comes within the wait: whole.
    let ten: Vec<u64> = nine.iter().copied().chain([150]).collect();
    assert_eq!(replay(Mode::Adaptive, 0, 0.9, 0.9, 10, &ten), (150, Decision::All));
    // Enough is 0.95: nine of ten never are, the deadline less the reserve ends it.
    assert_eq!(replay(Mode::Adaptive, 0, 0.0, 0.95, 10, &nine), (460, Decision::Deadline));
}

#[test]
fn the_wait_slopes_from_the_allowed_number_down_to_one() {
    // 100 shards, 0.95 allows five: 30 % of 400 ms when five are pending, 20 % when one is.
    for (answered, expected) in [(95, 220), (96, 210), (97, 200), (98, 190), (99, 180)] {
        let answers = vec![100; answered];
        let stops = replay(Mode::Adaptive, 0, 0.0, 0.95, 100, &answers);
        assert_eq!(stops, (expected, Decision::Adaptive), "{answered}");
    }
}

#[test]
fn a_later_answer_only_shortens_the_wait() {
    let mut answers = vec![100; 95];
    answers.push(110);
    // Four pending at 110 ms: 27.5 % of 400 ms from 110 ms is 220 ms, no later than the 220 ms of five.
    assert_eq!(replay(Mode::Adaptive, 0, 0.0, 0.95, 100, &answers), (220, Decision::Adaptive));
    answers.extend([112, 114, 116]);
    // One pending at 116 ms: 20 % of 400 ms from there.
    assert_eq!(replay(Mode::Adaptive, 0, 0.0, 0.95, 100, &answers), (196, Decision::Adaptive));
}

#[test]
fn adaptive_never_stops_under_the_minimum_coverage_asked() {
    let answers = vec![100; 97];
    assert_eq!(replay(Mode::Adaptive, 0, 0.98, 0.95, 100, &answers), (460, Decision::Deadline));
    let answers = vec![100; 98];
    assert_eq!(replay(Mode::Adaptive, 0, 0.98, 0.95, 100, &answers).1, Decision::Adaptive);
    assert_eq!(replay(Mode::Adaptive, 0, f64::NAN, 0.95, 100, &answers).1, Decision::Deadline);
}

#[test]
fn the_wait_never_passes_the_deadline_less_the_reserve() {
    let answers = vec![455; 99];
    assert_eq!(replay(Mode::Adaptive, 0, 0.0, 0.95, 100, &answers), (460, Decision::Deadline));
}

#[test]
fn all_waits_for_all_and_all_but_for_its_number() {
    let answers = [10, 20, 30, 40];
    assert_eq!(replay(Mode::All, 0, 0.0, 0.5, 5, &answers), (460, Decision::Deadline));
    assert_eq!(replay(Mode::All, 0, 0.0, 0.5, 4, &answers), (40, Decision::All));
    assert_eq!(replay(Mode::AllBut, 1, 0.0, 0.5, 5, &answers), (40, Decision::AllBut));
    assert_eq!(replay(Mode::AllBut, 3, 0.0, 0.5, 5, &answers), (20, Decision::AllBut));
    assert_eq!(replay(Mode::AllBut, 0, 0.0, 0.5, 5, &answers), (460, Decision::Deadline));
    assert_eq!(replay(Mode::AllBut, 99, 0.0, 0.5, 5, &answers), (0, Decision::AllBut));
    // ... but not under the minimum coverage.
    assert_eq!(replay(Mode::AllBut, 3, 0.8, 0.5, 5, &answers), (40, Decision::AllBut));
}

#[test]
fn failures_count_as_missing_and_never_as_covered() {
    let start = Instant::now();
    let asked = v1::Completion { mode: Mode::AllBut as i32, all_but: 1, min_coverage: 0.0 };
    let config = GatherConfig::default();
    let mut rule = Completion::new(Some(&asked), &config, start + ms(500), start + ms(460));
    // Four shards: two failed, one answered, one open; two are missing already.
    let progress =
        Progress { shards: 4, open: 1, answered: 1, documents: 400, covered: 100, ..Default::default() };
    assert_eq!(rule.decide(start, &progress), Verdict::Wait(start + ms(460)));
}

#[test]
fn nothing_answered_is_never_enough() {
    let start = Instant::now();
    let config = GatherConfig { enough_coverage: 0.01, ..Default::default() };
    let mut rule = Completion::new(None, &config, start + ms(500), start + ms(460));
    let mut progress =
        Progress { shards: 4, open: 4, answered: 0, documents: 0, covered: 0, ..Default::default() };
    assert_eq!(rule.decide(start, &progress), Verdict::Wait(start + ms(460)));
    // Shards without documents are counted as shards.
    (progress.open, progress.answered) = (1, 3);
    assert_eq!(rule.decide(start, &progress), Verdict::Wait(start + ms(100)));
    (progress.open, progress.answered) = (0, 4);
    assert_eq!(rule.decide(start, &progress), Verdict::Finish(Decision::All));
}
