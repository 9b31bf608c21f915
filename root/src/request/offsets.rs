//! What a search wants to see: the offsets of a token that a write gave.
//!
//! Rule: a token that can't be of this corpus' log is refused by field, because no leaf would ever reach it; what the
//! version holds is not asked for, because every leaf that has the version has reached it. What is left is few: a token
//! names at most so many partitions as a corpus may have. A version that was built without a log can't tell logs apart;
//! then the offsets go to the leaves, which say `stale` when they do not get there.

use canopy_common::error::Failure;
use canopy_format::{manifest::Manifest, token::Token};
use canopy_proto::v1;

const FIELD: &str = "min_offset";

/// Offsets beyond the version, by partition; empty text: none.
pub fn wanted(
    text: &str,
    freshness: v1::Freshness,
    manifest: &Manifest,
) -> Result<Vec<v1::PartitionOffset>, Failure> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if freshness == v1::Freshness::Base {
        let message =
            "min_offset waits for newer documents, which freshness=base leaves out; send one of them";
        return Err(Failure::invalid(FIELD, message));
    }
    let token: Token =
        text.parse().map_err(|why: String| Failure::invalid(FIELD, format!("min_offset: {why}")))?;
    let known = !token.epoch.is_empty() && !manifest.log.is_empty();
    if known && token.epoch != manifest.log {
        let message = format!(
            "min_offset is of the log {}, and {} follows the log {}; send a token that a write to this corpus gave",
            token.epoch, manifest.corpus, manifest.log
        );
        return Err(Failure::invalid(FIELD, message));
    }
    let held = |partition: u32| if known { manifest.cut.get(&partition).copied().unwrap_or(0) } else { 0 };
    let beyond = token.offsets.into_iter().filter(|(partition, offset)| *offset > held(*partition));
    Ok(beyond.map(|(partition, offset)| v1::PartitionOffset { partition, offset }).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fixture::corpus;

    fn ask(text: &str, log: &str, cut: &[(u32, u64)]) -> Result<Vec<(u32, u64)>, Failure> {
        let mut manifest = corpus(1, 1).manifest;
        (manifest.log, manifest.cut) = (log.to_owned(), cut.iter().copied().collect::<BTreeMap<_, _>>());
        let wanted = wanted(text, v1::Freshness::Realtime, &manifest)?;
        Ok(wanted.into_iter().map(|at| (at.partition, at.offset)).collect())
    }

    #[test]
    fn only_what_the_version_does_not_hold_is_wanted() {
        assert_eq!(ask("", "5f", &[]), Ok(vec![]));
        assert_eq!(ask("5f:0.7,3.9,4.0", "5f", &[]), Ok(vec![(0, 7), (3, 9)]));
        assert_eq!(ask("5f:0.7,3.9,5.1", "5f", &[(0, 7), (3, 8)]), Ok(vec![(3, 9), (5, 1)]));
        // Without an epoch on one side nothing is known of the cut.
        assert_eq!(ask(":0.7", "5f", &[(0, 7)]), Ok(vec![(0, 7)]));
        assert_eq!(ask("5f:0.7", "", &[]), Ok(vec![(0, 7)]));
    }

    #[test]
    fn what_no_leaf_could_reach_is_refused_by_field() {
        for (text, words) in [
            ("6a:0.7", "the log 6a"),
            ("nonsense", "is not a token"),
            ("5f:1024.1", "is not a token"),
            ("5f:1.1,1.2", "twice"),
        ] {
            let failure = ask(text, "5f", &[]).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some("min_offset"), "{text}");
            assert!(failure.message.contains(words), "{}", failure.message);
        }
        let manifest = corpus(1, 1).manifest;
        let failure = wanted("5f:0.7", v1::Freshness::Base, &manifest).unwrap_err();
        assert_eq!(failure.field.as_deref(), Some("min_offset"));
    }
}
