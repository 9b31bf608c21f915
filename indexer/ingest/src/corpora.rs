//! Which corpora are taken: the store is looked at again and again, so that corpora come and go and schemas change without a restart.
//!
//! Rules: a log that can't be opened is tried again and named, and takes no other corpus with it; a store that is away changes
//! nothing; a corpus that is gone ends its followers. A schema that only adds fields is taken at once; any other change is taken
//! when a version was built with it, since until then leaves could not show what it lets in.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use canopy_format::{
    schema::Schema,
    store::{Corpus, VersionStore},
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    engine::{Engine, directory_of},
    error::{Error, Result},
    feed::{Feed, Surroundings},
    trim::{self, Cut, Cuts},
};

/// The corpora of an ingest.
pub struct Corpora {
    /// Where they are made.
    pub store: VersionStore,
    /// What they share.
    pub around: Surroundings,
    engine: Arc<dyn Engine>,
    open: ArcSwap<BTreeMap<String, Arc<Feed>>>,
    cuts: Mutex<BTreeMap<String, Arc<Cuts>>>,
    failed: Mutex<BTreeMap<String, String>>,
    store_error: Mutex<Option<String>>,
    looked: AtomicBool,
}

impl Corpora {
    /// None is open yet.
    pub fn new(store: VersionStore, engine: Arc<dyn Engine>, around: Surroundings) -> Self {
        Self {
            store,
            around,
            engine,
            open: ArcSwap::default(),
            cuts: Mutex::default(),
            failed: Mutex::default(),
            store_error: Mutex::default(),
            looked: AtomicBool::new(false),
        }
    }

    /// A corpus by name.
    pub fn get(&self, corpus: &str) -> Result<Arc<Feed>> {
        if let Some(feed) = self.open.load().get(corpus) {
            return Ok(feed.clone());
        }
        let shown: String = corpus.chars().take(64).collect();
        if let Some(reason) = self.failed.lock().get(corpus) {
            return Err(Error::NotOpen { corpus: shown, reason: reason.clone() });
        }
        if !self.looked() {
            let reason = "the ingest has just started and does not know its corpora yet".to_owned();
            return Err(Error::NotOpen { corpus: shown, reason });
        }
        let known: Vec<_> = self.open.load().keys().cloned().collect();
        let reason = if known.is_empty() {
            "it takes none yet; make one with `canopy corpus create`".to_owned()
        } else {
            format!("it takes {}", known.join(", "))
        };
        Err(Error::NoCorpus { corpus: shown, reason })
    }

    /// All that are open.
    pub fn all(&self) -> Vec<Arc<Feed>> {
        self.open.load().values().cloned().collect()
    }

    /// Cuts of the versions of a corpus.
    pub fn cuts(&self, corpus: &str) -> Arc<Cuts> {
        self.cuts.lock().entry(corpus.to_owned()).or_default().clone()
    }

    /// Whether the store was read once.
    pub fn looked(&self) -> bool {
        self.looked.load(Ordering::Relaxed)
    }

    /// What can't be opened, by corpus.
    pub fn failed(&self) -> BTreeMap<String, String> {
        self.failed.lock().clone()
    }

    /// For operators; one corpus, or all when it is empty.
    pub fn status(&self, corpus: &str) -> serde_json::Value {
        let all = self.all();
        let wanted = all.iter().filter(|feed| corpus.is_empty() || feed.name == corpus);
        json!({
            "corpora": wanted.map(|feed| feed.status()).collect::<Vec<_>>(),
            "lacking": self.failed(),
            "store": self.store_error.lock().clone(),
        })
    }

    /// Looks at the store once.
    pub async fn look(&self) {
        let mut corpora = match self.store.corpora().await {
            Ok(corpora) => corpora,
            Err(error) => {
                let told = self.store_error.lock().replace(error.to_string());
                if told != Some(error.to_string()) {
                    tracing::warn!(%error, "the store can't be read; going on with the corpora that are open");
                }
                return;
            }
        };
        *self.store_error.lock() = None;
        let taken = &self.around.config.corpora;
        corpora.retain(|corpus| taken.is_empty() || taken.contains(&corpus.name));
        let mut open = BTreeMap::clone(&self.open.load());
        open.retain(|name, feed| {
            let stays = corpora.iter().any(|corpus| corpus.name == *name) && !feed.closed.is_cancelled();
            if !stays {
                tracing::info!(corpus = name, "its log is closed here");
                feed.closed.cancel();
            }
            stays
        });
        // A handle that is given up has to be gone before the log is opened again.
        self.open.store(Arc::new(open.clone()));
        self.failed.lock().retain(|name, _| corpora.iter().any(|corpus| corpus.name == *name));
        for corpus in corpora {
            match open.get(&corpus.name) {
                Some(feed) => self.refresh(feed, corpus).await,
                None => {
                    if let Some(feed) = self.open_one(&corpus).await {
                        open.insert(corpus.name, feed);
                        self.open.store(Arc::new(open.clone()));
                    }
                }
            }
        }
        let metrics = &self.around.metrics;
        metrics.corpora.set(i64::try_from(open.len()).unwrap_or(i64::MAX));
        metrics.lacking.set(i64::try_from(self.failed.lock().len()).unwrap_or(i64::MAX));
        self.looked.store(true, Ordering::Relaxed);
    }

    async fn open_one(&self, corpus: &Corpus) -> Option<Arc<Feed>> {
        let opened = async {
            let log = self.engine.open(corpus).await?;
            let directory = directory_of(Path::new(&self.around.config.directory), &corpus.name);
            let schema = self.first_schema(corpus).await;
            Feed::open(corpus, schema, log, &directory, self.around.clone()).await
        };
        let opened: Result<_> = opened.await;
        let mut failed = self.failed.lock();
        match opened {
            Ok(feed) => {
                tracing::info!(corpus = corpus.name, epoch = feed.log.epoch(), "its log is open");
                failed.remove(&corpus.name);
                Some(feed)
            }
            Err(error) => {
                let reason = error.to_string();
                if failed.insert(corpus.name.clone(), reason.clone()).as_ref() != Some(&reason) {
                    tracing::error!(corpus = corpus.name, %error, "its log can't be opened; trying on");
                }
                None
            }
        }
    }

    /// Of a corpus whose schema changed since its newest version was built: the version's, unless fields were only added.
    async fn first_schema(&self, corpus: &Corpus) -> Schema {
        match self.store.latest(&corpus.name).await {
            Ok(newest) if !adds_only(&newest.schema, &corpus.schema) => newest.schema,
            _ => corpus.schema.clone(),
        }
    }

    /// What may have changed of a corpus that is open.
    async fn refresh(&self, feed: &Feed, corpus: Corpus) {
        if let Err(error @ (canopy_log::Error::Replaced { .. } | canopy_log::Error::Closed)) =
            feed.log.ranges().await
        {
            tracing::error!(corpus = feed.name, %error, "its log is opened again");
            feed.closed.cancel();
            return;
        }
        let id = corpus.schema.id();
        if feed.schema.load().id() == id {
            return;
        }
        let built = || async {
            let cuts = self.cuts(&feed.name).all(&self.store, &feed.name).await;
            cuts.is_ok_and(|cuts| cuts.last().is_some_and(|cut: &Arc<Cut>| cut.schema_id == id))
        };
        if adds_only(&feed.schema.load(), &corpus.schema) || built().await {
            tracing::info!(corpus = feed.name, schema = id, "items are checked by another schema");
            feed.schema.store(Arc::new(corpus.schema));
        }
    }

    /// Trims the logs once.
    pub async fn trim(&self) {
        for feed in self.all() {
            let cuts = self.cuts(&feed.name).all(&self.store, &feed.name).await;
            trim::trim(&feed, cuts).await;
        }
    }
}

/// Whether all fields of a schema are in another one, as they are.
pub fn adds_only(old: &Schema, new: &Schema) -> bool {
    old.key == new.key && old.fields.iter().all(|field| new.fields.contains(field))
}
