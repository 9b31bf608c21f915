//! When what came is applied and shown: a value of how much waits and when things last happened.
//!
//! Applying and showing costs about 2 ms however little there is, so a shard that keeps up does it once a refresh, at once
//! after an idle time. One that is far behind shows nothing until it has caught up, or rarely when it serves, and
//! applies large batches into large segments: that is several times faster.

use std::time::Duration;

use tokio::time::Instant;

/// Records behind the log from which on a shard is far behind.
const FAR: u64 = 20_000;
/// Records, or bytes, of a large batch.
const LARGE_RECORDS: usize = 10_000;
const LARGE_BYTES: usize = 8 << 20;
/// How often a shard that serves is shown anew while it is far behind.
const RARELY: Duration = Duration::from_secs(2);
/// Bytes from which on nothing more is received until some are applied.
pub const MOST_BYTES: usize = 32 << 20;

/// What the policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Records and bytes that wait.
    pub waiting: (usize, usize),
    /// Records that the log has and that did not come yet, of all slots.
    pub behind: u64,
    /// Offsets went on without a record.
    pub moved: bool,
    /// It was shown all that the log had when it began.
    pub caught_up: bool,
    /// Applied and not shown.
    pub unshown: bool,
    /// When it was last shown.
    pub shown: Instant,
    /// `[leaf.overlay] refresh`.
    pub refresh: Duration,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Todo {
    /// Apply what waits.
    Apply {
        /// Into a large segment.
        large: bool,
        /// And show it.
        show: bool,
    },
    /// Look again then; something that comes may change it.
    Wait(Option<Instant>),
}

/// What to do now.
pub fn decide(seen: &Seen, now: Instant) -> Todo {
    let (records, bytes) = seen.waiting;
    let far = seen.behind + records as u64 > FAR || !seen.caught_up && seen.behind > 0;
    let since = now.saturating_duration_since(seen.shown);
    if far {
        let show = seen.caught_up && since >= RARELY.max(seen.refresh);
        let full = records >= LARGE_RECORDS || bytes >= LARGE_BYTES;
        return if full || (show && (records > 0 || seen.unshown)) {
            Todo::Apply { large: true, show }
        } else {
            Todo::Wait(seen.caught_up.then(|| seen.shown + RARELY.max(seen.refresh)))
        };
    }
    let news = records > 0 || seen.unshown || seen.moved;
    if !news {
        return Todo::Wait(None);
    }
    if !seen.caught_up || since >= seen.refresh {
        return Todo::Apply { large: !seen.caught_up, show: true };
    }
    Todo::Wait(Some(seen.shown + seen.refresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(now: Instant) -> Seen {
        Seen {
            waiting: (0, 0),
            behind: 0,
            moved: false,
            caught_up: true,
            unshown: false,
            shown: now,
            refresh: Duration::from_millis(200),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_keeps_up_shows_at_once_after_a_rest_and_then_once_a_refresh() {
        let begun = Instant::now();
        let one = Seen { waiting: (1, 100), ..seen(begun) };
        let idle = begun + Duration::from_secs(9);
        assert_eq!(decide(&one, idle), Todo::Apply { large: false, show: true });
        let soon = begun + Duration::from_millis(50);
        assert_eq!(decide(&one, soon), Todo::Wait(Some(begun + Duration::from_millis(200))));
        assert_eq!(decide(&seen(begun), idle), Todo::Wait(None), "no news");
        let moved = Seen { moved: true, ..seen(begun) };
        assert_eq!(decide(&moved, idle), Todo::Apply { large: false, show: true });
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_far_behind_takes_large_batches_and_shows_rarely() {
        let begun = Instant::now();
        let far = Seen { behind: 1_000_000, waiting: (500, 1), caught_up: false, ..seen(begun) };
        assert_eq!(decide(&far, begun + Duration::from_secs(9)), Todo::Wait(None), "not while it replays");
        let full = Seen { waiting: (LARGE_RECORDS, 1), ..far };
        assert_eq!(decide(&full, begun), Todo::Apply { large: true, show: false });
        let end = Seen { behind: 0, ..far };
        assert_eq!(decide(&end, begun), Todo::Apply { large: true, show: true }, "the last ones");
        let serving = Seen { caught_up: true, ..far };
        assert_eq!(decide(&serving, begun), Todo::Wait(Some(begun + RARELY)));
        assert_eq!(decide(&serving, begun + RARELY), Todo::Apply { large: true, show: true });
    }
}
