//! How a node knows the topology: by a configuration that never changes, or by its link to the service.

use std::{sync::Arc, time::Duration};

use canopy_common::drain::Drain;

use crate::{
    link::{Condition, Link},
    routing::{Routing, RoutingSnapshot},
};

/// See the module. Cloning shares it.
#[derive(Clone)]
pub enum Membership {
    /// One snapshot, for ever.
    Static(Routing),
    /// The service's.
    Linked(Link),
}

impl Membership {
    /// The snapshot that this node goes by.
    pub fn routing(&self) -> Routing {
        match self {
            Self::Static(routing) => routing.clone(),
            Self::Linked(link) => link.routing(),
        }
    }

    /// How long no snapshot stream of the service is alive; `None`: there is no service.
    pub fn unheard(&self) -> Option<Duration> {
        match self {
            Self::Static(_) => None,
            Self::Linked(link) => Some(link.unheard()),
        }
    }

    /// How long the service took no report; `None`: there is none.
    pub fn unreported(&self) -> Option<Duration> {
        match self {
            Self::Static(_) => None,
            Self::Linked(link) => Some(link.unreported()),
        }
    }

    /// Keeps it up to date, and says how the node is, until the process has drained.
    pub async fn run(self, drain: Drain, condition: impl Fn() -> Condition + Send + Sync) {
        match self {
            Self::Static(_) => drain.wait_started().await,
            Self::Linked(link) => link.run(drain, condition).await,
        }
    }
}

impl From<RoutingSnapshot> for Membership {
    fn from(snapshot: RoutingSnapshot) -> Self {
        Self::Static(snapshot.into())
    }
}

impl From<Arc<RoutingSnapshot>> for Membership {
    fn from(snapshot: Arc<RoutingSnapshot>) -> Self {
        Self::Static(snapshot.into())
    }
}
