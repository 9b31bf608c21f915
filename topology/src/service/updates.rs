//! What watchers are sent, made once for all of them: the changes between two snapshots, or a whole one. Tens of thousands of
//! watchers wait for the same next snapshot; made for each of them it would cost each time what the tree is large.
//!
//! Rule: kept are only the last few, so that a watcher that is slow, and gets the changes of several steps at once, costs one
//! more of them and no more. The bytes are shared with the connections.

use std::collections::VecDeque;

use canopy_proto::topology::RoutingUpdate;
use parking_lot::Mutex;

use crate::routing::{RoutingSnapshot, delta::RoutingDelta};

/// Updates that are kept.
const KEPT: usize = 8;

/// See the module.
#[derive(Default)]
pub struct Updates(Mutex<VecDeque<RoutingUpdate>>);

impl Updates {
    /// What changed since `last`, else everything.
    pub fn update(&self, last: Option<&RoutingSnapshot>, next: &RoutingSnapshot) -> RoutingUpdate {
        let (base, epoch) = (last.map_or(0, |last| last.epoch.0), next.epoch.0);
        // Whoever comes while it is made waits for it rather than make it too.
        let mut kept = self.0.lock();
        if let Some(known) = kept.iter().find(|known| known.base == base && known.epoch == epoch) {
            return known.clone();
        }
        let document = match last {
            Some(last) => RoutingDelta::between(last, next).to_json(),
            None => next.to_json(),
        };
        let update = RoutingUpdate { epoch, base, document: document.into() };
        kept.push_front(update.clone());
        kept.truncate(KEPT);
        update
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Epoch;

    use super::*;

    #[test]
    fn one_update_is_shared_by_all_who_need_it() {
        let at = |epoch| RoutingSnapshot { epoch: Epoch(epoch), ..RoutingSnapshot::default() };
        let updates = Updates::default();
        let first = updates.update(Some(&at(3)), &at(5));
        let again = updates.update(Some(&at(3)), &at(5));
        assert_eq!((first.base, first.epoch), (3, 5));
        assert_eq!(first.document.as_ptr(), again.document.as_ptr(), "the very same bytes");
        let whole = updates.update(None, &at(5));
        assert_eq!((whole.base, &whole.document[..]), (0, &at(5).to_json()[..]));
        assert_eq!(updates.update(Some(&at(4)), &at(5)).base, 4);
        for epoch in 6..40 {
            updates.update(Some(&at(5)), &at(epoch));
        }
        assert_eq!(updates.0.lock().len(), KEPT);
    }
}
