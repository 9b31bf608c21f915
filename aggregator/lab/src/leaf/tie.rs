//! Tied calls at a model leaf: whichever of two copies begins first tells the other leaf, which drops its own while it
//! waits, and the later of two that have begun stops. A claim that comes before its copy leaves a mark.
//!
//! This is the model's own, short version of what a real leaf does, for the figures: how often both copies run depends
//! on nothing but the travel time of the claim.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use canopy_common::{ids::NodeId, request::RequestContext};
use canopy_proto::v1;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{ModelLeaf, Visit};

/// Marks kept.
const MARKS: usize = 64;

/// When a copy began on the engine's clock, us, and its attempt; the smaller one goes on.
type Claim = (u64, u64);
/// Number of the query and attempt.
type Key = (u64, u64);

#[derive(Debug)]
struct Live {
    lost: Arc<Notify>,
    begun: Option<Claim>,
}

/// The tied calls of one leaf.
#[derive(Debug, Default)]
pub(super) struct Ties {
    live: BTreeMap<Key, Live>,
    marks: VecDeque<Key>,
}

impl Ties {
    /// A copy comes; `None` when its twin has begun already.
    fn arrive(&mut self, key: Key) -> Option<Arc<Notify>> {
        if let Some(at) = self.marks.iter().position(|mark| *mark == key) {
            self.marks.remove(at);
            return None;
        }
        let lost = Arc::new(Notify::new());
        self.live.insert(key, Live { lost: lost.clone(), begun: None });
        Some(lost)
    }

    /// The twin of a copy has begun; whether the copy is here and gives way.
    pub(super) fn claimed(&mut self, key: Key, twin: Claim) -> bool {
        match self.live.get(&key) {
            Some(live) if live.begun.is_none_or(|mine| twin < mine) => {
                live.lost.notify_one();
                true
            }
            Some(_) => false,
            None => {
                if self.marks.len() == MARKS {
                    self.marks.pop_front();
                }
                self.marks.push_back(key);
                false
            }
        }
    }
}

/// A copy that is at its leaf.
struct Here {
    leaf: Arc<ModelLeaf>,
    key: Key,
}

impl Drop for Here {
    fn drop(&mut self) {
        self.leaf.state.lock().ties.live.remove(&self.key);
    }
}

/// Serves a tied call to its end, or to its twin's beginning.
pub(super) async fn serve(
    mut visit: Visit,
    context: &RequestContext,
    tie: v1::Tie,
    shards: usize,
    version: u64,
) -> v1::SearchReply {
    let (leaf, query) = (visit.leaf.clone(), visit.call.query);
    let key = (query, context.attempt.0);
    let arrived = Instant::now();
    let arrives = leaf.state.lock().ties.arrive(key);
    let gone = match arrives {
        None => Some(v1::Outcome::Unavailable),
        Some(lost) => {
            let _here = Here { leaf: leaf.clone(), key };
            let work = async {
                let ends = match visit.begin().await {
                    Ok(ends) => ends,
                    Err(outcome) => return Some(outcome),
                };
                tell(&leaf, key, &tie, arrived);
                tokio::time::sleep_until(ends).await;
                None
            };
            tokio::select! {
                biased;
                () = lost.notified() => Some(v1::Outcome::Unavailable),
                gone = work => gone,
            }
        }
    };
    match gone {
        Some(outcome) => visit.gone(shards, outcome),
        None => visit.finish(shards, version),
    }
}

/// It has begun: the twin will hear of it.
fn tell(leaf: &Arc<ModelLeaf>, key: Key, tie: &v1::Tie, arrived: Instant) {
    let waited = arrived.elapsed().as_micros() as u64;
    let claim = (tie.start_us + waited, key.1);
    if let Some(live) = leaf.state.lock().ties.live.get_mut(&key) {
        live.begun = Some(claim);
    }
    let Some(twin) = leaf.siblings.named(&NodeId::from(tie.peer.as_str())) else { return };
    let (travel, key) = (leaf.ground.travel, (key.0, tie.attempt_id));
    tokio::spawn(async move {
        sleep(travel).await;
        let _given_way = twin.state.lock().ties.claimed(key, claim);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_start_goes_on_and_a_claim_may_come_first() {
        let mut ties = Ties::default();
        assert!(ties.arrive((1, 2)).is_some());
        assert!(ties.claimed((1, 2), (50, 1)), "it waits");
        ties.live.get_mut(&(1, 2)).unwrap().begun = Some((40, 2));
        assert!(!ties.claimed((1, 2), (50, 1)), "it began earlier");
        assert!(ties.claimed((1, 2), (40, 1)), "both began at once");
        assert!(!ties.claimed((3, 2), (50, 1)), "not here yet");
        assert!(ties.arrive((3, 2)).is_none());
        assert!(ties.arrive((3, 2)).is_some(), "a mark is used once");
    }
}
