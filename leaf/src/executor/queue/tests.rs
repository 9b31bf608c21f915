//! Who goes next, who is given back, and that nobody is told twice.

use std::sync::Arc;

use super::*;

type Told = Arc<Mutex<Vec<(u64, Turn)>>>;

fn task(told: &Told, owner: u64, lane: Lane, budget: Duration) -> Task {
    let told = told.clone();
    Task {
        lane,
        deadline: Deadline::after(budget),
        owner,
        run: Box::new(move |turn| told.lock().push((owner, turn))),
    }
}

fn queue(interactive: usize, batch: usize) -> Queue {
    Queue::new(Room { interactive, batch, shed_after: SHED }, 1)
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

fn next(queue: &Queue) -> (u64, Turn) {
    let (task, turn) = queue.pop().unwrap();
    (task.owner, turn)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const LONG: Duration = Duration::from_mins(1);
/// Bears 60 ms, is given back after [`SHED`].
const OWN: Duration = Duration::from_millis(240);
const SHED: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn urgent_lanes_go_first_and_a_full_lane_refuses() {
    let told = Told::default();
    let queue = queue(2, 1);
    assert_eq!(queue.push(vec![task(&told, 1, Lane::Batch, LONG), task(&told, 2, Lane::Batch, LONG)]), 1);
    let three = (3..6).map(|owner| task(&told, owner, Lane::Interactive, LONG)).collect();
    assert_eq!(queue.push(three), 2, "part of a call may be queued");
    assert_eq!(queue.push(vec![task(&told, 6, Lane::Interactive, LONG)]), 0);
    assert_eq!(queue.push(vec![task(&told, 7, Lane::Probe, LONG)]), 1);
    let order: Vec<u64> = (0..4).map(|_| next(&queue).0).collect();
    assert_eq!(order, [7, 3, 4, 1]);
    assert!(told.lock().is_empty(), "nothing ran by itself");
}

#[tokio::test(start_paused = true)]
async fn what_expired_in_the_queue_is_never_run() {
    let told = Told::default();
    let queue = queue(1, 1);
    queue.push(vec![task(&told, 1, Lane::Interactive, ms(50))]);
    pass(200).await;
    assert_eq!(queue.push(vec![task(&told, 2, Lane::Interactive, ms(50))]), 1);
    assert_eq!(*told.lock(), [(1, Turn::Expired(ms(200)))]);
    pass(50).await;
    assert_eq!(next(&queue), (2, Turn::Expired(ms(50))));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_stands_serves_the_newest_and_gives_the_oldest_back() {
    let told = Told::default();
    let queue = queue(9, 9);
    let push = |owner| queue.push(vec![task(&told, owner, Lane::Interactive, OWN)]);
    push(1);
    push(2);
    pass(61).await;
    push(3);
    pass(29).await;
    assert_eq!(next(&queue), (1, Turn::Run(ms(90))), "a burst is served in its order");
    pass(35).await;
    push(4);
    push(5);
    assert_eq!(next(&queue), (2, Turn::Shed(ms(125))), "it has stood for 100 ms");
    assert_eq!(queue.lane(Lane::Interactive), (3, true));
    assert_eq!(next(&queue), (5, Turn::Run(ms(0))));
    assert_eq!(next(&queue), (4, Turn::Run(ms(0))));
    assert_eq!(next(&queue), (3, Turn::Run(ms(64))), "as few as there are threads");
    push(6);
    push(7);
    assert_eq!(next(&queue), (6, Turn::Run(ms(0))), "empty in between: no pressure");
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_on_arrival() {
    let told = Told::default();
    let queue = queue(9, 9);
    let push = |lane, budget| queue.push(vec![task(&told, 1, lane, budget)]);
    queue.pace.ran(ms(50));
    assert_eq!(
        (push(Lane::Interactive, OWN), push(Lane::Interactive, OWN)),
        (1, 1),
        "one may wait for each thread"
    );
    assert_eq!(queue.wait(Lane::Interactive), ms(100));
    assert_eq!(push(Lane::Interactive, OWN), 0, "a quarter of 240 ms is less");
    assert_eq!(push(Lane::Interactive, LONG), 1, "who has the time may wait");
    assert_eq!(push(Lane::Interactive, LONG), 0);
    assert_eq!((push(Lane::Batch, OWN), push(Lane::Fetch, OWN)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn batch_may_wait_half_of_its_time_and_fetches_are_never_given_back() {
    let told = Told::default();
    let queue = queue(9, 9);
    for owner in [1, 2, 3] {
        queue.push(vec![task(&told, owner, Lane::Batch, ms(1000))]);
        queue.push(vec![task(&told, owner + 10, Lane::Fetch, ms(1000))]);
    }
    pass(450).await;
    assert_eq!(next(&queue), (11, Turn::Run(ms(450))));
    assert_eq!(next(&queue), (12, Turn::Run(ms(450))));
    assert_eq!(next(&queue), (13, Turn::Run(ms(450))));
    assert_eq!(next(&queue), (3, Turn::Run(ms(450))));
    pass(100).await;
    assert_eq!(next(&queue), (1, Turn::Shed(ms(550))));
    assert_eq!(next(&queue), (2, Turn::Run(ms(550))), "the last one: a thread is free");
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_that_stands_makes_room_for_the_newest() {
    let told = Told::default();
    let queue = queue(2, 1);
    queue.push(vec![task(&told, 1, Lane::Interactive, OWN), task(&told, 2, Lane::Interactive, OWN)]);
    pass(70).await;
    assert_eq!(queue.push(vec![task(&told, 3, Lane::Interactive, OWN)]), 0);
    pass(50).await;
    assert_eq!(queue.push(vec![task(&told, 4, Lane::Interactive, OWN)]), 1);
    assert_eq!(*told.lock(), [(1, Turn::Shed(ms(120))), (2, Turn::Shed(ms(120)))]);
    assert_eq!(next(&queue), (4, Turn::Run(ms(0))));
}

#[tokio::test(start_paused = true)]
async fn an_owner_takes_its_tasks_out_and_a_closed_queue_tells() {
    let told = Told::default();
    let queue = queue(9, 9);
    queue.push(vec![task(&told, 1, Lane::Interactive, LONG), task(&told, 1, Lane::Interactive, LONG)]);
    queue.push(vec![task(&told, 2, Lane::Interactive, LONG)]);
    assert_eq!((queue.remove(1), queue.len()), (2, 1));
    queue.close();
    assert_eq!(queue.push(vec![task(&told, 3, Lane::Probe, LONG)]), 0);
    assert_eq!(queue.pop().map(|(_, turn)| turn), Some(Turn::Closed));
    assert!(queue.pop().is_none());
}

/// One thread that needs `SERVICE` per task, tasks every `gap` for `lasts`: (in time, late, arrived).
async fn serve(queue: &Queue, gap: Duration, lasts: Duration, free: &mut Instant) -> (u32, u32, u32) {
    const SERVICE: Duration = Duration::from_millis(10);
    const BUDGET: Duration = Duration::from_millis(100);
    let (told, start) = (Told::default(), Instant::now());
    let (mut good, mut late, mut arrived, mut due) = (0, 0, 0, start);
    loop {
        let now = Instant::now();
        if now >= start + lasts {
            return (good, late, arrived);
        }
        if now >= due {
            arrived += 1;
            due += gap;
            queue.push(vec![task(&told, 1, Lane::Interactive, BUDGET)]);
        }
        while now >= *free && !queue.is_empty() {
            if let (_, Turn::Run(waited)) = next(queue) {
                queue.pace.ran(SERVICE);
                *free = now + SERVICE;
                if waited + SERVICE <= BUDGET { good += 1 } else { late += 1 }
            }
        }
        let wake = if *free > now { due.min(*free) } else { due };
        tokio::time::advance(wake - now).await;
    }
}

#[tokio::test(start_paused = true)]
async fn under_three_times_the_load_the_thread_does_useful_work_and_recovers_at_once() {
    let queue = queue(256, 1);
    let mut free = Instant::now();
    let (good, late, arrived) = serve(&queue, Duration::from_micros(3333), ms(10_000), &mut free).await;
    // 1,000 is what one thread can do in ten seconds.
    assert!(good >= 950 && arrived > 2900, "{good} in time, {late} late, of {arrived}");
    let (good, late, arrived) = serve(&queue, ms(20), ms(1000), &mut free).await;
    assert!(good >= arrived - 1 && late <= 10, "{good} in time, {late} late, of {arrived} after the burst");
}
