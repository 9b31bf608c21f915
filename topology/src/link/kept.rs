//! What a node keeps of a corpus that is answered now and that the next snapshot would take away: a service that has lost its
//! store says so, and nobody orders that.
//!
//! The failure this prevents: a tree that stops answering because its control plane forgot it; and one that can't be mended,
//! because nodes that refuse all the service says never load what it places anew. Rules: of such a corpus the pins stay as they
//! are, and what should be held is what was and what is to be: nothing is dropped, what is placed is loaded. All else of the
//! snapshot holds, also for other corpora. It ends with the first snapshot that pins a version of the corpus.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::NodeId;

use crate::routing::{CorpusRouting, Replicas, RoutingSnapshot};

/// The next snapshot without what it would take away, and the corpora that it would take; `None`: it takes none.
pub fn keep(now: &RoutingSnapshot, next: &RoutingSnapshot) -> Option<(RoutingSnapshot, Vec<String>)> {
    let unpinned = |name: &String| next.corpora.get(name).is_none_or(|corpus| corpus.pins.is_empty());
    let lost = now.corpora.iter().filter(|(name, corpus)| !corpus.pins.is_empty() && unpinned(name));
    let lost: BTreeMap<&String, &CorpusRouting> = lost.collect();
    if lost.is_empty() {
        return None;
    }
    let mut kept = next.clone();
    for (name, corpus) in &lost {
        let both = both(corpus, next.corpora.get(*name));
        let lists = both.versions.values().flat_map(|version| [&version.wanted, &version.held]);
        for node in lists.flat_map(BTreeMap::values).flat_map(|nodes| nodes.iter()) {
            if let (false, Some(known)) = (kept.nodes.contains_key(node), now.nodes.get(node)) {
                kept.nodes.insert(node.clone(), known.clone());
            }
        }
        kept.corpora.insert((*name).clone(), both);
    }
    Some((kept, lost.into_keys().cloned().collect()))
}

/// The corpus as it is, with all that is to be loaded beside.
fn both(now: &CorpusRouting, next: Option<&CorpusRouting>) -> CorpusRouting {
    let mut both = CorpusRouting { trial: None, ..now.clone() };
    for (version, more) in next.into_iter().flat_map(|next| &next.versions) {
        let known = both.versions.entry(*version).or_default();
        add(&mut known.wanted, &more.wanted);
        add(&mut known.held, &more.held);
    }
    both
}

fn add(to: &mut Replicas, more: &Replicas) {
    for (shard, nodes) in more {
        let known = to.entry(shard.clone()).or_insert_with(|| Arc::from([]));
        let new: Vec<NodeId> = nodes.iter().filter(|node| !known.contains(node)).cloned().collect();
        if !new.is_empty() {
            *known = known.iter().cloned().chain(new).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::{Epoch, ShardId, Version};

    use super::*;
    use crate::{
        config::Role,
        routing::{Node, Pin, VersionRouting},
    };

    fn node(port: u32) -> Node {
        Node { role: Role::Leaf, address: format!("h:{port}"), admin: String::new(), zone: String::new() }
    }

    fn on(nodes: &[&str]) -> Replicas {
        [(ShardId::new("main", 0), nodes.iter().map(|node| NodeId::from(*node)).collect())].into()
    }

    fn corpus(pinned: bool, wanted: &[&str], held: &[&str]) -> CorpusRouting {
        let pins = if pinned { vec![Pin { version: Version(1), share: 10_000 }] } else { vec![] };
        let version = VersionRouting { wanted: on(wanted), held: on(held) };
        CorpusRouting { pins, versions: [(Version(1), version)].into(), ..CorpusRouting::default() }
    }

    fn snapshot(epoch: u64, nodes: &[&str], corpora: &[(&str, CorpusRouting)]) -> RoutingSnapshot {
        RoutingSnapshot {
            epoch: Epoch(epoch),
            nodes: nodes.iter().map(|it| (NodeId::from(*it), node(1))).collect(),
            corpora: corpora.iter().map(|(name, corpus)| ((*name).to_owned(), corpus.clone())).collect(),
            ..RoutingSnapshot::default()
        }
    }

    #[test]
    fn a_service_that_lost_its_store_takes_no_corpus_away_and_is_followed_in_all_else() {
        let now = snapshot(
            5,
            &["a", "b"],
            &[("web", corpus(true, &["a"], &["a"])), ("news", corpus(true, &["b"], &["b"]))],
        );
        // Nobody but one leaf was heard of, and one corpus is placed and live again.
        let next = snapshot(9, &["b", "c"], &[("news", corpus(true, &["c"], &["c"]))]);
        let (kept, lost) = keep(&now, &next).unwrap();
        assert_eq!((kept.epoch, lost), (Epoch(9), vec!["web".to_owned()]));
        assert_eq!(kept.corpora["web"], now.corpora["web"]);
        assert_eq!(kept.corpora["news"], next.corpora["news"], "the other one goes on");
        assert!(kept.nodes.contains_key(&NodeId::from("a")), "who answers is known still");
        // A snapshot that takes nothing away is taken as it is.
        assert!(keep(&next, &now).is_none() && keep(&now, &now).is_none());
        let unserved = snapshot(1, &[], &[("web", corpus(false, &["a"], &[]))]);
        assert!(keep(&RoutingSnapshot::default(), &unserved).is_none() && keep(&unserved, &now).is_none());
    }

    #[test]
    fn what_is_placed_anew_is_loaded_and_what_answers_is_not_dropped() {
        let now = snapshot(5, &["a", "b"], &[("web", corpus(true, &["a", "b"], &["a", "b"]))]);
        let next = snapshot(9, &["a", "b", "c"], &[("web", corpus(false, &["b", "c"], &["b"]))]);
        let (kept, _) = keep(&now, &next).unwrap();
        let web = &kept.corpora["web"];
        assert_eq!(web.pins, now.corpora["web"].pins);
        assert_eq!(web.versions[&Version(1)].wanted, on(&["a", "b", "c"]));
        assert_eq!(web.versions[&Version(1)].held, on(&["a", "b"]));
        // Kept again with the next one, until a version is pinned.
        let (again, _) = keep(&kept, &next).unwrap();
        assert_eq!(again.corpora, kept.corpora);
        let pinned = snapshot(10, &["a", "b", "c"], &[("web", corpus(true, &["b", "c"], &["b", "c"]))]);
        assert!(keep(&again, &pinned).is_none());
    }
}
