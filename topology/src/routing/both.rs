//! Leaves that hold a shard in both of two versions. Two versions can only be compared where both are asked of the same leaves
//! with the same hedge candidates: a version on one row, never hedged, beside one that is hedged over all rows would look slow
//! whatever it is.
//!
//! Rule: the same for both arms, to the order: leaves stand as the older version lists them, whichever of the two is asked for.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{NodeId, ShardId, Version};

use super::{CorpusRouting, Replicas};

impl CorpusRouting {
    /// Of each shard of `version`, the leaves that hold it in `beside` too; an empty list where there is none. `None`: nobody
    /// should hold one of the two.
    pub fn both(&self, version: Version, beside: Version) -> Option<Replicas> {
        let older = self.holders(version.min(beside))?;
        let newer = self.holders(version.max(beside))?;
        let none: Arc<[NodeId]> = Arc::new([]);
        let mut known: BTreeMap<(*const NodeId, *const NodeId), Arc<[NodeId]>> = BTreeMap::new();
        let mut common = |shard: &ShardId| match (older.get(shard), newer.get(shard)) {
            (Some(older), Some(newer)) if Arc::ptr_eq(older, newer) => older.clone(),
            // Shards with the same replicas share one list, so few are worked out.
            (Some(older), Some(newer)) => known
                .entry((older.as_ptr(), newer.as_ptr()))
                .or_insert_with(|| older.iter().filter(|leaf| newer.contains(leaf)).cloned().collect())
                .clone(),
            _ => none.clone(),
        };
        Some(self.holders(version)?.keys().map(|shard| (shard.clone(), common(shard))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::VersionRouting;

    fn on(leaves: &[&str]) -> Arc<[NodeId]> {
        leaves.iter().map(|leaf| NodeId::from(*leaf)).collect()
    }

    #[test]
    fn both_arms_are_offered_the_same_leaves_in_the_same_order() {
        let shard = |number| ShardId::new("main", number);
        let (wide, narrow) = (on(&["a", "b", "c", "d"]), on(&["d", "b"]));
        let held = |lists: &[(u32, &Arc<[NodeId]>)]| VersionRouting {
            held: lists.iter().map(|(number, leaves)| (shard(*number), (*leaves).clone())).collect(),
            ..VersionRouting::default()
        };
        let empty = on(&[]);
        let corpus = CorpusRouting {
            versions: [
                (Version(1), held(&[(0, &wide), (1, &wide), (2, &wide), (3, &wide)])),
                (Version(2), held(&[(0, &narrow), (1, &narrow), (2, &empty)])),
            ]
            .into(),
            ..CorpusRouting::default()
        };
        let control = corpus.both(Version(1), Version(2)).unwrap();
        let treatment = corpus.both(Version(2), Version(1)).unwrap();
        for number in [0, 1] {
            assert_eq!(control[&shard(number)], on(&["b", "d"]));
            assert_eq!(control[&shard(number)], treatment[&shard(number)]);
        }
        assert!(Arc::ptr_eq(&control[&shard(0)], &control[&shard(1)]), "one list, so one branch");
        assert!(control[&shard(2)].is_empty() && treatment[&shard(2)].is_empty());
        assert!(control[&shard(3)].is_empty() && !treatment.contains_key(&shard(3)));
        assert_eq!(corpus.both(Version(1), Version(3)), None);
        let fixed = CorpusRouting { shards: [(shard(0), wide.clone())].into(), ..CorpusRouting::default() };
        assert_eq!(fixed.both(Version(1), Version(2)).unwrap()[&shard(0)], wide);
    }
}
