//! Choices over worlds of a few replicas with scripted calls, under paused time.

use std::time::Duration;

use canopy_topology::{
    config::Role,
    routing::{Last, Node},
};
use tokio::time::Instant;

use super::*;
use crate::{
    breaker::standing::Standing,
    load::{Ending, InFlight},
    pace::{Clock, Pace},
};

struct World {
    loads: Loads,
    picker: Picker,
    routing: RoutingSnapshot,
    nodes: Vec<NodeId>,
}

fn picker(strategy: Strategy, seed: u64) -> Picker {
    let metrics = PickMetrics::new("root", &prometheus::Registry::new());
    Picker::new("root".into(), strategy, Dice::seeded(seed), metrics)
}

/// Leaves, each in the zone given; the caller is in the first one's.
fn zoned(zones: &[&str], strategy: Strategy) -> World {
    let node =
        |role, zone: &str| Node { role, address: String::new(), admin: String::new(), zone: zone.to_owned() };
    let nodes: Vec<NodeId> = (0..zones.len()).map(|n| NodeId::from(format!("leaf-{n}").as_str())).collect();
    let leaves = nodes.iter().zip(zones).map(|(id, zone)| (id.clone(), node(Role::Leaf, zone)));
    let root = ("root".into(), node(Role::Root, zones[0]));
    let routing = RoutingSnapshot { nodes: leaves.chain([root]).collect(), ..Default::default() };
    World {
        loads: Loads::new(Dice::seeded(2), Clock::new(Pace::default())),
        picker: picker(strategy, 1),
        routing,
        nodes,
    }
}

fn world(count: usize, strategy: Strategy) -> World {
    zoned(&vec![""; count], strategy)
}

impl World {
    fn choice(&self, through: Through, tried: &[u16], key: Option<u64>) -> Option<Choice> {
        let choosing = Choosing {
            routing: &self.routing,
            candidates: &self.nodes,
            through,
            tried,
            key,
            purpose: if tried.is_empty() { Purpose::First } else { Purpose::Needed },
        };
        self.picker.choose(&self.loads, &choosing)
    }

    fn choose(&self, through: Through, tried: &[u16], key: Option<u64>) -> Option<usize> {
        self.choice(through, tried, key).map(|choice| usize::from(choice.at))
    }

    fn leaf(&self, key: Option<u64>) -> usize {
        self.choose(Through::Leaf, &[], key).unwrap()
    }

    fn call(&self, at: usize) -> InFlight {
        InFlight::begin(self.loads.of(&self.nodes[at]))
    }

    /// A call to it that was answered after that time.
    async fn answered(&self, at: usize, took: u64) {
        let call = self.call(at);
        tokio::time::advance(Duration::from_millis(took)).await;
        call.ended(Ending::Answered, Duration::from_secs(1));
    }

    /// How often each is chosen in so many choices without calls.
    fn shares(&self, choices: usize) -> Vec<usize> {
        let mut shares = vec![0; self.nodes.len()];
        (0..choices).for_each(|_| shares[self.leaf(None)] += 1);
        shares
    }
}

const ALL: [Strategy; 6] = [
    Strategy::Adaptive,
    Strategy::Random,
    Strategy::Affinity,
    Strategy::RoundRobin,
    Strategy::LeastOutstanding,
    Strategy::PowerOfTwo,
];

#[tokio::test(start_paused = true)]
async fn what_was_tried_is_never_chosen_again() {
    for strategy in ALL {
        let world = world(4, strategy);
        for key in [None, Some(7)] {
            let mut tried = vec![];
            while let Some(next) = world.choose(Through::Leaf, &tried, key) {
                assert!(!tried.contains(&(next as u16)));
                tried.push(next as u16);
            }
            assert_eq!(tried.len(), 4, "{strategy:?}");
        }
        let nothing = World { nodes: vec![], ..world };
        assert_eq!(nothing.choose(Through::Leaf, &[], None), None);
    }
}

#[tokio::test(start_paused = true)]
async fn whom_the_service_thinks_ill_of_is_asked_where_no_other_answers() {
    for strategy in ALL {
        let mut world = world(3, strategy);
        let last = |world: &mut World, of: &[(usize, Last)]| {
            world.routing.last = of.iter().map(|(at, why)| (world.nodes[*at].clone(), *why)).collect();
        };
        last(&mut world, &[(0, Last::Faulty), (2, Last::Leaving)]);
        for key in [None, Some(7)] {
            // Half of the set stays in use, and who leaves brings nothing.
            assert!((0..50).all(|_| world.choose(Through::Leaf, &[], key) != Some(2)), "{strategy:?}");
            assert_eq!(world.choose(Through::Leaf, &[0, 1], key), Some(2), "{strategy:?}");
        }
        last(&mut world, &[(0, Last::Faulty)]);
        assert_eq!(world.shares(200)[0], 0, "{strategy:?}");
        assert_eq!(world.choose(Through::Leaf, &[1, 2], None), Some(0), "{strategy:?}");
        // Of all it says nothing.
        last(&mut world, &[(0, Last::Faulty), (1, Last::Faulty), (2, Last::Faulty)]);
        assert!(world.shares(200).iter().all(|share| *share > 0), "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_spreads_over_equal_replicas() {
    for strategy in ALL {
        let world = world(3, strategy);
        let calls: Vec<InFlight> = (0..300).map(|n| world.call(world.leaf(Some(n)))).collect();
        let busiest = world.nodes.iter().map(|node| world.loads.of(node).in_flight()).max().unwrap();
        let fair = if strategy == Strategy::Random { 130 } else { 126 };
        assert!(busiest <= fair, "{strategy:?}: {busiest}");
        drop(calls);
    }
}

#[tokio::test(start_paused = true)]
async fn each_strategy_looks_at_what_it_says() {
    let rotation = world(3, Strategy::RoundRobin);
    let first: Vec<usize> = (0..3).map(|_| rotation.leaf(None)).collect();
    let second: Vec<usize> = (0..3).map(|_| rotation.leaf(None)).collect();
    assert_eq!(first, second);

    for strategy in [Strategy::LeastOutstanding, Strategy::PowerOfTwo] {
        let world = world(2, strategy);
        let _call = world.call(1);
        assert_eq!(world.shares(20), [20, 0], "{strategy:?}");
    }
    let random = world(2, Strategy::Random);
    let _call = random.call(1);
    assert!(random.shares(200)[1] > 60);
}

#[tokio::test(start_paused = true)]
async fn the_cheaper_of_two_is_chosen_and_equals_are_drawn_by_lot() {
    let world = world(2, Strategy::Adaptive);
    world.answered(0, 8).await;
    world.answered(1, 8).await;
    let even = world.shares(400);
    assert!(even[0] > 150 && even[1] > 150, "{even:?}");
    let call = world.call(0);
    assert_eq!(world.shares(20), [0, 20]);
    drop(call);
    world.answered(1, 80).await;
    assert_eq!(world.shares(20), [20, 0]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(world.shares(100)[1] > 20, "an old measurement does not shut it out");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_fails_at_once_is_not_fast() {
    let world = world(3, Strategy::Adaptive);
    let mut failing = 0;
    for _ in 0..400 {
        let at = world.leaf(None);
        let call = world.call(at);
        tokio::time::advance(Duration::from_millis(if at == 0 { 1 } else { 20 })).await;
        let ending = if at == 0 { Ending::Lost } else { Ending::Answered };
        call.ended(ending, Duration::from_millis(300));
        failing += usize::from(at == 0);
    }
    assert!(failing < 20, "{failing} of 400");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_serves_the_dear_queries_is_not_called_slow() {
    for (mixed, expected) in [(true, Standing::Healthy), (false, Standing::SubHealthy)] {
        let world = world(3, Strategy::Adaptive);
        for _ in 0..400 {
            for at in 0..3 {
                // A session with dear queries has found its home.
                let took = if at == 2 { 90 } else { 10 };
                let usual = if mixed { took } else { 10 };
                let call = world.call(at).usually(Some(Duration::from_millis(usual)));
                tokio::time::advance(Duration::from_millis(took)).await;
                call.ended(Ending::Answered, Duration::from_secs(1));
            }
            world.leaf(None);
        }
        assert_eq!(world.loads.of(&world.nodes[2]).standing(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_replica_gets_at_most_its_share() {
    let mut world = world(2, Strategy::Adaptive);
    for _ in 0..400 {
        let at = world.leaf(None);
        world.answered(at, 30).await;
    }
    world.nodes.push("leaf-new".into());
    // Idle and unmeasured beside two that are busy: every choice would be its own.
    let _calls: Vec<InFlight> = (0..4).map(|n| world.call(n % 2)).collect();
    let shares = world.shares(300);
    assert!(shares[2] <= 100 && shares[2] >= 30, "{shares:?}");
}

/// How often each of four replicas was asked in the last 1,500 of so many queries, at 50 a second; `takes`: milliseconds of a call
/// to a replica that was called so often in the last five seconds. Before the last 1,500 the budget refuses every copy.
async fn asked(queries: usize, takes: impl Fn(usize, usize) -> u64) -> Vec<usize> {
    let world = world(4, Strategy::Adaptive);
    let mut asked = vec![0; 4];
    let mut calls = [const { Vec::<Instant>::new() }; 4];
    for left in (0..queries).rev() {
        let choice = world.choice(Through::Leaf, &[], None).unwrap();
        let copied = choice.shadow.filter(|_| left < 1500).map(|shadow| usize::from(shadow.at));
        let copied = copied.map(|at| (at, world.loads.of(&world.nodes[at])));
        if let Some((_, load)) = &copied {
            load.copied(Instant::now());
        }
        asked[usize::from(choice.at)] += usize::from(left < 1500);
        for at in [Some(usize::from(choice.at)), copied.as_ref().map(|(at, _)| *at)].into_iter().flatten() {
            calls[at].retain(|call| call.elapsed() < Duration::from_secs(5));
            world.answered(at, takes(at, calls[at].len())).await;
            calls[at].push(Instant::now());
        }
        if let Some((_, load)) = &copied {
            load.shadow_ended();
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    asked
}

/// The last of the four is slow until it has been called eight times in five seconds.
fn cold(at: usize, called: usize) -> u64 {
    if at == 3 && called < 8 { 60 } else { 10 }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_slow_because_it_was_not_asked_is_asked() {
    let asked = asked(1500, cold).await;
    assert!((225..=525).contains(&asked[3]), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn copies_that_the_budget_refuses_do_not_make_a_cold_replica_a_slow_one() {
    let asked = asked(4000, cold).await;
    assert!((225..=525).contains(&asked[3]), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_slow_is_asked_seldom() {
    let asked = asked(1500, |at, _| if at == 3 { 60 } else { 10 }).await;
    assert!(asked[3] < 30, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_until_its_replica_has_too_much_to_do() {
    for strategy in [Strategy::Adaptive, Strategy::Affinity] {
        let world = world(3, strategy);
        let homes: Vec<usize> = (0..64).map(|key| world.leaf(Some(key))).collect();
        for at in 0..3 {
            assert!(homes.iter().filter(|home| **home == at).count() > 8, "{homes:?}");
        }
        assert_eq!(homes, (0..64).map(|key| world.leaf(Some(key))).collect::<Vec<_>>());
        // One key is all the traffic.
        let calls: Vec<InFlight> = (0..30).map(|_| world.call(world.leaf(Some(5)))).collect();
        let busy: Vec<u32> = world.nodes.iter().map(|node| world.loads.of(node).in_flight()).collect();
        assert!(busy.iter().all(|calls| (3..=14).contains(calls)), "{strategy:?}: {busy:?}");
        drop(calls);
        assert_eq!(world.leaf(Some(5)), homes[5]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_leaves_a_replica_that_is_much_slower() {
    let world = world(2, Strategy::Adaptive);
    let home = world.leaf(Some(5));
    world.answered(home, 90).await;
    world.answered(1 - home, 30).await;
    assert_eq!(world.leaf(Some(5)), 1 - home);
}

#[tokio::test(start_paused = true)]
async fn the_own_zone_first_until_it_is_worse() {
    for strategy in ALL {
        let world = zoned(&["a", "b", "a", "b"], strategy);
        for at in 0..4 {
            world.answered(at, 10).await;
        }
        let shares = world.shares(40);
        assert_eq!((shares[1], shares[3]), (0, 0), "{strategy:?}");
        let _calls: Vec<InFlight> = [0, 0, 2, 2].map(|at| world.call(at)).into();
        let shares = world.shares(40);
        assert_eq!((shares[0], shares[2]), (0, 0), "{strategy:?}");
        assert!(world.choose(Through::Leaf, &[0, 2], None).is_some_and(|at| at % 2 == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_replica_alone_in_its_zone_gets_at_most_its_share() {
    let mut world = zoned(&["a", "b", "b"], Strategy::Adaptive);
    let new = world.nodes.remove(0);
    for at in [0, 1].repeat(200) {
        world.choose(Through::Leaf, &[], None);
        world.answered(at, 30).await;
    }
    world.nodes.push(new);
    let shares = world.shares(300);
    assert!((30..=100).contains(&shares[2]), "{shares:?}");
    tokio::time::advance(crate::load::RAMP).await;
    assert_eq!(world.shares(100), [0, 0, 100], "then it is the nearest");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_choices() {
    let run = |seed| {
        let mut world = world(5, Strategy::Adaptive);
        world.picker = picker(Strategy::Adaptive, seed);
        (0..64).map(|_| world.leaf(None)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[tokio::test(start_paused = true)]
async fn an_aggregator_is_the_first_of_its_order_unless_it_has_too_much_to_do() {
    let world = world(5, Strategy::Random);
    let pick = |tried: &[u16]| world.choose(Through::Aggregator, tried, Some(3)).unwrap();
    assert_eq!(pick(&[]), 0);
    let _calls = [world.call(0), world.call(0)];
    assert_eq!(pick(&[]), 1);
    assert_eq!(pick(&[0, 1]), 2);
}

#[test]
fn the_words_of_the_configuration() {
    let word = |strategy: Strategy| serde_json::to_value(strategy).unwrap();
    assert_eq!(word(Strategy::LeastOutstanding), "least_outstanding");
    assert_eq!(word(Strategy::default()), "adaptive");
}
