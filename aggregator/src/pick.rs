//! Which replica to ask. Two candidates are looked at and the less loaded one is asked: with every caller's knowledge
//! a little old, always taking "the best of all" makes all callers run to the same node, while two random choices
//! come close to the best without the herd.
//!
//! Leaves: the two are drawn at random from those not tried yet. Aggregators: the two are the first of the rendezvous
//! order, so that the connections of each aggregator stay few. A tie is the first one's. Dice come from one stream, so
//! a simulation repeats its picks.

use canopy_common::{ids::NodeId, rng::Dice};

use crate::{load::Loads, plan::Through};

/// Index of the candidate to ask, or `None` when all were tried.
pub fn pick(
    candidates: &[NodeId],
    through: Through,
    tried: &[u16],
    loads: &Loads,
    dice: &Dice,
) -> Option<u16> {
    let left = || (0..candidates.len().min(usize::from(u16::MAX)) as u16).filter(|at| !tried.contains(at));
    let count = left().count() as u64;
    let (first, second) = match (count, through) {
        (0, _) => return None,
        (1, _) => return left().next(),
        (_, Through::Aggregator) => (0, 1),
        (2, Through::Leaf) => {
            let first = dice.below(2);
            (first, 1 - first)
        }
        (_, Through::Leaf) => {
            let first = dice.below(count);
            let second = dice.below(count - 1);
            (first, second + u64::from(second >= first))
        }
    };
    let (a, b) = (left().nth(first as usize)?, left().nth(second as usize)?);
    let cost = |at: u16| loads.of(&candidates[usize::from(at)]).cost();
    Some(if cost(b) < cost(a) { b } else { a })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::load::InFlight;

    fn nodes(count: u16) -> Vec<NodeId> {
        (0..count).map(|n| NodeId::from(format!("leaf-{n}").as_str())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_tried_is_never_picked_again() {
        let (loads, dice) = (Loads::default(), Dice::seeded(1));
        let nodes = nodes(4);
        for _ in 0..200 {
            let mut tried = vec![];
            while let Some(next) = pick(&nodes, Through::Leaf, &tried, &loads, &dice) {
                assert!(!tried.contains(&next));
                tried.push(next);
            }
            assert_eq!(tried.len(), 4);
        }
        assert_eq!(pick(&[], Through::Leaf, &[], &loads, &dice), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_busier_of_two_is_left_alone() {
        let (loads, dice) = (Loads::default(), Dice::seeded(2));
        let nodes = nodes(2);
        let _call = InFlight::begin(loads.of(&nodes[1]));
        for _ in 0..50 {
            assert_eq!(pick(&nodes, Through::Leaf, &[], &loads, &dice), Some(0));
        }
        loads.of(&nodes[0]).report(Duration::from_millis(5));
        for _ in 0..50 {
            assert_eq!(pick(&nodes, Through::Leaf, &[], &loads, &dice), Some(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_spreads_over_equal_replicas() {
        let (loads, dice) = (Loads::default(), Dice::seeded(3));
        let nodes = nodes(3);
        let mut calls = vec![];
        for _ in 0..300 {
            let at = pick(&nodes, Through::Leaf, &[], &loads, &dice).unwrap();
            calls.push(InFlight::begin(loads.of(&nodes[usize::from(at)])));
        }
        let busiest = nodes.iter().map(|node| loads.of(node).in_flight()).max().unwrap();
        assert!(busiest <= 104, "{busiest}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_picks() {
        let nodes = nodes(5);
        let run = |seed| {
            let (loads, dice) = (Loads::default(), Dice::seeded(seed));
            (0..64).map(|_| pick(&nodes, Through::Leaf, &[], &loads, &dice).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[tokio::test(start_paused = true)]
    async fn an_aggregator_is_the_first_of_its_order_unless_the_second_is_idler() {
        let (loads, dice) = (Arc::new(Loads::default()), Dice::seeded(4));
        let nodes = nodes(5);
        assert_eq!(pick(&nodes, Through::Aggregator, &[], &loads, &dice), Some(0));
        let _call = InFlight::begin(loads.of(&nodes[0]));
        assert_eq!(pick(&nodes, Through::Aggregator, &[], &loads, &dice), Some(1));
        assert_eq!(pick(&nodes, Through::Aggregator, &[0, 1], &loads, &dice), Some(2));
    }
}
