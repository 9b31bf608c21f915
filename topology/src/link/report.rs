//! Says how the node is: every second, and at once when something of it is different.

use std::{sync::Arc, time::Duration};

use canopy_common::drain::Drain;
use canopy_proto::topology::{Held, NodeReport, held};

use super::{Holding, Inner, Progress};

/// Between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at what is different.
const LOOK: Duration = Duration::from_millis(100);
/// Longest that one report may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Never ends before the process drains; says then that it is gone.
pub async fn report(link: &Arc<Inner>, drain: &Drain, holdings: &(impl Fn() -> Vec<Holding> + Sync)) {
    let mut turn = 0;
    let mut said: Option<NodeReport> = None;
    let mut quiet = Duration::ZERO;
    loop {
        let ended = drain.started();
        let now = condition(link, drain, holdings());
        if quiet >= INTERVAL || said.as_ref() != Some(&now) {
            let Some((_, client)) = link.services.get(turn % link.services.len().max(1)) else { return };
            let told = tokio::time::timeout(PATIENCE, client.report(now.clone())).await;
            if let Ok(Ok(_)) = told {
                said = Some(now);
            } else {
                said = None;
                turn += 1;
                // The watch says that the service is away.
                tokio::time::sleep(LOOK).await;
            }
            quiet = Duration::ZERO;
        }
        if ended {
            return;
        }
        tokio::select! {
            biased;
            () = drain.wait_started() => {}
            () = tokio::time::sleep(LOOK) => quiet += LOOK,
        }
    }
}

fn condition(link: &Arc<Inner>, drain: &Drain, holdings: Vec<Holding>) -> NodeReport {
    let node = &link.node;
    NodeReport {
        node: node.id.clone(),
        role: node.role.as_str().to_owned(),
        address: node.address.clone(),
        admin: node.admin.clone(),
        zone: node.zone.clone(),
        draining: drain.leaving(),
        epoch: link.routing.now().epoch.0,
        held: holdings.into_iter().map(held).collect(),
        arms: Vec::new(),
    }
}

fn held(holding: Holding) -> Held {
    let (state, reason, everywhere) = match holding.progress {
        Progress::Loading => (held::State::Loading, String::new(), false),
        Progress::Resident => (held::State::Resident, String::new(), false),
        Progress::Retiring => (held::State::Retiring, String::new(), false),
        Progress::Failed { reason, everywhere } => (held::State::Failed, reason, everywhere),
    };
    Held {
        corpus: holding.corpus,
        version: holding.version.0,
        shard: holding.shard.map(|shard| shard.to_string()).unwrap_or_default(),
        state: state as i32,
        reason,
        everywhere,
    }
}
