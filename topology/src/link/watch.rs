//! Follows the routing snapshots of whichever service answers.

use std::sync::Arc;

use canopy_common::drain::Drain;
use canopy_proto::topology::{RoutingUpdate, WatchRequest};
use tonic::{Status, Streaming};

use super::{Inner, PAUSE, pause};
use crate::routing::RoutingSnapshot;

/// Never ends before the process drains.
pub async fn watch(link: &Arc<Inner>, drain: &Drain) {
    let mut turn = 0;
    loop {
        let Some((address, client)) = link.services.get(turn % link.services.len().max(1)) else { return };
        let request = WatchRequest { node: link.node.id.clone(), epoch: link.routing.now().epoch.0 };
        let ended = tokio::select! {
            biased;
            () = drain.wait_started() => return,
            ended = async {
                let updates = client.watch(request).await?;
                follow(link, updates).await
            } => ended,
        };
        if let Err(status) = ended {
            tracing::warn!(node = link.node.id, service = address, error = %status.message(), "topology service away");
        }
        turn += 1;
        if !pause(drain, PAUSE).await {
            return;
        }
    }
}

async fn follow(link: &Arc<Inner>, mut updates: Streaming<RoutingUpdate>) -> Result<(), Status> {
    while let Some(update) = updates.message().await? {
        match read(&update) {
            Ok(snapshot) => take(link, snapshot).await,
            Err(reason) => {
                tracing::error!(
                    node = link.node.id,
                    epoch = update.epoch,
                    reason,
                    "a routing snapshot can't be read"
                );
            }
        }
    }
    Ok(())
}

fn read(update: &RoutingUpdate) -> Result<RoutingSnapshot, String> {
    let snapshot = RoutingSnapshot::from_json(&update.document)?;
    if snapshot.epoch.0 != update.epoch {
        return Err(format!("it says epoch {} and holds {}", update.epoch, snapshot.epoch.0));
    }
    Ok(snapshot)
}

async fn take(link: &Arc<Inner>, snapshot: RoutingSnapshot) {
    if !link.routing.publish(snapshot) {
        return;
    }
    let (kept, now) = (link.last_good.clone(), link.routing.now());
    let written = tokio::task::spawn_blocking(move || kept.write(&now)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(node = link.node.id, %error, "the last good routing snapshot could not be kept");
    }
}
