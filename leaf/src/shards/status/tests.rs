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
    assert_eq!(board.start(Instant::now()), Some((old.clone(), State::Wanted)));
    assert_eq!((board.opening(), board.settled()), (1, false));
    serve(&board, &old);
    assert!(board.settled());
    board.follow(&wanted(&[old.clone(), new.clone()]), Instant::now(), RETAIN);
    assert_eq!(board.start(Instant::now()), Some((new.clone(), State::Wanted)));
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
    assert_eq!(board.start(Instant::now()), Some((place.clone(), State::Failed)));
    assert_eq!(board.lines("web", &place.shard)[0].last_error, "store away", "until it is better");
}

fn entry(number: u32, resident_bytes: u64) -> ShardEntry {
    let (files, tokens) = (Vec::new(), [].into());
    ShardEntry { shard: ShardId::new("main", number), documents: 1, files, bytes: 9, tokens, resident_bytes }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_begin_at_once_one_gets_the_last_room_and_gives_it_back_when_it_fails() {
    let board = Board::default();
    let (first, second) = (place(0, 1), place(1, 1));
    board.follow(&wanted(&[first.clone(), second.clone()]), Instant::now(), RETAIN);
    while board.start(Instant::now()).is_some() {}
    let limits = Amounts { memory: 100, handles: 9, mappings: 9 };
    board.reserve(&first, Version(1), &entry(0, 60), &limits).unwrap();
    let error = board.reserve(&second, Version(1), &entry(1, 60), &limits).unwrap_err().to_string();
    assert!(error.contains("needs 60 bytes and 40 bytes are free"), "{error}");
    board.reserve(&first, Version(1), &entry(0, 60), &limits).expect("it does not stand in its own way");
    board.begin_anew(&first);
    assert_eq!(state(&board, &first), Some(State::Wanted));
    board.reserve(&second, Version(1), &entry(1, 60), &limits).unwrap();
    serve(&board, &second);
    board.follow(&wanted(std::slice::from_ref(&first)), Instant::now(), RETAIN);
    assert_eq!(board.going(), (60, 9), "what answers on for a while has its room until it goes");
    assert!(board.reserve(&first, Version(1), &entry(0, 60), &limits).is_err());
    assert_eq!(board.retired_if(|_, _| true).len(), 1);
    board.reserve(&first, Version(1), &entry(0, 60), &limits).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_quarantined_is_looked_at_again_when_its_time_has_come() {
    let board = Board::default();
    let place = place(0, 1);
    board.want(place.clone());
    board.start(Instant::now());
    board.update(&place, |line| {
        line.state = State::Quarantined;
        line.due = Some(Instant::now() + RETAIN);
    });
    assert!(board.start(Instant::now()).is_none() && board.settled());
    tokio::time::advance(RETAIN).await;
    assert_eq!(board.start(Instant::now()), Some((place, State::Quarantined)));
}

#[tokio::test(start_paused = true)]
async fn what_comes_damaged_is_fetched_a_few_times_and_anew_when_it_is_wanted_anew() {
    let board = Board::default();
    let damaged = place(0, 1);
    let want = wanted(std::slice::from_ref(&damaged));
    for round in 0..2 {
        board.follow(&want, Instant::now(), RETAIN);
        let (mut fetched, mut due) = (0, None);
        while board.start(Instant::now()).is_some() {
            fetched += 1;
            due = board.came_damaged(&damaged).map(|pause| Instant::now() + pause);
            board.update(&damaged, |line| {
                line.state = State::Failed;
                line.due = due;
            });
            assert!(board.start(Instant::now()).is_none(), "not at once");
            tokio::time::advance(Duration::from_mins(2)).await;
        }
        assert_eq!((fetched, due), (4, None), "round {round}");
        tokio::time::advance(Duration::from_hours(24)).await;
        assert!(board.start(Instant::now()).is_none(), "never again by itself");
        // A rollout that is resumed wants it again.
        board.follow(&BTreeSet::new(), Instant::now(), RETAIN);
    }
}

#[tokio::test(start_paused = true)]
async fn what_breaks_while_it_is_wanted_no_more_goes_when_its_time_has_come() {
    let board = Board::default();
    let (old, new) = (place(0, 1), place(0, 2));
    board.follow(&wanted(std::slice::from_ref(&old)), Instant::now(), RETAIN);
    board.start(Instant::now());
    serve(&board, &old);
    board.follow(&wanted(std::slice::from_ref(&new)), Instant::now(), RETAIN);
    let due = Instant::now() + Duration::from_secs(5);
    board.update(&old, |line| (line.state, line.due) = (State::Quarantined, Some(due)));
    assert_eq!(board.due(false), Some(due));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(board.start(Instant::now()), Some((new, State::Wanted)), "it is not fetched again");
    let gone: Vec<_> = board.retired(Instant::now()).into_iter().map(|(place, _)| place).collect();
    assert_eq!((gone, board.due(true)), (vec![old], None), "nobody looks for it again and again");
}
