//! Arms on several threads: each has a clock and dice of its own, so how they are spread changes nothing of what they
//! measure.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Runs every job on at most `threads` threads; results in the order of the jobs, or the first error.
pub fn run<J: Sync, T: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<T>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let take = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::SeqCst)).filter(|at| *at < jobs.len()) {
            let result = work(&jobs[at]);
            let failed = result.is_err();
            *done[at].lock() = Some(result);
            if failed {
                next.store(jobs.len(), Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(take);
        }
        take();
    });
    let mut results = Vec::with_capacity(jobs.len());
    let mut missing = false;
    for slot in done {
        match slot.into_inner() {
            Some(result) => results.push(result?),
            None => missing = true,
        }
    }
    if missing { Err(Error::Lost("one".to_owned())) } else { Ok(results) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_errors_come_out() {
        let jobs: Vec<u32> = (0..50).collect();
        for threads in [0, 1, 3, 100] {
            assert_eq!(run(&jobs, threads, |job| Ok(job * 2)).unwrap()[49], 98);
            let failed = run(&jobs, threads, |job| {
                if *job == 7 { Err(Error::setting("seven", "is not wanted")) } else { Ok(()) }
            });
            assert!(failed.unwrap_err().to_string().starts_with("seven"));
        }
        assert!(run(&[] as &[u32], 2, |_| Ok(())).unwrap().is_empty());
    }
}
