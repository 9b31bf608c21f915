//! Which of several services leads, as far as this one knows. The leader decides; the others hold nothing and name it.
//!
//! The failure this prevents: two services that answer from two minds. Rule: a service leads until the time that its lease was
//! promised for, by its own clock and counted from before it asked; one that stood still past that time knows at once that
//! it may have been followed, and asks the store before it says anything. That nothing it decided can be stored any more is
//! the store's business ([`super::store`]). A service with a file of its own leads for ever.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use crate::error::{Error, Result};

/// A leader, as others find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name.
    pub node: String,
    /// gRPC `host:port`.
    pub address: String,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    /// This service.
    This,
    /// Another one.
    Other(Leader),
    /// Nobody, or nobody knows; why.
    Nobody(String),
}

/// What a service knows of it. Cloning shares it.
#[derive(Clone)]
pub struct Lead(Arc<Inner>);

struct Inner {
    leads: watch::Sender<Leads>,
    /// Until when this service leads, if it does; `None`: for ever.
    until: Mutex<Option<Instant>>,
}

impl Lead {
    /// At first nobody knows.
    pub fn new() -> Self {
        let leads = Leads::Nobody("this service has just started".to_owned());
        Self(Arc::new(Inner { leads: watch::channel(leads).0, until: Mutex::default() }))
    }

    /// Another one leads, or nobody.
    pub fn lose(&self, leads: Leads) {
        self.0.leads.send_if_modified(|known| std::mem::replace(known, leads.clone()) != leads);
    }

    /// This service leads, until then or for ever.
    pub fn win(&self, until: Option<Instant>) {
        *self.0.until.lock() = until;
        self.0.leads.send_replace(Leads::This);
    }

    /// If this service leads, it does until then.
    pub fn prolong(&self, until: Instant) {
        if let Some(end) = self.0.until.lock().as_mut() {
            *end = until;
        }
    }

    /// Who leads now.
    pub fn now(&self) -> Leads {
        let known = self.0.leads.borrow().clone();
        let out = || self.0.until.lock().is_some_and(|until| Instant::now() >= until);
        if known == Leads::This && out() {
            return Leads::Nobody("this service led, and does not know whether it still does".to_owned());
        }
        known
    }

    /// Whether this service leads. Errors: who does.
    pub fn own(&self) -> Result<()> {
        match self.now() {
            Leads::This => Ok(()),
            Leads::Other(Leader { node, address }) => Err(Error::Follows { node, address }),
            Leads::Nobody(reason) => Err(Error::Leaderless(reason)),
        }
    }

    /// Waits until this service was told that it does not lead.
    pub async fn lost(&self) {
        let mut changes = self.0.leads.subscribe();
        let _the_sender_is_here = changes.wait_for(|leads| *leads != Leads::This).await;
    }

    /// Waits until its time is over.
    pub async fn out(&self) {
        loop {
            let until = *self.0.until.lock();
            match until {
                Some(until) if Instant::now() >= until => return,
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Default for Lead {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_leads_until_its_lease_is_out_by_its_own_clock() {
        let lead = Lead::new();
        assert!(lead.own().unwrap_err().to_string().contains("just started"));
        lead.prolong(Instant::now() + Duration::from_secs(9));
        assert!(lead.own().is_err(), "only who leads leads on");
        lead.win(Some(Instant::now() + Duration::from_secs(3)));
        assert!(lead.own().is_ok() && lead.lost().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        lead.prolong(Instant::now() + Duration::from_secs(3));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(lead.own().is_ok());
        let began = Instant::now();
        lead.out().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert!(lead.own().unwrap_err().to_string().contains("whether it still does"));
        assert!(lead.lost().now_or_never().is_none(), "nobody told it yet");
        let other = Leader { node: "t-2".to_owned(), address: "h:2".to_owned() };
        lead.lose(Leads::Other(other));
        lead.lost().await;
        assert!(lead.own().unwrap_err().to_string().contains("t-2 at h:2 leads"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_for_ever_loses_it_only_when_told() {
        let lead = Lead::new();
        lead.win(None);
        let waiting = tokio::spawn({
            let lead = lead.clone();
            async move { tokio::join!(lead.lost(), tokio::time::timeout(Duration::from_hours(1), lead.out())) }
        });
        tokio::time::sleep(Duration::from_mins(50)).await;
        assert!(lead.own().is_ok() && !waiting.is_finished());
        lead.lose(Leads::Nobody("a test".to_owned()));
        assert!(waiting.await.unwrap().1.is_err());
    }
}
