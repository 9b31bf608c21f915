//! The board as a state machine: what is started, kept and taken away, whatever comes in between.

use super::*;

const RETAIN: Duration = Duration::from_mins(10);

fn place(number: u32, version: u64) -> Place {
    Place { corpus: "web".into(), shard: ShardId::new("main", number), version: Some(Version(version)) }
}

fn wanted(places: &[Place]) -> BTreeSet<Place> {
    places.iter().cloned().collect()
}

fn state(board: &Board, place: &Place) -> Option<State> {
    board.lines.lock().get(place).map(|line| line.state)
}

fn serve(board: &Board, place: &Place) {
    board.update(place, |line| line.state = State::Serving);
}

#[tokio::test(start_paused = true)]
async fn a_swap_keeps_the_old_version_until_its_time_and_a_rollback_is_at_once() {
    let board = Board::default();
    let (old, new) = (place(0, 1), place(0, 2));
    board.follow(&wanted(std::slice::from_ref(&old)), Instant::now(), RETAIN);
    assert_eq!(board.start(Instant::now()), Some(old.clone()));
    assert_eq!((board.opening(), board.settled()), (1, false));
    serve(&board, &old);
    assert!(board.settled());
    board.follow(&wanted(&[old.clone(), new.clone()]), Instant::now(), RETAIN);
    assert_eq!(board.start(Instant::now()), Some(new.clone()));
    assert!(board.start(Instant::now()).is_none());
    assert!(board.settled(), "a leaf whose shards answer is ready while it opens another version");
    serve(&board, &new);
    board.follow(&wanted(std::slice::from_ref(&new)), Instant::now(), RETAIN);
    assert_eq!(state(&board, &old), Some(State::Retiring));
    tokio::time::advance(RETAIN / 2).await;
    assert!(board.retired(Instant::now()).is_empty());
    // Back.
    board.follow(&wanted(std::slice::from_ref(&old)), Instant::now(), RETAIN);
    assert_eq!((state(&board, &old), state(&board, &new)), (Some(State::Serving), Some(State::Retiring)));
    assert!(board.start(Instant::now()).is_none(), "nothing is opened for a rollback");
    tokio::time::advance(RETAIN).await;
    let gone: Vec<_> = board.retired(Instant::now()).into_iter().map(|(place, _)| place).collect();
    assert_eq!(gone, [new]);
    assert_eq!(board.due(true), None);
}

#[tokio::test(start_paused = true)]
async fn work_on_what_is_superseded_goes_on_until_it_is_noticed_and_is_taken_up_again() {
    let board = Board::default();
    let (second, third) = (place(0, 2), place(0, 3));
    board.follow(&wanted(std::slice::from_ref(&second)), Instant::now(), RETAIN);
    board.start(Instant::now());
    board.update(&second, |line| line.state = State::Verifying);
    board.follow(&wanted(std::slice::from_ref(&third)), Instant::now(), RETAIN);
    assert!(!board.wanted(&second) && state(&board, &second) == Some(State::Verifying));
    board.follow(&wanted(std::slice::from_ref(&second)), Instant::now(), RETAIN);
    assert!(board.wanted(&second), "wanted again before the work ended");
    assert_eq!(state(&board, &third), None, "nobody worked on it");
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_when_its_time_has_come() {
    let board = Board::default();
    let place = place(0, 1);
    board.want(place.clone());
    board.start(Instant::now());
    board.update(&place, |line| {
        line.state = State::Failed;
        line.last_error = "store away".into();
        line.due = Some(Instant::now() + Duration::from_secs(5));
    });
    assert!(board.start(Instant::now()).is_none() && board.settled());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(board.start(Instant::now()), Some(place.clone()));
    assert_eq!(board.lines("web", &place.shard)[0].last_error, "store away", "until it is better");
}
