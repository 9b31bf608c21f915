//! Tied searches on two real leaves: who is dropped, who stops, and what messages that are late, early or twice do.

use canopy_proto::v1::Tie;
use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::{
    executor::Lane,
    fixture::{hold, telling, view},
    node::{LeafNode, Parts},
};

/// One leaf of a pair, and what it tells.
struct Leaf {
    parts: Arc<Parts>,
    node: LeafNode,
    gate: Gate,
    told: Receiver<CancelRequest>,
}

fn leaf_named(name: &str) -> Leaf {
    let (tell, told) = unbounded();
    let gate = Gate::default();
    let tell = Box::new(move |_: &_, claim| tell.send(claim).unwrap());
    let parts = telling(fixture::config(1, 16), gate.search(), name, tell);
    (0..2).for_each(|number| {
        hold(&parts, view(number, 1));
    });
    Leaf { node: LeafNode::new(parts.clone()), parts, gate, told }
}

impl Leaf {
    /// One copy of a branch; the attempts are 1 and 2, the engine's clock said `start_us`.
    fn ask(&self, attempt: u64, start_us: u64) -> canopy_proto::ReplyStream {
        let mut context = context(7, LONG);
        context.attempt = AttemptId(attempt);
        let tie = Tie { peer: "twin".into(), attempt_id: 3 - attempt, start_us };
        let request =
            SearchRequest { query_id: vec![7; 16].into(), attempt_id: attempt, tie: Some(tie), ..request(1) };
        self.node.search(context, request)
    }

    /// Something else on its one thread.
    async fn occupied(&self) -> canopy_proto::ReplyStream {
        let stream = self.node.search(context(1, LONG), request(1));
        self.gate.arrival().await;
        stream
    }

    fn tied(&self, event: &str) -> u64 {
        self.parts.metrics.tied.with_label_values(&[event]).get()
    }

    async fn told(&self) -> CancelRequest {
        let told = self.told.clone();
        tokio::task::spawn_blocking(move || told.recv_timeout(LONG).unwrap()).await.unwrap()
    }
}

#[tokio::test]
async fn the_first_to_begin_has_its_waiting_twin_dropped() {
    let (a, b) = (leaf_named("a"), leaf_named("b"));
    let busy = b.occupied().await;
    let (first, second) = (a.ask(1, 100), b.ask(2, 300));
    a.gate.arrival().await;
    let claim = a.told().await;
    let twin = claim.twin.clone().unwrap();
    assert_eq!((claim.attempt_id, twin.peer.as_str(), twin.attempt_id), (2, "a", 1));
    assert!(twin.start_us >= 100, "{twin:?}");
    assert_eq!(b.parts.executor.lane(Lane::Interactive).0, 1);
    assert_eq!(b.node.cancel(claim.clone()).await, Ok(1));
    assert_eq!(b.parts.executor.queued(), 0, "its place in the queue is free");
    let lost = outcomes(second, 1).await;
    assert_eq!(words(&lost), ["unavailable"]);
    let class = ErrorClass::Unavailable;
    assert!(class.retryable() && class.never_started(), "asked again, should the twin fail");
    assert_eq!(b.node.cancel(claim).await, Ok(0), "told twice");
    a.gate.open(1);
    b.gate.open(1);
    assert_eq!(words(&outcomes(first, 1).await), ["answered"]);
    assert_eq!(words(&outcomes(busy, 1).await), ["answered"]);
    assert_eq!((a.tied("claimed"), b.tied("dropped"), b.tied("stopped"), b.tied("duplicate")), (1, 1, 0, 0));
    assert!(b.told.is_empty(), "what never began claims nothing");
}

#[tokio::test]
async fn of_two_that_began_the_later_stops_whatever_the_order_of_their_messages() {
    for swapped in [false, true] {
        let (a, b) = (leaf_named("a"), leaf_named("b"));
        // The starts are minutes apart, so that the waits here do not matter.
        let (first, second) = (a.ask(1, 100), b.ask(2, 600_000_000));
        a.gate.arrival().await;
        b.gate.arrival().await;
        let (from_a, from_b) = (a.told().await, b.told().await);
        if swapped {
            assert_eq!(a.node.cancel(from_b).await, Ok(0));
            assert_eq!(b.node.cancel(from_a).await, Ok(1));
        } else {
            assert_eq!(b.node.cancel(from_a).await, Ok(1));
            assert_eq!(a.node.cancel(from_b).await, Ok(0));
        }
        let lost = outcomes(second, 1).await;
        assert_eq!((words(&lost), lost[0].error_class), (vec!["failed"], ErrorClass::Cancelled as u32));
        a.gate.open(1);
        b.gate.open(1);
        assert_eq!(words(&outcomes(first, 1).await), ["answered"]);
        assert_eq!((b.tied("stopped"), a.tied("stopped")), (1, 0));
    }
}

#[tokio::test]
async fn a_claim_that_overtakes_its_request_drops_it_and_one_that_is_late_counts_a_duplicate() {
    let (a, b) = (leaf_named("a"), leaf_named("b"));
    let first = a.ask(1, 100);
    a.gate.arrival().await;
    let claim = a.told().await;
    assert_eq!(b.node.cancel(claim.clone()).await, Ok(0));
    assert_eq!(words(&outcomes(b.ask(2, 200), 1).await), ["unavailable"]);
    assert_eq!((b.gate.arrived(), b.tied("dropped")), (0, 1));
    a.gate.open(1);
    assert_eq!(words(&outcomes(first, 1).await), ["answered"]);
    // The twin ends before it hears of the first, which began earlier.
    let c = leaf_named("c");
    c.gate.open(1);
    assert_eq!(words(&outcomes(c.ask(2, 600_000_000), 1).await), ["answered"]);
    for _ in 0..2 {
        assert_eq!(c.node.cancel(claim.clone()).await, Ok(0));
    }
    assert_eq!(c.tied("duplicate"), 1);
    // A plain cancel is obeyed whoever began first.
    let running = a.ask(1, 100);
    a.gate.arrival().await;
    assert_eq!(a.node.cancel(CancelRequest { attempt_id: 1, ..cancel_all(7) }).await, Ok(1));
    a.gate.open(1);
    assert_eq!(words(&outcomes(running, 1).await), ["failed"]);
}

#[tokio::test]
async fn a_copy_that_can_not_answer_all_does_not_claim() {
    let a = leaf_named("a");
    a.gate.open(1);
    let mut context = context(7, LONG);
    context.attempt = AttemptId(1);
    let tie = Tie { peer: "twin".into(), attempt_id: 2, start_us: 1 };
    let request = SearchRequest { tie: Some(tie), ..request(3) };
    a.gate.open(2);
    let replies = outcomes(a.node.search(context, request), 3).await;
    assert_eq!(words(&replies), ["answered", "answered", "failed"]);
    assert!(a.told.is_empty());
}
