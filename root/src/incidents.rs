//! One log line per incident, not per query: under an outage every query fails alike, and a log that repeats it a
//! thousand times a second hides the cause. Each kind is logged at most once a second, with the number left out.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two lines of a kind.
const PAUSE: Duration = Duration::from_secs(1);

/// When each kind was logged last, and how many lines were left out since.
#[derive(Default)]
pub struct Incidents(Mutex<BTreeMap<&'static str, (Instant, u64)>>);

impl Incidents {
    /// Whether a line of this kind is due: the number left out since the last one.
    pub fn due(&self, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut kinds = self.0.lock();
        match kinds.get_mut(kind) {
            Some((last, left_out)) if now.saturating_duration_since(*last) < PAUSE => {
                *left_out += 1;
                None
            }
            Some(entry) => {
                let left_out = entry.1;
                *entry = (now, 0);
                Some(left_out)
            }
            None => {
                kinds.insert(kind, (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_due_once_a_second_and_counts_what_it_left_out() {
        let incidents = Incidents::default();
        assert_eq!(incidents.due("partial"), Some(0));
        assert_eq!(incidents.due("partial"), None);
        assert_eq!(incidents.due("partial"), None);
        assert_eq!(incidents.due("DEADLINE_EXCEEDED"), Some(0));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(incidents.due("partial"), Some(2));
    }
}
