//! One outcome per shard; alternatives are never added; the order of replies does not show.

use super::*;

fn ledger(documents: &[u64]) -> Ledger {
    let shard = |documents: &u64| v1::ShardRequest { documents: *documents, ..Default::default() };
    Ledger::new(&documents.iter().map(shard).collect::<Vec<_>>())
}

fn answer(shard: u32, searched: u64, cut: v1::Cut) -> v1::ShardReply {
    v1::ShardReply {
        shard,
        outcome: v1::Outcome::Answered as i32,
        documents_searched: searched,
        cut: cut as i32,
        ..Default::default()
    }
}

fn failure(shard: u32, outcome: Outcome, reason: &str) -> v1::ShardReply {
    missing(shard, 7, &outcome, "", reason.to_owned())
}

#[test]
fn the_first_whole_answer_settles_and_later_ones_are_late() {
    let mut ledger = ledger(&[10, 20]);
    ledger.sent(&[0, 1]);
    ledger.sent(&[0]);
    assert_eq!(ledger.answered(answer(0, 10, v1::Cut::None), &"a".into()), Accepted::Settled);
    assert_eq!(ledger.answered(answer(0, 10, v1::Cut::None), &"b".into()), Accepted::Late);
    let expected =
        Progress { shards: 2, open: 1, answered: 1, documents: 30, covered: 10, ..Default::default() };
    assert_eq!(*ledger.progress(), expected);
    ledger.give_up(1, || failure(1, Outcome::TimedOut, "late"));
    let (replies, children) = ledger.into_replies();
    assert_eq!(convert::outcome(&replies[1]), Outcome::TimedOut);
    assert_eq!(children, [Some("a".into()), None]);
}

#[test]
fn a_cut_answer_is_held_while_a_twin_is_pending_and_bettered_by_it() {
    let mut ledger = ledger(&[10]);
    ledger.sent(&[0]);
    ledger.sent(&[0]);
    assert_eq!(ledger.answered(answer(0, 4, v1::Cut::Deadline), &"a".into()), Accepted::Held);
    ledger.stash(v1::Hit::default());
    assert_eq!(ledger.progress().open, 1);
    assert_eq!(ledger.answered(answer(0, 10, v1::Cut::None), &"b".into()), Accepted::Settled);
    assert!(ledger.take_stash(0).is_empty(), "the better answer's hits replace the held ones");
    assert_eq!(ledger.progress().covered, 10);
}

#[test]
fn a_held_answer_survives_a_failing_twin() {
    let mut ledger = ledger(&[10]);
    ledger.sent(&[0]);
    ledger.sent(&[0]);
    assert_eq!(ledger.answered(answer(0, 4, v1::Cut::Deadline), &"a".into()), Accepted::Held);
    ledger.stash(v1::Hit::default());
    assert!(ledger.refused(failure(0, Outcome::Failed(ErrorClass::Internal), "boom")));
    ledger.give_up(0, || unreachable!("an answer is held"));
    assert_eq!((ledger.progress().answered, ledger.progress().covered), (1, 4));
    assert_eq!(ledger.take_stash(0).len(), 1);
}

#[test]
fn an_error_does_not_end_a_shard_while_its_twin_is_pending() {
    let mut ledger = ledger(&[10]);
    ledger.sent(&[0]);
    ledger.sent(&[0]);
    assert!(!ledger.refused(failure(0, Outcome::Shed, "full")));
    assert!(ledger.is_open(0));
    assert_eq!(ledger.answered(answer(0, 10, v1::Cut::None), &"b".into()), Accepted::Settled);
}

#[test]
fn two_failures_keep_the_graver_outcome_and_both_reasons_in_either_order() {
    let cases = [
        (Outcome::Failed(ErrorClass::DataLoss), Outcome::Unavailable),
        (Outcome::Failed(ErrorClass::Internal), Outcome::Failed(ErrorClass::DataLoss)),
        (Outcome::TimedOut, Outcome::Shed),
        (Outcome::Shed, Outcome::Unavailable),
    ];
    for (grave, light) in cases {
        for order in [[&grave, &light], [&light, &grave]] {
            let mut ledger = ledger(&[10]);
            for outcome in order {
                ledger.sent(&[0]);
                ledger.refused(failure(0, outcome.clone(), "why"));
            }
            ledger.give_up(0, || unreachable!("held"));
            let (replies, _) = ledger.into_replies();
            assert_eq!(convert::outcome(&replies[0]), grave);
            assert_eq!(replies[0].reason, "why; then why");
        }
    }
}

#[test]
fn what_is_served_instead_is_kept_by_the_newest_snapshot_whichever_failure_is_graver() {
    let told = |epoch| Some(v1::Instead { version: epoch, epoch });
    for order in [[told(4), told(9), None], [None, told(9), told(4)]] {
        let mut ledger = ledger(&[10]);
        for (at, instead) in order.into_iter().enumerate() {
            let outcomes = [Outcome::Unavailable, Outcome::Failed(ErrorClass::DataLoss), Outcome::Shed];
            ledger.sent(&[0]);
            ledger.refused(v1::ShardReply { instead, ..failure(0, outcomes[at].clone(), "why") });
        }
        ledger.give_up(0, || unreachable!("held"));
        assert_eq!(ledger.into_replies().0[0].instead, told(9));
    }
}

#[test]
fn claims_beyond_the_manifest_are_clamped() {
    let mut ledger = ledger(&[10]);
    ledger.sent(&[0]);
    let boast = v1::ShardReply { documents_pruned: u64::MAX, ..answer(0, u64::MAX, v1::Cut::None) };
    ledger.answered(boast, &"a".into());
    assert_eq!(ledger.progress().covered, 10);
}

#[test]
fn reasons_are_bounded_and_cut_between_characters() {
    let long = shortened("ä".repeat(1000));
    assert!(long.len() <= REASON_MAX && long.ends_with("ä..."));
}

#[test]
fn what_was_taken_is_freed_and_not_taken_again() {
    let mut ledger = ledger(&[10, 10]);
    ledger.sent(&[0, 1]);
    ledger.answered(answer(0, 10, v1::Cut::None), &"a".into());
    assert!(ledger.bytes() > 0 && ledger.has_unsent());
    assert_eq!(ledger.take_unsent().len(), 1);
    assert!(ledger.bytes() == 0 && !ledger.has_unsent());
    ledger.answered(answer(1, 10, v1::Cut::None), &"a".into());
    assert_eq!(ledger.take_unsent()[0].shard, 1);
}

#[test]
fn what_nobody_could_be_asked_for_is_lost_and_what_came_late_is_not() {
    let mut ledger = ledger(&[10, 10, 10, 10, 10]);
    ledger.give_up(0, || failure(0, Outcome::TimedOut, "late"));
    ledger.give_up(1, || failure(1, Outcome::Shed, "busy"));
    ledger.give_up(2, || failure(2, Outcome::Failed(ErrorClass::InvalidArgument), "wrong"));
    assert_eq!(ledger.progress().lost, 0);
    ledger.give_up(3, || failure(3, Outcome::Unavailable, "nobody"));
    ledger.give_up(4, || failure(4, Outcome::Failed(ErrorClass::DataLoss), "damaged"));
    assert_eq!(ledger.progress().lost, 2);
}
