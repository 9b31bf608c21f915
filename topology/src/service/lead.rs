//! Which of several services leads, as far as this one knows. The leader decides; the others hold nothing and name it.
//!
//! The failure this prevents: two services that answer from two minds. Rule: a service leads until the time that its lease was
//! promised for, by its own clock and counted from before it asked; one that stood still past that time knows at once that
//! it may have been followed, and asks the store before it says anything. That nothing it decided can be stored any more is
//! the store's business ([`super::store`]). A service with a file of its own leads for ever.

use std::sync::Arc;

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
    /// This service, until then; `None`: for ever.
    This(Option<Instant>),
    /// Another one.
    Other(Leader),
    /// Nobody, or nobody knows; why.
    Nobody(String),
}

/// What a service knows of it. Cloning shares it.
#[derive(Clone)]
pub struct Lead(Arc<watch::Sender<Leads>>);

impl Lead {
    /// At first.
    pub fn new(leads: Leads) -> Self {
        Self(Arc::new(watch::channel(leads).0))
    }

    /// Knows better.
    pub fn set(&self, leads: Leads) {
        self.0.send_if_modified(|known| std::mem::replace(known, leads.clone()) != leads);
    }

    /// This service leads on until then, if it leads.
    pub fn prolong(&self, until: Instant) {
        self.0.send_modify(|known| {
            if let Leads::This(Some(end)) = known {
                *end = until;
            }
        });
    }

    /// Who leads now.
    pub fn now(&self) -> Leads {
        match self.0.borrow().clone() {
            Leads::This(Some(until)) if Instant::now() >= until => {
                Leads::Nobody("this service was the leader, and does not know whether it still is".to_owned())
            }
            known => known,
        }
    }

    /// Whether this service leads. Errors: who does.
    pub fn own(&self) -> Result<()> {
        match self.now() {
            Leads::This(_) => Ok(()),
            Leads::Other(Leader { node, address }) => Err(Error::Follows { node, address }),
            Leads::Nobody(reason) => Err(Error::Leaderless(reason)),
        }
    }

    /// Waits until this service does not lead.
    pub async fn lost(&self) {
        let mut changes = self.0.subscribe();
        loop {
            changes.mark_unchanged();
            let until = match self.now() {
                Leads::This(until) => until,
                Leads::Other(_) | Leads::Nobody(_) => return,
            };
            let out = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = out => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_leads_until_its_lease_is_out_by_its_own_clock() {
        let lead = Lead::new(Leads::Nobody("it has just started".to_owned()));
        assert!(lead.own().unwrap_err().to_string().contains("just started"));
        lead.prolong(Instant::now() + Duration::from_secs(9));
        assert!(lead.own().is_err(), "only who leads leads on");
        lead.set(Leads::This(Some(Instant::now() + Duration::from_secs(3))));
        assert!(lead.own().is_ok() && lead.lost().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        lead.prolong(Instant::now() + Duration::from_secs(3));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(lead.own().is_ok());
        let began = Instant::now();
        lead.lost().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert!(lead.own().unwrap_err().to_string().contains("whether it still is"));
        let other = Leader { node: "t-2".to_owned(), address: "h:2".to_owned() };
        lead.set(Leads::Other(other));
        assert!(lead.own().unwrap_err().to_string().contains("t-2 at h:2 leads"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_for_ever_loses_it_only_when_told() {
        let lead = Lead::new(Leads::This(None));
        let waiting = tokio::spawn({
            let lead = lead.clone();
            async move { lead.lost().await }
        });
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(lead.own().is_ok() && !waiting.is_finished());
        lead.set(Leads::Nobody("a test".to_owned()));
        waiting.await.unwrap();
    }
}
