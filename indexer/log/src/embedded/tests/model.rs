//! Random operations against a model, with crashes at any operation of the disk: what was acknowledged is there, as it was, at
//! its offset; what was not may be there or not; nothing else is.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[derive(Default)]
struct Model {
    /// Acknowledged: text, key.
    sure: BTreeMap<(u32, u64), String>,
    /// Given, but without an answer of success.
    unsure: BTreeSet<String>,
    first: BTreeMap<u32, u64>,
}

impl Model {
    async fn check(&mut self, log: &Embedded, seed: u64) {
        for (partition, range) in (0..P).zip(log.ranges().await.unwrap()) {
            let wanted = self.first.get(&partition).copied().unwrap_or_default();
            assert!(range.first <= wanted, "seed {seed}: trimmed more than was asked");
            let (found, bad) = texts(log, partition).await;
            assert_eq!(bad, Vec::<u64>::new(), "seed {seed}");
            let found: BTreeMap<u64, String> = found.into_iter().collect();
            for ((_, offset), text) in self.sure.range((partition, range.first)..(partition + 1, 0)) {
                assert_eq!(
                    found.get(offset),
                    Some(text),
                    "seed {seed}: partition {partition} offset {offset}"
                );
            }
            for (offset, text) in found {
                if self.sure.insert((partition, offset), text.clone()).is_none() {
                    assert!(self.unsure.remove(&text), "seed {seed}: {text:?} is of nobody, or twice");
                }
            }
        }
    }
}

async fn step(log: &Embedded, model: &mut Model, dice: &Dice, count: &mut u64) {
    if dice.below(12) == 0 {
        let partition = dice.below(u64::from(P)) as u32;
        let end = log.ranges().await.unwrap()[partition as usize].end;
        let before: BTreeMap<u32, u64> =
            (0..P).map(|of| (of, if of == partition { end } else { u64::MAX })).collect();
        // Even one that failed may have trimmed.
        for (of, offset) in &before {
            let known = model.first.entry(*of).or_default();
            *known = (*known).max(*offset);
        }
        drop(log.trim(before).await);
        return;
    }
    let batch: Vec<Append> = (0..=dice.below(4))
        .map(|_| {
            *count += 1;
            let text = format!("{count} {}", "x".repeat(dice.below(300) as usize));
            record(dice.below(u64::from(P)) as u32, "k", &text)
        })
        .collect();
    let texts: Vec<(u32, String)> =
        batch.iter().map(|item| (item.partition, String::from_utf8(item.record.to_vec()).unwrap())).collect();
    for (result, (partition, text)) in log.append(batch).await.into_iter().zip(texts) {
        match result {
            Ok(offset) => assert!(model.sure.insert((partition, offset), text).is_none(), "an offset twice"),
            Err(_) => drop(model.unsure.insert(text)),
        }
    }
}

#[tokio::test]
async fn random_operations_with_crashes_lose_and_double_nothing() {
    let seed = Dice::from_entropy().unwrap().next_u64();
    println!("seed {seed}");
    let dice = Dice::seeded(seed);
    for _ in 0..20 {
        let (world, mut model, mut count) = (World::default(), Model::default(), 0);
        for _ in 0..15 {
            let log = loop {
                if dice.below(4) == 0 {
                    world.power_for(Some(dice.below(12)));
                }
                match open(&world) {
                    Ok(log) => break log,
                    Err(Error::Io { .. }) => world.crash(&dice),
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            };
            let range = log.ranges().await.unwrap();
            for (partition, range) in (0..P).zip(range) {
                let known = model.first.entry(partition).or_default();
                *known = (*known).min(range.end).max(range.first);
            }
            model.check(&log, seed).await;
            match dice.below(4) {
                0 => world.power_for(Some(dice.below(40))),
                1 => world.fail_syncs(1 + dice.below(2) as u32),
                2 => world.write_at_most(Some(dice.below(3000) as usize)),
                _ => {}
            }
            for _ in 0..dice.below(20) {
                step(&log, &mut model, &dice, &mut count).await;
            }
            world.fail_syncs(0);
            world.write_at_most(None);
            if dice.below(2) == 0 {
                world.power_for(Some(0));
            }
            drop(log);
            if dice.below(2) == 0 {
                world.crash(&dice);
            }
            world.power_for(None);
        }
    }
}
