//! What the leaf tells the topology service of its shards.
//!
//! Rule: what is tried again by itself (the store is away) is still loading; what will not get better by itself is a failure,
//! with its reason.

use canopy_topology::link::{Condition, Holding, Progress};

use super::{Board, Line, State};

/// Every line whose version is known.
pub fn condition(board: &Board) -> Condition {
    let each = board.all().into_iter().filter_map(|(place, line)| {
        let version = line.version.or(place.version)?;
        let progress = progress(&line);
        let (corpus, shard) = (place.corpus.to_string(), Some(place.shard));
        Some(Holding { corpus, version, shard, progress, bytes: line.bytes, memory: line.takes.memory })
    });
    Condition { holdings: each.collect(), ..Condition::default() }
}

fn progress(line: &Line) -> Progress {
    match (line.state, line.given_up) {
        (State::Serving, _) => Progress::Resident,
        (State::Retiring, _) => Progress::Retiring,
        (State::Void, _) => Progress::Void,
        (State::Quarantined, _) => Progress::Failed { reason: line.last_error.clone(), everywhere: false },
        (State::Failed, Some(everywhere)) => Progress::Failed { reason: line.last_error.clone(), everywhere },
        _ => Progress::Loading,
    }
}
