//! The shards of this leaf: which it should hold, which it holds, and the one way between the two, at start as in a swap
//! or a rollback ([`lifecycle`]): admit, fetch ([`stage`]), verify, open, warm ([`open`]), publish, and back
//! ([`quarantine`], retire).

pub mod background;
pub mod directory;
pub mod fault;
pub mod files;
pub mod holdings;
pub mod lifecycle;
pub mod open;
pub mod pace;
pub mod quarantine;
pub mod room;
pub mod stage;
pub mod status;
pub mod verify;
pub mod warm;

use std::{sync::Arc, time::Duration};

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{NodeId, ShardId, Version},
};
pub use directory::{Directory, Serving, Snapshot};
pub use status::{Board, Line, Place, State};
use tokio::time::Instant;

use crate::lease::Leases;

/// All that a leaf knows of its shards.
pub struct Shards {
    /// This leaf.
    pub node: NodeId,
    /// What is served.
    pub directory: Directory,
    /// What became of each shard.
    pub board: Board,
    /// Views that a fetch may ask for by number.
    pub leases: Leases,
}

impl Shards {
    /// Nothing is held yet.
    pub fn new(node: NodeId, leases: Leases) -> Self {
        Self { node, directory: Directory::default(), board: Board::default(), leases }
    }

    /// Makes a verified, opened and warmed view answer, and its line say so; `retain`: for how long, when nobody wants it by
    /// now.
    pub fn publish_at(&self, place: &Place, serving: Serving, retain: Duration) -> Arc<Serving> {
        let serving = self.publish(serving);
        self.board.serves(place, serving.version, Instant::now(), retain);
        serving
    }

    /// Makes a view answer.
    pub fn publish(&self, serving: Serving) -> Arc<Serving> {
        let serving = Arc::new(serving);
        self.leases.add(serving.clone());
        if let Some(replaced) = self.directory.publish(serving.clone()) {
            self.leases.retire(&replaced);
        }
        serving
    }

    /// Stops answering from a view; queries and leases that have it keep it.
    pub fn retire(&self, serving: &Serving) {
        if self.directory.remove(serving) {
            self.leases.retire(serving);
        }
    }

    /// The view of one asked shard, or why there is none.
    pub fn find(
        &self,
        snapshot: &Snapshot,
        corpus: &str,
        version: Version,
        shard: &str,
    ) -> Result<Arc<Serving>, Failure> {
        match snapshot.version(corpus, version).and_then(|shards| shards.get(shard)) {
            Some(serving) => Ok(serving.clone()),
            None => Err(self.missing(corpus, version, shard)),
        }
    }

    /// Why a shard can't be searched here. Never in the words of the caller beyond a bounded part.
    fn missing(&self, corpus: &str, version: Version, name: &str) -> Failure {
        let shown: String = name.chars().take(80).collect();
        let refused = |reason: String| Failure::new(ErrorClass::FailedPrecondition, reason);
        let Ok(shard) = name.parse::<ShardId>() else {
            return Failure::invalid("shards.shard", format!("{shown:?} is not a shard, such as main/3"));
        };
        let lines = self.board.lines(corpus, &shard);
        let of_version = lines.iter().find(|line| line.version.is_none_or(|known| known == version));
        let serving: Vec<_> =
            lines.iter().filter_map(Line::serving).map(|version| version.to_string()).collect();
        let failure = match of_version {
            None if lines.is_empty() => {
                let corpus: String = corpus.chars().take(80).collect();
                refused(format!("{} does not hold shard {shown} of {corpus:?}", self.node))
            }
            None => {
                let serving = if serving.is_empty() { "nothing".to_owned() } else { serving.join(", ") };
                refused(format!("{} serves {serving} of shard {shown}, not {version}", self.node))
            }
            Some(line) => match line.state {
                State::Quarantined => Failure::new(
                    ErrorClass::DataLoss,
                    format!("shard {shown} is quarantined at {}: {}", self.node, line.last_error),
                ),
                State::Failed => refused(format!(
                    "shard {shown} could not be opened at {}: {}",
                    self.node, line.last_error
                )),
                State::Void => refused(format!("{version} has no shard {shown}")),
                state => {
                    refused(format!("shard {shown} is not open yet at {}: {}", self.node, state.as_str()))
                }
            },
        };
        failure.with_shard(shard)
    }
}

#[cfg(test)]
mod tests;
