//! When results of a call are sent, and that each shard settles once.

use canopy_common::ids::AttemptId;
use canopy_proto::v1::{self, ShardRequest};

use super::*;

fn call(shards: usize) -> Call {
    let request = SearchRequest { shards: vec![ShardRequest::default(); shards], ..SearchRequest::default() };
    let deadline = Deadline::after(Duration::from_secs(1));
    Call::new(1, Arc::new(request), deadline, Vec::new(), Duration::from_micros(500), tracing::Span::none())
}

fn settled(shard: u32) -> Settled {
    Settled { reply: ShardReply { shard, ..ShardReply::default() }, ..Settled::default() }
}

fn sent(found: Found) -> Option<(usize, bool)> {
    match found {
        Found::Send { settled, last } => Some((settled.len(), last)),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn results_wait_for_company_but_not_longer_than_agreed() {
    let call = call(4);
    let short = Duration::from_micros(50);
    assert!(call.settle(settled(0), short, || ()));
    assert!(!call.settle(settled(0), short, || ()), "it had settled");
    assert!(sent(call.find(false)).is_none());
    assert!(call.settle(settled(1), short, || ()));
    assert!(sent(call.find(false)).is_none());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(call.settle(settled(2), short, || ()));
    assert_eq!(sent(call.find(false)), Some((3, false)));
    assert!(call.settle(settled(3), short, || ()));
    assert_eq!(sent(call.find(false)), Some((1, true)), "the last one never waits");
    assert!(matches!(call.find(false), Found::End));
}

#[tokio::test(start_paused = true)]
async fn a_long_search_is_sent_at_once_and_a_timer_takes_what_waits() {
    let call = call(3);
    assert!(call.settle(settled(0), Duration::from_millis(5), || ()));
    assert_eq!(sent(call.find(false)), Some((1, false)));
    assert!(call.settle(settled(1), Duration::ZERO, || ()));
    assert!(matches!(call.find(false), Found::Wait(Some(_))));
    assert_eq!(sent(call.find(true)), Some((1, false)));
    assert_eq!(call.settle_open(&[], |shard| settled(shard).reply, |_| ()), 1);
    assert_eq!(sent(call.find(false)), Some((1, true)));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_nobody_asked_for_is_not_taken() {
    let call = call(1);
    assert!(!call.settle(settled(7), Duration::ZERO, || ()));
    assert_eq!(call.close(), 1);
    assert!(!call.settle(settled(0), Duration::ZERO, || ()), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn a_call_for_no_shards_ends_at_once() {
    // Probes ask for nothing to see whether a leaf answers at all.
    let call = call(0);
    assert_eq!(sent(call.find(false)), Some((0, true)));
    assert!(matches!(call.find(false), Found::End));
}

#[test]
fn of_two_threads_one_begins_or_one_gives_back() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _clock = runtime.enter();
    for _ in 0..500 {
        let mut call = call(1);
        call.tied = Some(Tied::of(&v1::Tie { peer: "b".into(), attempt_id: 2, start_us: 1 }, AttemptId(1)));
        let (claims, given_back) = std::thread::scope(|scope| {
            let claims = scope.spawn(|| matches!(call.begin(), Some((_, Action::Tell(_)))));
            let given_back = scope.spawn(|| call.give_back());
            (claims.join().unwrap(), given_back.join().unwrap())
        });
        assert!(claims != given_back, "its twin drops for it, and it is dropped");
        assert_eq!((call.begun(), call.begin().is_none()), (claims, given_back));
    }
}
