//! Which of several topology services to ask: one that does not lead says who does, in the metadata of its refusal, and
//! whoever asked goes there.

use tonic::{Status, metadata::MetadataValue};

use crate::service::lead::Leader;

/// Metadata keys.
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

/// The leader that a refusal names.
pub fn leader(status: &Status) -> Option<Leader> {
    let text = |key| Some(status.metadata().get(key)?.to_str().ok()?.to_owned());
    Some(Leader { node: text(NODE)?, address: text(ADDRESS)? })
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
    }
}
