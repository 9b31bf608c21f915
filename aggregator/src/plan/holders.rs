//! Who may be asked for the shards of a request: whoever holds them in its version; and of a request whose version is compared
//! with another, only who holds them in both.
//!
//! What two versions have in common is worked out once a routing snapshot and kept, because it takes longer than a plan.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use canopy_common::ids::Version;
use canopy_topology::routing::{Replicas, RoutingSnapshot};
use parking_lot::Mutex;

/// Pairs of versions that are kept at most.
const MOST: usize = 256;

/// Leaves by shard.
pub enum Holders<'a> {
    /// As the snapshot has them.
    All(&'a Replicas),
    /// Those of two versions.
    Both(Arc<Replicas>),
}

impl Deref for Holders<'_> {
    type Target = Replicas;

    fn deref(&self) -> &Replicas {
        match self {
            Self::All(all) => all,
            Self::Both(both) => both,
        }
    }
}

type Pairs = BTreeMap<(String, Version, Version), Option<Arc<Replicas>>>;

/// What pairs of versions have in common, of the snapshot that was asked for last.
#[derive(Default)]
pub struct Together(Mutex<(Option<Arc<RoutingSnapshot>>, Pairs)>);

impl Together {
    /// Who holds the shards of `version`, and of `beside` too when that is above 0. `None`: nobody should hold them.
    pub fn holders<'a>(
        &self,
        routing: &'a Arc<RoutingSnapshot>,
        corpus: &str,
        version: Version,
        beside: Version,
    ) -> Option<Holders<'a>> {
        let known = routing.corpora.get(corpus)?;
        if beside == Version(0) || beside == version {
            return known.holders(version).map(Holders::All);
        }
        let mut kept = self.0.lock();
        let (of, pairs) = &mut *kept;
        if !of.as_ref().is_some_and(|of| Arc::ptr_eq(of, routing)) || pairs.len() >= MOST {
            *of = Some(routing.clone());
            pairs.clear();
        }
        let pair = pairs.entry((corpus.to_owned(), version, beside));
        pair.or_insert_with(|| known.both(version, beside).map(Arc::new)).clone().map(Holders::Both)
    }
}
