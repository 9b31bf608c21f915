//! Who gets a place, and that none is lost.

use futures::FutureExt;

use super::*;
use crate::{limit::Bounds, rng::Dice};

const LONG: Duration = Duration::from_mins(1);

fn gate(places: u32, most: usize, patience: Duration) -> Arc<Gate> {
    Arc::new(Gate::new(Admission::new(Bounds { min: places, max: places }), most, patience))
}

fn ask(
    gate: &Arc<Gate>,
    priority: Priority,
) -> std::pin::Pin<Box<impl Future<Output = Result<Pass, Refusal>> + use<>>> {
    let gate = gate.clone();
    Box::pin(async move { gate.enter(priority, Deadline::after(LONG)).await })
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_go_by_priority_then_by_age() {
    let gate = gate(1, 2, LONG);
    let first = ask(&gate, Priority::Batch).await.ok().unwrap();
    let (mut batch, mut old, mut new) =
        (ask(&gate, Priority::Batch), ask(&gate, Priority::Interactive), ask(&gate, Priority::Interactive));
    for waiter in [&mut batch, &mut old, &mut new] {
        assert!(waiter.now_or_never_ref().is_none());
    }
    assert_eq!(ask(&gate, Priority::Interactive).await.err(), Some(Refusal::Full(1)), "the queue is full");
    first.ended();
    let second = old.now_or_never_ref().unwrap().ok().unwrap();
    assert!(batch.now_or_never_ref().is_none() && new.now_or_never_ref().is_none());
    drop(second);
    drop(new.now_or_never_ref().unwrap());
    drop(batch.now_or_never_ref().unwrap());
    assert_eq!((gate.waiting(), gate.admission().in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_on_arrival_and_the_others_go_by_age() {
    let gate = gate(1, 9, Duration::from_millis(400));
    let mut running = ask(&gate, Priority::Interactive).await.ok().unwrap();
    tokio::time::advance(Duration::from_millis(100)).await;
    drop(running);
    running = ask(&gate, Priority::Interactive).await.ok().unwrap();
    let (mut old, mut new) = (ask(&gate, Priority::Interactive), ask(&gate, Priority::Interactive));
    assert!(old.now_or_never_ref().is_none() && new.now_or_never_ref().is_none());
    // Places come every 100 ms: two are served within half of the patience, the third would not be.
    assert_eq!(ask(&gate, Priority::Interactive).now_or_never_ref().unwrap().err(), Some(Refusal::Full(1)));
    tokio::time::advance(Duration::from_millis(200)).await;
    drop(running);
    let pass = old.now_or_never_ref().unwrap().ok().unwrap();
    // The pace fell: the other one waits as long as is agreed, and no longer.
    tokio::time::advance(Duration::from_millis(199)).await;
    assert!(new.now_or_never_ref().is_none());
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(new.await.err(), Some(Refusal::Full(1)));
    drop(pass);
    assert_eq!((gate.waiting(), gate.admission().in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn batch_does_not_wait_behind_a_queue_that_takes_its_time() {
    let gate = gate(2, 9, Duration::from_millis(400));
    let slow = ask(&gate, Priority::Interactive).await.ok().unwrap();
    tokio::time::advance(Duration::from_millis(150)).await;
    drop(slow);
    let _running = (ask(&gate, Priority::Interactive).await, ask(&gate, Priority::Interactive).await);
    let mut waiting: Vec<_> = (0..2).map(|_| ask(&gate, Priority::Interactive)).collect();
    assert!(waiting.iter_mut().all(|call| call.now_or_never_ref().is_none()));
    let refused = |priority| ask(&gate, priority).now_or_never_ref().is_some();
    assert!(refused(Priority::Batch) && refused(Priority::Interactive));
}

#[tokio::test(start_paused = true)]
async fn no_place_is_lost_however_callers_come_and_go() {
    let dice = Dice::seeded(3);
    let gate = gate(3, 5, Duration::from_millis(7));
    let (mut waiting, mut running) = (Vec::new(), Vec::new());
    for _ in 0..4000 {
        let at = dice.below(6) as usize;
        match dice.below(5) {
            0 | 1 => waiting.push(ask(&gate, [Priority::Interactive, Priority::Batch][at % 2])),
            2 if at < waiting.len() => drop(waiting.swap_remove(at)),
            3 if at < running.len() => Pass::ended(running.swap_remove(at)),
            _ => tokio::time::advance(Duration::from_millis(dice.below(3))).await,
        }
        waiting.retain_mut(|call| match call.now_or_never_ref() {
            Some(Ok(pass)) => {
                running.push(pass);
                false
            }
            Some(Err(_)) => false,
            None => true,
        });
        assert!(running.len() <= 3 && gate.admission().in_flight() <= 3);
    }
    drop(waiting);
    drop(running);
    assert_eq!((gate.waiting(), gate.admission().in_flight()), (0, 0));
    assert!(ask(&gate, Priority::Batch).await.is_ok());
}

/// Polls once without taking the future.
trait NowOrNever: Future + Unpin + Sized {
    fn now_or_never_ref(&mut self) -> Option<Self::Output> {
        self.now_or_never()
    }
}

impl<F: Future + Unpin> NowOrNever for F {}
