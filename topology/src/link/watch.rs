//! Follows the routing snapshots of whichever service answers.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use canopy_common::drain::Drain;
use canopy_proto::topology::{RoutingUpdate, WatchRequest};
use tonic::{Status, Streaming};

use super::{Inner, PAUSE, kept, pause};
use crate::{
    redirect,
    routing::{RoutingSnapshot, delta::RoutingDelta},
};

/// How long a service may take to open a stream.
const OPENS: Duration = Duration::from_secs(5);

/// Never ends before the process drains.
pub async fn watch(link: &Arc<Inner>, drain: &Drain) {
    let (mut turn, mut away) = (0, false);
    let mut told = BTreeSet::new();
    loop {
        let Some((address, client)) = link.services.get(turn % link.services.len().max(1)) else { return };
        let request = WatchRequest {
            node: link.node.id.clone(),
            epoch: link.routing.now().epoch.0,
            cluster: link.cluster.clone(),
        };
        let ended = tokio::select! {
            biased;
            () = drain.wait_started() => return,
            ended = async {
                let late = || Status::deadline_exceeded(format!("no snapshot stream was opened in {OPENS:?}"));
                let opened = tokio::time::timeout(OPENS, client.watch(request)).await;
                let updates = opened.map_err(|_| late())??;
                away = false;
                link.contact.opened();
                follow(link, updates, &mut told).await
            } => ended,
        };
        link.contact.ended();
        let status = ended.err();
        let next = link.next(turn, status.as_ref());
        // Said once for as long as nobody answers.
        if let Some(status) = status
            && redirect::leader(&status).is_none()
            && !std::mem::replace(&mut away, true)
        {
            tracing::warn!(node = link.node.id, service = address, error = %status.message(), "topology service away");
        }
        turn = next;
        if !pause(drain, PAUSE).await {
            return;
        }
    }
}

/// Takes what one stream brings. Errors: the stream, or a document that can't be used: the next stream begins with everything.
async fn follow(
    link: &Arc<Inner>,
    mut updates: Streaming<RoutingUpdate>,
    told: &mut BTreeSet<String>,
) -> Result<(), Status> {
    let mut last = None;
    let mut stuck = pin!(link.contact.stuck());
    loop {
        let update = tokio::select! {
            biased;
            update = updates.message() => update?,
            () = &mut stuck => {
                return Err(Status::unavailable("the snapshot stream does not bring what the service has"));
            }
        };
        let Some(update) = update else { return Ok(()) };
        let snapshot = read(&update, last.as_deref()).map_err(|reason| {
            let epoch = update.epoch;
            Status::data_loss(format!("routing snapshot {epoch} can't be used: {reason}"))
        })?;
        let snapshot = Arc::new(snapshot);
        last = Some(snapshot.clone());
        take(link, snapshot, told).await;
        link.contact.came();
    }
}

/// The snapshot of an update; `last`: of the one before on the same stream.
fn read(update: &RoutingUpdate, last: Option<&RoutingSnapshot>) -> Result<RoutingSnapshot, String> {
    let snapshot = match (update.base, last) {
        (0, _) => RoutingSnapshot::from_json(&update.document)?,
        (_, Some(last)) => {
            let delta = RoutingDelta::from_json(&update.document)?;
            delta.apply(last).map_err(|error| error.to_string())?
        }
        (base, None) => return Err(format!("it is the changes to {base}, which never came")),
    };
    if snapshot.epoch.0 != update.epoch {
        return Err(format!("it says epoch {} and holds {}", update.epoch, snapshot.epoch.0));
    }
    Ok(snapshot)
}

/// Goes by a snapshot from now on. `told`: corpora of which it was said already that the service has lost them.
async fn take(link: &Arc<Inner>, mut snapshot: Arc<RoutingSnapshot>, told: &mut BTreeSet<String>) {
    let (mut lost, epoch) = (Vec::new(), snapshot.epoch.0);
    if let Some((kept, corpora)) = kept::keep(&link.routing.now(), &snapshot) {
        (snapshot, lost) = (Arc::new(kept), corpora);
    }
    told.retain(|corpus| lost.contains(corpus));
    for corpus in lost {
        if told.insert(corpus.clone()) {
            tracing::error!(
                node = link.node.id,
                corpus,
                epoch,
                "the topology service knows no version of a corpus that is served; has it lost its store? This node answers it \
                 as before; place the corpus (canopy topology place) and start a rollout of the version that serves"
            );
        }
    }
    if !link.routing.publish(snapshot) {
        return;
    }
    let (kept, now) = (link.last_good.clone(), link.routing.now());
    let written = tokio::task::spawn_blocking(move || kept.write(&now)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(node = link.node.id, %error, "the last good routing snapshot could not be kept");
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Epoch;

    use super::*;

    #[test]
    fn changes_are_applied_to_what_came_before_and_to_nothing_else() {
        let at = |epoch| RoutingSnapshot { epoch: Epoch(epoch), ..RoutingSnapshot::default() };
        let whole = RoutingUpdate { epoch: 3, base: 0, document: at(3).to_json().into() };
        let first = read(&whole, None).unwrap();
        let document = RoutingDelta::between(&at(3), &at(5)).to_json().into();
        let changes = RoutingUpdate { epoch: 5, base: 3, document };
        assert_eq!(read(&changes, Some(&first)).unwrap(), at(5));
        assert!(read(&changes, None).unwrap_err().contains("never came"));
        assert!(read(&changes, Some(&at(4))).is_err());
        assert!(read(&RoutingUpdate { epoch: 4, ..whole }, None).unwrap_err().contains("says epoch 4"));
        assert!(read(&RoutingUpdate { document: b"{".to_vec().into(), ..changes }, Some(&first)).is_err());
    }
}
