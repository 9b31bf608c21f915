//! Every interleaving of two leaves and one branch, with requests and claims late, lost, twice or overtaking each other,
//! and with marks that are forgotten; searched to the end, not sampled.

use std::collections::{BTreeSet, VecDeque};

use super::*;

type Step = fn(Half, Event) -> (Half, Action);

/// Of one copy and its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Side {
    /// Its request has arrived (`None`: it is on its way) or was lost.
    request: Option<bool>,
    half: Half,
    /// It was begun and came to its end.
    answered: bool,
    /// A claim of the twin waits for it.
    mark: bool,
    /// The claim that it sent, and how often that may still arrive.
    sent: Option<(Claim, u8)>,
}

type World = [Side; 2];

/// What was seen on the way.
#[derive(Debug, Default)]
struct Seen {
    worlds: usize,
    ended: usize,
    both_begun: bool,
    stopped: bool,
    marked: bool,
    broken: Vec<World>,
}

const STARTS: [u64; 3] = [7, 8, 9];

fn begin() -> World {
    let side = Side { request: None, half: Half::Queued, answered: false, mark: false, sent: None };
    [side; 2]
}

fn act(side: &mut Side, action: Action, seen: &mut Seen) {
    match action {
        Action::Tell(claim) => side.sent = Some((claim, 2)),
        Action::Stop => {
            seen.stopped = true;
            side.answered = false;
        }
        Action::Drop | Action::Nothing => {}
    }
}

/// Everything that can happen next to one side.
fn successors(world: &World, at: usize, step: Step, seen: &mut Seen) -> Vec<World> {
    let mut next = Vec::new();
    let own = AttemptId(at as u64 + 1);
    let side = world[at];
    let mut to = |change: &mut dyn FnMut(&mut Side, &mut Side, &mut Seen)| {
        let mut world = *world;
        let [first, second] = &mut world;
        let (mine, twin) = if at == 0 { (first, second) } else { (second, first) };
        change(mine, twin, seen);
        next.push(world);
    };
    let event = |mine: &mut Side, event: Event, seen: &mut Seen| {
        let before = mine.answered;
        let (half, action) = step(mine.half, event);
        mine.half = half;
        act(mine, action, seen);
        // Stopping what has ended changes nothing.
        mine.answered |= before;
    };
    if side.request.is_none() {
        to(&mut |mine, _, _| mine.request = Some(false));
        to(&mut |mine, _, seen| {
            mine.request = Some(true);
            seen.marked |= mine.mark;
            event(mine, Event::Arrives { marked: mine.mark }, seen);
        });
    }
    let here = side.request == Some(true);
    if here && side.half == Half::Queued {
        for start_us in STARTS {
            to(&mut |mine, _, seen| {
                event(mine, Event::Begins(Claim { start_us, attempt: own }), seen);
            });
        }
    }
    if matches!(side.half, Half::Begun(_)) && !side.answered {
        to(&mut |mine, _, _| mine.answered = true);
    }
    if side.mark {
        to(&mut |mine, _, _| mine.mark = false);
    }
    if let Some((claim, left)) = world[1 - at].sent.filter(|(_, left)| *left > 0) {
        to(&mut |mine, twin, seen| {
            twin.sent = Some((claim, left - 1));
            if here {
                event(mine, Event::Claimed(claim), seen);
            } else {
                mine.mark = true;
            }
        });
    }
    next
}

/// A copy is lost only to one that has begun, and a branch that reached any leaf is answered once all is quiet.
fn sound(world: &World) -> bool {
    let begun = |side: &Side| side.answered || matches!(side.half, Half::Begun(_));
    let lost = |side: &Side| side.half == Half::Lost && !side.answered;
    let lost_to = |one: usize, other: usize| !lost(&world[one]) || begun(&world[other]);
    let one_is_left = lost_to(0, 1) && lost_to(1, 0);
    let quiet = world.iter().all(|side| match (side.request, side.half) {
        (None, _) | (Some(true), Half::Queued) => false,
        (Some(false), _) | (_, Half::Lost) => true,
        (Some(true), Half::Begun(_)) => side.answered,
    });
    let reached = world.iter().any(|side| side.request == Some(true));
    one_is_left && (!quiet || !reached || world.iter().any(|side| side.answered))
}

fn explore(step: Step) -> Seen {
    let mut seen = Seen::default();
    let mut known = BTreeSet::from([begin()]);
    let mut open = VecDeque::from([begin()]);
    while let Some(world) = open.pop_front() {
        seen.worlds += 1;
        seen.both_begun |= world.iter().all(|side| matches!(side.half, Half::Begun(_)));
        if !sound(&world) {
            seen.broken.push(world);
            continue;
        }
        let mut next = successors(&world, 0, step, &mut seen);
        next.extend(successors(&world, 1, step, &mut seen));
        seen.ended += usize::from(next.is_empty());
        open.extend(next.into_iter().filter(|world| known.insert(*world)));
    }
    seen
}

#[test]
fn in_every_interleaving_the_branch_is_answered_and_at_most_one_copy_is_lost() {
    let seen = explore(Half::on);
    assert_eq!(seen.broken.first(), None, "{} of {} worlds", seen.broken.len(), seen.worlds);
    assert!(seen.worlds > 500 && seen.ended > 0, "{seen:?}");
    assert!(seen.both_begun && seen.stopped && seen.marked, "the hard cases were met: {seen:?}");
}

#[test]
fn the_search_finds_what_is_wrong_with_simpler_rules() {
    // Whoever is told stops, whatever the order.
    let obedient: Step = |half, event| match (half, event) {
        (Half::Begun(_), Event::Claimed(_)) => (Half::Lost, Action::Stop),
        _ => half.on(event),
    };
    assert!(!explore(obedient).broken.is_empty(), "both stop");
    // Ordered by start alone, and the tie goes to the twin.
    let polite: Step = |half, event| match (half, event) {
        (Half::Begun(mine), Event::Claimed(twin)) if twin.start_us <= mine.start_us => {
            (Half::Lost, Action::Stop)
        }
        _ => half.on(event),
    };
    assert!(!explore(polite).broken.is_empty(), "both stop when they begin at once");
    // Claims before the search begins.
    let eager: Step = |half, event| match (half, event) {
        (Half::Queued, Event::Arrives { marked: false }) => {
            (Half::Queued, Action::Tell(Claim { start_us: 0, attempt: AttemptId(0) }))
        }
        _ => half.on(event),
    };
    assert!(!explore(eager).broken.is_empty(), "both are dropped");
}

#[test]
fn two_that_begin_at_once_are_told_apart_by_their_attempts() {
    let claim = |start_us, attempt| Claim { start_us, attempt: AttemptId(attempt) };
    let table = [
        (Half::Queued, claim(9, 9), (Half::Lost, Action::Drop)),
        (Half::Begun(claim(5, 1)), claim(4, 2), (Half::Lost, Action::Stop)),
        (Half::Begun(claim(5, 1)), claim(5, 2), (Half::Begun(claim(5, 1)), Action::Nothing)),
        (Half::Begun(claim(5, 2)), claim(5, 1), (Half::Lost, Action::Stop)),
        (Half::Lost, claim(1, 1), (Half::Lost, Action::Nothing)),
    ];
    for (half, twin, expected) in table {
        assert_eq!(half.on(Event::Claimed(twin)), expected, "{half:?} {twin:?}");
    }
}
