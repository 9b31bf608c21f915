//! Leaves that should hold a shard and have not said that they do, as far as the routing snapshot knows.
//!
//! The failure this prevents: the topology service dies while a leaf comes back. The last snapshot then says for hours that it holds
//! nothing, though it serves since it has opened its files; and when the other replica dies too, its shard is missing from every
//! answer beside a sound leaf.
//!
//! Rules: they are asked when nobody else is left, once a shard, and not in a search that is given up for another version. One that
//! does not have the shard says so at once, so that nothing is lost but a call.

use canopy_common::coverage::Outcome;

use super::{retry::History, run::Run};
use crate::plan;

impl Run {
    /// Another way to shards of a branch of which nobody could be reached; false: there is none.
    pub(super) fn another_way(&mut self, branch: usize, shards: &[u32], history: &History) -> bool {
        self.around_aggregators(branch, shards, history) || !history.reached && self.ask_coming(shards)
    }

    /// Asks shards of those leaves, and gives up those that have none. False: no shard has one.
    pub(super) fn ask_coming(&mut self, shards: &[u32]) -> bool {
        if self.whole {
            return false;
        }
        let branches = self.coming_branches(shards);
        if branches.is_empty() {
            return false;
        }
        let asked: Vec<u32> = branches.iter().flat_map(|branch| branch.shards.clone()).collect();
        for branch in branches {
            self.ask_anew(branch);
        }
        let left: Vec<u32> = shards.iter().filter(|shard| !asked.contains(shard)).copied().collect();
        self.give_up(&left, &Outcome::Unavailable, "no replica left to ask");
        true
    }

    /// Branches of those leaves, for shards that none was asked for yet.
    pub(super) fn coming_branches(&mut self, shards: &[u32]) -> Vec<plan::Branch> {
        let open: Vec<u32> = shards.iter().filter(|shard| !self.coming.contains(shard)).copied().collect();
        let branches = plan::coming(&self.routing, &self.request, &open, &self.config);
        self.coming.extend(branches.iter().flat_map(|branch| &branch.shards));
        branches
    }
}
