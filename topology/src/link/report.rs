//! Says how the node is: every second, and at once when something of it is different.

use std::{sync::Arc, time::Duration};

use canopy_common::drain::Drain;
use canopy_proto::topology::{Held, NodeReport, held};

use super::{Condition, Holding, Inner, Progress};
use crate::gates::wire::Seen;

/// Between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at what is different.
const LOOK: Duration = Duration::from_millis(100);
/// Trials that are told of at most while the service is away.
const MOST_TRIALS: usize = 64;
/// Longest that one report may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Never ends before the process drains; says then that it is gone.
pub async fn report(link: &Arc<Inner>, drain: &Drain, condition: &(impl Fn() -> Condition + Sync)) {
    let (mut turn, mut said, mut quiet) = (0, None, Duration::ZERO);
    let mut trials: Vec<Seen> = Vec::new();
    // Sums under way keep their number until they are answered, so that none is counted twice.
    let (mut sending, mut batch) = (Vec::new(), u64::from(std::process::id()) << 32);
    loop {
        let ended = drain.started();
        let Condition { holdings, trials: seen } = condition();
        for one in seen {
            gather(&mut trials, one);
        }
        let now = message(link, drain, holdings);
        if quiet >= INTERVAL || said.as_ref() != Some(&now) {
            let Some((_, client)) = link.services.get(turn % link.services.len().max(1)) else { return };
            if sending.is_empty() {
                batch += 1;
                sending = trials.drain(..).map(|seen| seen.to_wire()).collect();
            }
            let report = NodeReport { trials: sending.clone(), batch, ..now.clone() };
            let told = tokio::time::timeout(PATIENCE, client.report(report)).await;
            if let Ok(Ok(_)) = told {
                said = Some(now);
                sending.clear();
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

/// Adds to what was not told yet.
fn gather(trials: &mut Vec<Seen>, seen: Seen) {
    if let Some(known) = trials.iter_mut().find(|known| known.same(&seen)) {
        known.add(&seen.comparison);
    } else if trials.len() < MOST_TRIALS {
        trials.push(seen);
    }
}

fn message(link: &Arc<Inner>, drain: &Drain, holdings: Vec<Holding>) -> NodeReport {
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
        trials: Vec::new(),
        batch: 0,
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
