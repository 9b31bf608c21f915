//! What an ingest tells of itself. Ready: the store was read and logs are open. A corpus whose log can't be opened makes it not
//! ready only when there is no other, else it would take the sound ones away too; it is named in the status (`lacking`).

use std::sync::Arc;

use canopy_common::{admin::Health, ids::NodeId};
use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use crate::corpora::Corpora;

/// Health of an ingest.
pub struct IngestHealth {
    /// Its name.
    pub node: NodeId,
    /// What it takes.
    pub corpora: Arc<Corpora>,
}

impl IngestHealth {
    /// Whether it would take a write now.
    pub fn check(&self) -> Result<(), String> {
        if !self.corpora.looked() {
            return Err("the store was not read yet".to_owned());
        }
        let failed = self.corpora.failed();
        if self.corpora.all().is_empty()
            && let Some((corpus, reason)) = failed.first_key_value()
        {
            return Err(format!("no log is open; {corpus}: {reason}"));
        }
        Ok(())
    }
}

impl Health for IngestHealth {
    fn started(&self) -> bool {
        self.corpora.looked()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        async { self.check() }.boxed()
    }

    fn status(&self) -> Value {
        let mut status = self.corpora.status("");
        if let Value::Object(status) = &mut status {
            status.insert("role".to_owned(), json!("ingest"));
            status.insert("node".to_owned(), json!(self.node.to_string()));
            status.insert("engine".to_owned(), json!(self.corpora.around.config.engine));
        }
        status
    }
}
