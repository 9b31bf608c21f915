//! Seconds by stage, and the calls that tell the listener where a stage begins and ends.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::progress::{Amount, Progress, Stage};

/// Watches the stages of one build.
pub(crate) struct Timing {
    progress: Arc<dyn Progress>,
    began: BTreeMap<Stage, Instant>,
    pub(crate) seconds: BTreeMap<Stage, f64>,
}

impl Timing {
    pub(crate) fn new(progress: Arc<dyn Progress>) -> Self {
        Self { progress, began: BTreeMap::new(), seconds: BTreeMap::new() }
    }

    pub(crate) fn begin(&mut self, stage: Stage, total: Amount) {
        self.began.insert(stage, Instant::now());
        self.progress.begin(stage, total);
    }

    pub(crate) fn end(&mut self, stage: Stage) {
        let took = self.began.get(&stage).map(Instant::elapsed).unwrap_or_default();
        self.seconds.insert(stage, took.as_secs_f64());
        self.progress.end(stage, took);
    }
}
