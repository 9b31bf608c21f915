//! Taking a damaged shard out of service: at once, with its reason on the status page, while every other shard goes on.
//! The caller is told `DATA_LOSS`, which it retries on another replica.
//!
//! Three ways to know: the engine says so (its class is `DATA_LOSS`), a mapped page could not be read ([`super::fault`]),
//! or the engine panicked and the files, read again, differ from the manifest. A quarantined shard is looked at again after a
//! while: fetched files are deleted and fetched again, those of a local store verified again, since somebody may have mended them.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_common::error::{ErrorClass, Failure};
use canopy_format::manifest::ShardEntry;

use tokio::time::Instant;

use super::{
    Serving, Shards, State,
    background::{self, Priority},
    lifecycle::AGAIN,
    room::Amounts,
    verify,
};
use crate::error::Error;

/// Pause before files that nobody can fetch again are verified again: it reads all of them.
pub(super) const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Where a shard's files can be read again.
#[derive(Debug, Clone)]
pub struct Source {
    /// Directory of the version.
    pub version_dir: PathBuf,
    /// The shard's part of the manifest.
    pub entry: ShardEntry,
}

impl Shards {
    /// Takes a view out of service for good.
    pub fn quarantine(&self, serving: &Serving, reason: &str) {
        serving.retired.store(true, Ordering::SeqCst);
        self.leases.revoke(serving);
        if !self.directory.remove(serving) {
            return;
        }
        let (corpus, shard, version) = (&serving.corpus, &serving.shard, serving.version);
        tracing::error!(%corpus, %shard, %version, reason, "shard quarantined");
        self.board.update_view(corpus, shard, version, |line| {
            line.state = State::Quarantined;
            line.takes = Amounts::default();
            line.due = Some(Instant::now() + AGAIN);
            reason.clone_into(&mut line.last_error);
        });
    }

    /// Judges what a search or fetch on this view ended with; the failure to report instead, if any. Called after each
    /// use of a view: an answer from a page that could not be read is no answer.
    pub fn judge(self: &Arc<Self>, serving: &Arc<Serving>, failure: Option<&Failure>) -> Option<Failure> {
        let shard = &serving.shard;
        if let Some(file) = serving.files.unreadable() {
            let reason = format!("{} could not be read from the disk", file.display());
            self.quarantine(serving, &reason);
            return Some(Error::Damaged { shard: shard.clone(), reason }.into());
        }
        let failure = failure?;
        match failure.class {
            ErrorClass::DataLoss => self.quarantine(serving, &failure.message),
            ErrorClass::Internal => self.read_again(serving),
            _ => {}
        }
        Some(failure.clone().with_shard(shard.clone()))
    }

    /// After an inner fault: reads the files again, once per view, in the background.
    fn read_again(self: &Arc<Self>, serving: &Arc<Serving>) {
        let Some(source) = serving.source.clone() else { return };
        if serving.suspected.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shards, serving) = (self.clone(), serving.clone());
        let started = background::start("verify", Priority::Low, move || {
            if let Err(error) = verify::shard(&source.version_dir, &source.entry, &mut |_| true) {
                shards.quarantine(&serving, &error.to_string());
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "a suspected shard could not be verified again");
        }
    }
}
