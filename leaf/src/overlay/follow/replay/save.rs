//! Checkpoints of a follower: now and then, and at its end.

use futures::FutureExt;
use tokio::time::Instant;

use super::{Done, Loop};
use crate::shards::background::{self, Priority};

impl Loop<'_> {
    /// Takes the overlay down for a checkpoint, if it has changed.
    pub(super) fn take_down(&mut self) {
        let changed = self.applied.as_ref().is_some_and(|applied| *applied.offsets() != self.saved.1);
        if !changed || self.written.is_none() || self.link.epoch().is_empty() {
            self.saved.0 = Instant::now();
            return;
        }
        let (Some(mut applied), Some(mut written)) = (self.applied.take(), self.written.take()) else {
            return;
        };
        let (name, epoch) = (self.of.checkpoint.1.clone(), self.link.epoch().to_owned());
        let work = move || {
            let snapshot = applied.close().and_then(|()| written.snapshot(&applied, &name, &epoch));
            Done::Taken { applied, written, snapshot }
        };
        self.unshown = true;
        self.work = Some(background::run("checkpoint", Priority::Low, work).boxed());
    }

    pub(super) fn saved(&mut self, saved: std::io::Result<std::io::Result<()>>) {
        if let Err(error) = saved.flatten() {
            let dir = self.of.checkpoint.0.display();
            tracing::warn!(%dir, %error, "an overlay could not be saved; more is replayed after a restart");
            self.saved.1.clear();
            if let Some(written) = &mut self.written {
                written.forget();
            }
        }
    }

    /// Saves at the end: what runs is waited for, what waits is not applied any more.
    pub(super) async fn save(&mut self) {
        if let Some(done) = self.work.take() {
            match done.await {
                Ok(Done::Applied { applied, result: Ok(()), .. }) => self.applied = Some(applied),
                Ok(Done::Taken { applied, written, .. }) => {
                    (self.applied, self.written) = (Some(applied), Some(written));
                }
                _ => return,
            }
        }
        if let Some(saving) = self.saving.take() {
            self.saved(saving.await);
        }
        self.take_down();
        let Some(work) = self.work.take() else { return };
        if let Ok(Done::Taken { snapshot: Ok(snapshot), .. }) = work.await {
            let dir = self.of.checkpoint.0.clone();
            let written = background::run("save", Priority::Equal, move || snapshot.write(&dir)).await;
            self.saved(written);
        }
    }
}
