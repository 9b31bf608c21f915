//! The snapshot that this process goes by now. Whoever plans something takes it once and keeps what it took; whoever keeps
//! something in step with it (endpoints, shards held, versions open) waits for the next one.
//!
//! Rule: only a newer epoch takes the place of an older one, so a message that comes late or twice changes nothing.

use std::sync::Arc;

use tokio::sync::watch;

use super::RoutingSnapshot;

/// The current snapshot. Clones share it.
#[derive(Debug, Clone)]
pub struct Routing(Arc<watch::Sender<Arc<RoutingSnapshot>>>);

impl Routing {
    /// The snapshot now.
    pub fn now(&self) -> Arc<RoutingSnapshot> {
        self.0.borrow().clone()
    }

    /// Goes by `next` from now on, unless it is not newer; whether it does.
    pub fn publish(&self, next: impl Into<Arc<RoutingSnapshot>>) -> bool {
        let next = next.into();
        self.0.send_if_modified(|current| {
            let newer = next.epoch > current.epoch;
            if newer {
                *current = next;
            }
            newer
        })
    }

    /// The snapshots from now on: first the one of now, then each newer one; some may be passed over when they come fast.
    pub fn follow(&self) -> Following {
        let mut changes = self.0.subscribe();
        changes.mark_changed();
        Following { changes, _kept: self.clone() }
    }
}

impl From<Arc<RoutingSnapshot>> for Routing {
    fn from(snapshot: Arc<RoutingSnapshot>) -> Self {
        Self(Arc::new(watch::channel(snapshot).0))
    }
}

impl From<RoutingSnapshot> for Routing {
    fn from(snapshot: RoutingSnapshot) -> Self {
        Arc::new(snapshot).into()
    }
}

/// See [`Routing::follow`].
pub struct Following {
    changes: watch::Receiver<Arc<RoutingSnapshot>>,
    _kept: Routing,
}

impl Following {
    /// Waits for a snapshot that was not given yet. Safe to drop.
    pub async fn next(&mut self) -> Arc<RoutingSnapshot> {
        // The sender is kept, so there is always a next.
        let _always_open = self.changes.changed().await;
        self.changes.borrow_and_update().clone()
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Epoch;
    use futures::FutureExt;

    use super::*;

    fn at(epoch: u64) -> RoutingSnapshot {
        RoutingSnapshot { epoch: Epoch(epoch), ..RoutingSnapshot::default() }
    }

    #[tokio::test]
    async fn followers_see_the_newest_and_never_go_back() {
        let routing = Routing::from(at(3));
        let mut follower = routing.follow();
        let taken = routing.now();
        assert_eq!(follower.next().await.epoch, Epoch(3));
        assert!(follower.next().now_or_never().is_none());
        assert!(routing.publish(at(4)) && routing.publish(at(6)));
        assert!(!routing.publish(at(6)) && !routing.publish(at(5)));
        assert_eq!(follower.next().await.epoch, Epoch(6));
        assert!(follower.next().now_or_never().is_none());
        assert_eq!(taken.epoch, Epoch(3), "what was taken stays");
    }
}
