//! Analyses documents ahead of a shard's writer on helper threads, when there are more threads than shards being
//! written. The order stays that of the input, so the shard is the same to the byte with any number of helpers.
//!
//! The writer's thread sorts and writes; while it would have to wait it analyses too. At most two batches for each
//! helper are on their way, each bounded by size.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Error, Result};

/// Most items of a batch.
const BATCH: usize = 64;
/// A batch is full at this size, bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A number and the items under it.
type Batch<T> = (u64, Vec<T>);

/// Passes the items of `next` through `analyse` to `take`, in order. `next` also says how large an item is, bytes.
pub(crate) fn in_order<A: Send, B: Send>(
    helpers: usize,
    next: &mut dyn FnMut() -> Result<Option<(A, usize)>>,
    analyse: &(dyn Fn(A) -> B + Sync),
    take: &mut dyn FnMut(B) -> Result<()>,
) -> Result<()> {
    if helpers == 0 {
        while let Some((item, _)) = next()? {
            take(analyse(item))?;
        }
        return Ok(());
    }
    std::thread::scope(|scope| {
        let ahead = helpers as u64 * 2;
        let (send, work) = bounded(ahead as usize);
        let (finished, done) = bounded(ahead as usize);
        for _ in 0..helpers {
            let (work, finished) = (work.clone(), finished.clone());
            scope.spawn(move || help(&work, analyse, &finished));
        }
        drop(finished);
        let (mut sent, mut taken) = (0, 0);
        let mut waiting = BTreeMap::new();
        loop {
            while sent - taken < ahead {
                let items = fill(next)?;
                if items.is_empty() {
                    break;
                }
                send.send((sent, items)).map_err(|_| Error::Panicked)?;
                sent += 1;
            }
            if taken == sent {
                return Ok(());
            }
            for item in wait_for(taken, &mut waiting, &work, analyse, &done)? {
                take(item)?;
            }
            taken += 1;
        }
    })
}

fn fill<A>(next: &mut dyn FnMut() -> Result<Option<(A, usize)>>) -> Result<Vec<A>> {
    let (mut items, mut bytes) = (vec![], 0);
    while items.len() < BATCH && bytes < BATCH_BYTES {
        let Some((item, size)) = next()? else { break };
        bytes += size;
        items.push(item);
    }
    Ok(items)
}

/// A helper: a panic is passed on as a missing result, so that nobody waits for it.
fn help<A, B>(
    work: &Receiver<Batch<A>>,
    analyse: &(dyn Fn(A) -> B + Sync),
    done: &Sender<(u64, Option<Vec<B>>)>,
) {
    for (number, items) in work {
        let analysed = catch_unwind(AssertUnwindSafe(|| items.into_iter().map(analyse).collect()));
        if done.send((number, analysed.ok())).is_err() {
            return;
        }
    }
}

/// The batch `number`; helps along while it is not there.
fn wait_for<A, B>(
    number: u64,
    waiting: &mut BTreeMap<u64, Vec<B>>,
    work: &Receiver<Batch<A>>,
    analyse: &(dyn Fn(A) -> B + Sync),
    done: &Receiver<(u64, Option<Vec<B>>)>,
) -> Result<Vec<B>> {
    loop {
        for (number, items) in done.try_iter() {
            waiting.insert(number, items.ok_or(Error::Panicked)?);
        }
        if let Some(items) = waiting.remove(&number) {
            return Ok(items);
        }
        if let Ok((number, items)) = work.try_recv() {
            waiting.insert(number, items.into_iter().map(analyse).collect());
        } else {
            let (number, items) = done.recv().map_err(|_| Error::Panicked)?;
            waiting.insert(number, items.ok_or(Error::Panicked)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        helpers: usize,
        count: u64,
        analyse: &(dyn Fn(u64) -> u64 + Sync),
        stop_at: u64,
    ) -> Result<Vec<u64>> {
        let (mut given, mut taken) = (0, vec![]);
        let mut next = || {
            given += 1;
            Ok((given <= count).then_some((given - 1, if given % 7 == 0 { BATCH_BYTES } else { 100 })))
        };
        let mut take = |item| {
            taken.push(item);
            if item == stop_at { Err(Error::Cancelled) } else { Ok(()) }
        };
        in_order(helpers, &mut next, analyse, &mut take).map(|()| taken)
    }

    #[test]
    fn order_stays_with_any_number_of_helpers() {
        for (helpers, count) in [(0, 10), (1, 0), (1, 1), (1, 5000), (7, 5000)] {
            let out = run(helpers, count, &|item| item * 2, u64::MAX).expect("run");
            assert_eq!(out, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn errors_and_panics_end_it() {
        assert!(matches!(run(3, 5000, &|item| item, 777), Err(Error::Cancelled)));
        let fragile = |item| {
            assert!(item != 3000 || std::thread::current().name().is_some(), "a helper breaks");
            item
        };
        // the batch with item 3000 is taken by a helper or by this thread; nobody waits for ever
        let ended = run(3, 5000, &fragile, u64::MAX);
        assert!(matches!(ended, Err(Error::Panicked)) || ended.is_ok_and(|out| out.len() == 5000));
    }
}
