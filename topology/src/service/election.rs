//! One leader among several services, by a key in etcd that lives as long as its lease.
//!
//! A candidate makes the key, if nobody has it, with a lease of a few seconds; the revision at which it was made is its term,
//! which every write names ([`super::store::shared`]). It renews the lease three times as often as needed. The others watch the
//! key and look at it once a lease, and try when it is gone. Who leaves gives the lease back, so that the next need not wait.
//!
//! Units: monotonic time; the store counts leases in whole seconds.

use std::{sync::Arc, time::Duration};

use canopy_common::drain::Drain;
use etcd_client::{Client, Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, WatchOptions};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    lead::{Lead, Leader, Leads},
    serve::Service,
    store::{
        TopologyStore,
        etcd::{Etcd, EtcdKeys, LEADER},
        shared::SharedStore,
    },
};
use crate::error::{Error, Result};

/// After something failed.
const PAUSE: Duration = Duration::from_millis(500);
/// After a term that could not begin: another service may do better.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// A candidate.
pub struct Election {
    etcd: Etcd,
    this: Leader,
    lease: Duration,
}

/// The time for which a service leads.
pub struct Term {
    etcd: Etcd,
    client: Client,
    lease: i64,
    lasts: Duration,
    until: Mutex<Instant>,
    revision: i64,
    writer: String,
}

/// Who has the key, and the revision at which that was seen.
struct Held {
    by: Option<Leader>,
    at: i64,
}

impl Election {
    /// Of `this` service, with a lease of that length.
    pub fn new(etcd: Etcd, this: Leader, lease: Duration) -> Self {
        Self { etcd, this, lease }
    }

    /// Waits until this service leads; `lead` says meanwhile who does.
    pub async fn won(&self, lead: &Lead) -> Term {
        loop {
            match Box::pin(self.campaign(lead)).await {
                Ok(term) => return term,
                Err(error) => {
                    if !matches!(lead.now(), Leads::Nobody(_)) {
                        tracing::warn!(%error, "nobody knows who leads");
                    }
                    lead.lose(Leads::Nobody(error.to_string()));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn campaign(&self, lead: &Lead) -> Result<Term> {
        let client = self.etcd.client().await?;
        loop {
            let held = self.look(&client).await?;
            if let Some(leader) = held.by {
                // Its own key of before, which goes with its lease.
                if leader == self.this {
                    lead.lose(Leads::Nobody("the term of this service before has to end first".to_owned()));
                } else {
                    lead.lose(Leads::Other(leader));
                }
                self.vacant(&client, held.at).await?;
            } else if let Some(term) = self.take(&client).await? {
                return Ok(term);
            }
        }
    }

    async fn look(&self, client: &Client) -> Result<Held> {
        let mut kv = client.kv_client();
        let found = self.etcd.answer(kv.get(self.etcd.key(LEADER), None::<GetOptions>)).await?;
        let by = found.kvs().first().map(|kv| {
            let unknown = || Leader { node: "unknown".to_owned(), address: String::new() };
            serde_json::from_slice(kv.value()).unwrap_or_else(|_| unknown())
        });
        Ok(Held { by, at: found.header().map_or(0, etcd_client::ResponseHeader::revision) })
    }

    /// Waits until the key may be gone: it was seen to go, or a lease has passed.
    async fn vacant(&self, client: &Client, seen: i64) -> Result<()> {
        let options = WatchOptions::new().with_start_revision(seen + 1);
        let mut watching = client.watch_client();
        let mut changes = self.etcd.answer(watching.watch(self.etcd.key(LEADER), Some(options))).await?;
        let gone = async {
            loop {
                match changes.message().await {
                    Ok(Some(seen)) if seen.canceled() => return,
                    Ok(Some(seen)) => {
                        if seen.events().iter().any(|event| event.event_type() == EventType::Delete) {
                            return;
                        }
                    }
                    Ok(None) | Err(_) => return,
                }
            }
        };
        let _gone_or_not = tokio::time::timeout(self.lease, gone).await;
        Ok(())
    }

    /// Tries to make the key; `None`: another one was faster.
    async fn take(&self, client: &Client) -> Result<Option<Term>> {
        let asked = Instant::now();
        let seconds = self.lease.as_secs().max(1);
        let (mut leases, mut kv) = (client.lease_client(), client.kv_client());
        let granted = self.etcd.answer(leases.grant(seconds as i64, None)).await?;
        let (lease, lasts) = (granted.id(), Duration::from_secs(granted.ttl().max(1) as u64));
        let key = self.etcd.key(LEADER);
        let value = serde_json::to_vec(&self.this).unwrap_or_default();
        let put = TxnOp::put(key.clone(), value, Some(PutOptions::new().with_lease(lease)));
        let vacant = Compare::create_revision(key, CompareOp::Equal, 0);
        let made = self.etcd.answer(kv.txn(Txn::new().when(vec![vacant]).and_then(vec![put]))).await?;
        if !made.succeeded() {
            let _it_ends_by_itself = self.etcd.answer(leases.revoke(lease)).await;
            return Ok(None);
        }
        Ok(Some(Term {
            etcd: self.etcd.clone(),
            client: client.clone(),
            lease,
            lasts,
            until: Mutex::new(asked + lasts),
            revision: made.header().map_or(0, etcd_client::ResponseHeader::revision),
            writer: self.this.node.clone(),
        }))
    }
}

impl Term {
    /// The store, for as long as this term is.
    pub fn store(&self) -> TopologyStore {
        let keys = EtcdKeys::new(self.etcd.clone());
        TopologyStore::new(SharedStore::new(keys, self.revision, &self.writer))
    }

    /// When it ends, as far as it was promised.
    pub fn until(&self) -> Instant {
        *self.until.lock()
    }

    /// Renews the lease until that fails for good; why.
    pub async fn renew(&self, lead: &Lead) -> String {
        let mut why = "its lease was not renewed".to_owned();
        loop {
            tokio::time::sleep_until((Instant::now() + self.lasts / 3).min(self.until())).await;
            let asked = Instant::now();
            let mut leases = self.client.lease_client();
            match tokio::time::timeout(self.lasts / 3, leases.keep_alive(self.lease)).await {
                Ok(Ok(_)) => {
                    *self.until.lock() = asked + self.lasts;
                    lead.prolong(asked + self.lasts);
                }
                Ok(Err(etcd_client::Error::LeaseKeepAliveError(_))) => return "its lease ran out".to_owned(),
                Ok(Err(error)) => why = self.etcd.failed(&error.to_string()).to_string(),
                Err(_) => why = self.etcd.failed("it did not answer").to_string(),
            }
            if Instant::now() >= self.until() {
                return why;
            }
        }
    }

    /// Gives the lead away.
    pub async fn resign(self) {
        let mut leases = self.client.lease_client();
        let _it_ends_by_itself = self.etcd.answer(leases.revoke(self.lease)).await;
    }
}

/// Leads whenever it can, until the process drains.
pub async fn run(service: Arc<Service>, election: Election, drain: Drain) {
    loop {
        let term = tokio::select! {
            biased;
            () = drain.wait_started() => return,
            term = election.won(service.lead()) => term,
        };
        let (why, pause) = tokio::select! {
            biased;
            () = drain.wait_started() => ("this service leaves".to_owned(), Duration::ZERO),
            why = term.renew(service.lead()) => (why, Duration::ZERO),
            ended = govern(&service, &term) => ended,
        };
        tracing::warn!(node = term.writer, why, "leads no more");
        service.step_down(why).await;
        term.resign().await;
        let _or_drained = tokio::time::timeout(pause, drain.wait_started()).await;
    }
}

/// One term; why it ended, and how long others should have the chance.
async fn govern(service: &Arc<Service>, term: &Term) -> (String, Duration) {
    if let Err(error) = service.take_up(term.store(), || Some(term.until())).await {
        tracing::error!(%error, "this service can't lead");
        let pause = match error {
            Error::Store { .. } | Error::Deposed => PAUSE,
            _ => LONG_PAUSE,
        };
        return (error.to_string(), pause);
    }
    tracing::info!(node = term.writer, term = term.revision, "leads");
    let lead = service.lead();
    tokio::select! {
        biased;
        () = lead.lost() => {}
        () = lead.out() => {}
    }
    ("another service may lead by now".to_owned(), Duration::ZERO)
}
