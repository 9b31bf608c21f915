//! Whether this node is in contact with the service, each way by itself: snapshots come here, reports are taken there.
//!
//! The failure this prevents: a node whose watch hangs, but whose reports are taken, that says all is well while it goes by an old
//! snapshot; and one whose reports are refused that says it is cut off while every snapshot comes. Rules: a node is cut off while no
//! snapshot stream is alive. A stream is alive from when the service has opened it until it ends, however long nothing new is to be
//! said: the channel pings the peer and ends the stream when nobody answers ([`canopy_common::rpc`]). What pings can't tell, a service
//! that answers them and forgets the stream, or something between that answers in its place, the reports do: each reply names
//! the newest epoch, and a stream that does not bring it counts as dead since then. It is opened anew after a while.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A stream that has not brought for so long what the service has is opened anew.
pub(super) const STUCK: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Contact(Mutex<State>);

struct State {
    /// Since when no stream is alive; `None`: one is.
    cut: Option<Instant>,
    /// Since when the service is known to have a newer snapshot than this node.
    behind: Option<Instant>,
    /// When a report was last taken; when the process started, before the first was.
    reported: Instant,
}

impl Contact {
    /// None yet.
    pub fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(State { cut: Some(now), behind: None, reported: now }))
    }

    /// The service has opened a stream.
    pub fn opened(&self) {
        self.0.lock().cut = None;
    }

    /// The stream has ended.
    pub fn ended(&self) {
        self.0.lock().cut.get_or_insert_with(Instant::now);
    }

    /// A report was taken by a service whose newest snapshot is this far; `here`: this node's.
    pub fn taken(&self, newest: u64, here: u64) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.reported = now;
        state.behind = (newest > here).then(|| state.behind.unwrap_or(now));
    }

    /// A snapshot came.
    pub fn came(&self) {
        self.0.lock().behind = None;
    }

    /// How long this node is cut off; nothing while it is not.
    pub fn cut(&self) -> Duration {
        let state = self.0.lock();
        state.cut.into_iter().chain(state.behind).map(|since| since.elapsed()).max().unwrap_or_default()
    }

    /// How long no report was taken.
    pub fn unreported(&self) -> Duration {
        self.0.lock().reported.elapsed()
    }

    /// Waits until a stream that was opened now does not bring what the service has.
    pub async fn stuck(&self) {
        let opened = Instant::now();
        loop {
            tokio::time::sleep(STUCK / 10).await;
            let behind = self.0.lock().behind;
            if behind.is_some_and(|since| since.max(opened).elapsed() > STUCK) {
                return;
            }
        }
    }
}
