//! Which of several topology services to ask: one that does not lead says who does, in the metadata of its refusal, and
//! whoever asked goes there.

use tonic::{Status, metadata::MetadataValue};

use crate::service::lead::Leader;

/// Metadata keys. The leader's name is empty when nobody leads.
const NODE: &str = "canopy-leader";
const ADDRESS: &str = "canopy-leader-address";

/// Names the leader in a refusal.
pub fn name(status: &mut Status, leader: &Leader) {
    for (key, value) in [(NODE, &leader.node), (ADDRESS, &leader.address)] {
        if let Ok(value) = MetadataValue::try_from(value.as_str()) {
            status.metadata_mut().insert(key, value);
        }
    }
}

/// Says in a refusal that nobody leads; nothing was done, and in a moment there may be a leader.
pub fn name_nobody(status: &mut Status) {
    status.metadata_mut().insert(NODE, MetadataValue::from_static(""));
}

/// The leader that a refusal names.
pub fn leader(status: &Status) -> Option<Leader> {
    let text = |key| Some(status.metadata().get(key)?.to_str().ok()?.to_owned());
    Some(Leader { node: text(NODE)?, address: text(ADDRESS)? })
}

/// Whether a refusal says that nobody leads.
pub fn leaderless(status: &Status) -> bool {
    status.metadata().get(NODE).is_some_and(|node| node.as_bytes().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_leader() {
        let mut status = Status::failed_precondition("another one leads");
        assert_eq!(leader(&status), None);
        let other = Leader { node: "t-2".to_owned(), address: "h:2".to_owned() };
        name(&mut status, &other);
        assert_eq!(leader(&status), Some(other));
        assert!(!leaderless(&status));
        let mut status = Status::unavailable("nobody leads");
        assert!(!leaderless(&status));
        name_nobody(&mut status);
        assert!(leaderless(&status) && leader(&status).is_none());
    }
}
