//! More than the leaf can do: what is refused before work, how fast, and what is given back.

use super::*;
use crate::executor::Class;

fn refused(parts: &crate::node::Parts, reason: &str) -> u64 {
    parts.metrics.refused.with_label_values(&[reason]).get()
}

#[tokio::test]
async fn what_can_hardly_be_in_time_is_refused_unless_a_thread_is_idle() {
    let gate = Gate::default();
    let (parts, node) = leaf(fixture::config(1, 16), 1, gate.search());
    for _ in 0..40 {
        parts.executor.times().record(Class::Page, Duration::from_secs(10));
    }
    let (short, _still) = (Duration::from_secs(5), Still::hold());
    let tried = node.search(context(1, short), request(1));
    gate.arrival().await;
    let mut late = node.search(context(2, short), request(1));
    let reply: SearchReply = late.next().await.unwrap().unwrap();
    assert_eq!(words(&reply.shards), ["shed"]);
    assert!(reply.shards[0].reason.contains("most calls here take"), "{}", reply.shards[0].reason);
    let report = reply.call.unwrap();
    assert!(report.pushback_ms >= 1 && report.in_flight == 1, "{report:?}");
    assert_eq!((refused(&parts, "too_late"), parts.metrics.shed.get()), (1, 1));
    // Another class knows nothing of it yet.
    let mut sorted = request(1);
    sorted.sort = vec![canopy_proto::v1::SortBy::default()];
    let whole = node.search(context(3, short), sorted);
    gate.open(2);
    assert_eq!(words(&outcomes(tried, 1).await), ["answered"]);
    assert_eq!(words(&outcomes(whole, 1).await), ["answered"]);
}

#[tokio::test]
async fn beyond_the_limit_refusals_wait_for_nothing() {
    let gate = Gate::default();
    let mut config = fixture::config(1, 1000);
    config.min_in_flight = 2;
    let (parts, node) = leaf(config, 1, gate.search());
    let most = parts.admission.limit();
    let held: Vec<_> = (0..most).map(|n| node.search(context(n as u8, LONG), request(1))).collect();
    gate.arrival().await;
    for n in 0..200 {
        let mut stream = node.search(context(n, LONG), request(1));
        let reply = stream.next().now_or_never().expect("at once").unwrap().unwrap();
        assert_eq!(words(&reply.shards), ["shed"]);
    }
    assert_eq!(refused(&parts, "limit"), 200);
    assert_eq!(parts.admission.in_flight(), most);
    gate.open(held.len() + 1);
    for stream in held {
        assert_eq!(words(&outcomes(stream, 1).await), ["answered"]);
    }
    assert_eq!(parts.admission.in_flight(), 0);
    assert!(node.search(context(1, LONG), request(1)).next().await.is_some());
}

#[tokio::test]
async fn a_queue_that_stands_gives_back_what_waited_long_and_serves_the_newest() {
    let gate = Gate::default();
    let mut config = fixture::config(1, 16);
    config.shed_after = canopy_common::config::Time::ms(20);
    let (parts, node) = leaf(config, 1, gate.search());
    let _still = Still::hold();
    let running = node.search(context(1, LONG), request(1));
    gate.arrival().await;
    let old: Vec<_> = (2..5).map(|n| node.search(context(n, LONG), request(1))).collect();
    tokio::time::advance(Duration::from_millis(150)).await;
    let new = node.search(context(5, LONG), request(1));
    gate.open(2);
    assert_eq!(words(&outcomes(running, 1).await), ["answered"]);
    for stream in old {
        let mut stream = stream;
        let reply = stream.next().await.unwrap().unwrap();
        assert_eq!(words(&reply.shards), ["shed"]);
        assert!(reply.call.unwrap().pushback_ms >= 1);
    }
    assert_eq!(words(&outcomes(new, 1).await), ["answered"]);
    assert_eq!(refused(&parts, "waited"), 3);
    assert_eq!((parts.metrics.in_flight.get(), parts.admission.in_flight()), (0, 0));
}

#[tokio::test]
async fn a_burst_that_never_stops_keeps_the_goodput() {
    // The work is counted, not timed: a thread that is not idle answers one search per opening of the gate.
    let gate = Gate::default();
    let mut config = fixture::config(1, 8);
    config.min_in_flight = 4;
    let (parts, node) = leaf(config, 1, gate.search());
    let (mut waiting, mut answered, mut shed) = (Vec::new(), 0, 0);
    for round in 0..100_u64 {
        for n in 0..3 {
            let mut context = context(0, LONG);
            context.query = QueryId([n; 16]);
            context.attempt = AttemptId(round);
            waiting.push(node.search(context, request(1)));
        }
        gate.arrival().await;
        gate.open(1);
        for mut stream in std::mem::take(&mut waiting) {
            match futures::FutureExt::now_or_never(stream.next()) {
                Some(Some(Ok(reply))) if words(&reply.shards) == ["answered"] => answered += 1,
                Some(Some(Ok(_))) => shed += 1,
                Some(_) => panic!("a stream ended without a word"),
                None => waiting.push(stream),
            }
        }
    }
    gate.open(waiting.len());
    for stream in waiting {
        answered += usize::from(words(&outcomes(stream, 1).await) == ["answered"]);
    }
    assert!(answered >= 100, "one for every round: {answered}");
    assert!(shed + answered >= 290, "{answered} answered, {shed} refused");
    assert_eq!((parts.metrics.in_flight.get(), parts.admission.in_flight()), (0, 0));
}
