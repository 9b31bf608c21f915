//! Ends all threads of a build together: the first error wins, the others see that it is over.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::request::Cancel;
use crate::error::{Error, Result};

/// Shared by the threads of a stage.
pub(crate) struct Stop<'a> {
    cancel: &'a Cancel,
    over: AtomicBool,
    first: Mutex<Option<Error>>,
}

impl<'a> Stop<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Self {
        Self { cancel, over: AtomicBool::new(false), first: Mutex::new(None) }
    }

    /// An error once the stage is over or the build cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        if self.over.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { self.cancel.check() }
    }

    /// Runs a thread's work and notes its error when it is the first.
    pub(crate) fn run(&self, work: impl FnOnce() -> Result<()>) {
        if let Err(error) = work() {
            let mut first = self.first.lock();
            first.get_or_insert(error);
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// The first error.
    pub(crate) fn result(self) -> Result<()> {
        self.first.into_inner().map_or(Ok(()), Err)
    }
}
