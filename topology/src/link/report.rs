//! Says how the node is: every second, and at once when something of it is different.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    drain::Drain,
    ids::{ShardId, Version},
};
use canopy_proto::topology::{self as wire, Held, JudgeTask, Load, NodeReport, ShardLoad, held};

use tonic::Code;

use super::{Condition, Holding, Inner, Progress, Work};
use crate::{gates::wire::Seen, placement::Capacity, redirect, routing::Trial};

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
    let (mut turn, mut said, mut quiet, mut refused) = (0, None, Duration::ZERO, false);
    let mut trials: Vec<Seen> = Vec::new();
    // Sums under way keep their number until they are answered, so that none is counted twice.
    let (mut sending, mut batch) = (Vec::new(), u64::from(std::process::id()) << 32);
    loop {
        let ended = drain.started();
        let Condition { holdings, trials: seen, capacity, work } = condition();
        for one in seen {
            gather(&mut trials, one);
        }
        let now = message(link, drain, holdings, capacity);
        if quiet >= INTERVAL || said.as_ref() != Some(&now) {
            let Some((_, client)) = link.services.get(turn % link.services.len().max(1)) else { return };
            if sending.is_empty() {
                batch += 1;
                sending = trials.drain(..).map(|seen| seen.to_wire()).collect();
            }
            let report = NodeReport { trials: sending.clone(), batch, load: work.map(load), ..now.clone() };
            let told = tokio::time::timeout(PATIENCE, client.report(report)).await;
            if let Ok(Ok(reply)) = told {
                link.contact.taken(reply.epoch, link.routing.now().epoch.0);
                *link.tasks.lock() = reply.judge.into_iter().map(task).collect();
                said = Some(now);
                sending.clear();
                refused = false;
            } else {
                let status = told.ok().and_then(Result::err);
                let next = link.next(turn, status.as_ref());
                if let Some(status) = &status
                    && redirect::leader(status).is_none()
                    && matches!(
                        status.code(),
                        Code::FailedPrecondition | Code::InvalidArgument | Code::Unauthenticated
                    )
                    && !std::mem::replace(&mut refused, true)
                {
                    let (node, reason) = (&link.node.id, status.message());
                    tracing::error!(node, reason, "the topology service does not take this node's reports");
                }
                said = None;
                turn = next;
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

fn task(task: JudgeTask) -> (String, Trial) {
    let JudgeTask { corpus, version, control, gate } = task;
    (corpus, Trial { version: Version(version), control: Version(control), shadow: 0, compared: 0, gate })
}

/// Adds to what was not told yet.
fn gather(trials: &mut Vec<Seen>, seen: Seen) {
    if let Some(known) = trials.iter_mut().find(|known| known.same(&seen)) {
        known.add(&seen.comparison);
    } else if trials.len() < MOST_TRIALS {
        trials.push(seen);
    }
}

fn message(link: &Arc<Inner>, drain: &Drain, holdings: Vec<Holding>, capacity: Capacity) -> NodeReport {
    let node = &link.node;
    let Capacity { memory, disk, cores } = capacity;
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
        incarnation: link.incarnation,
        cluster: link.cluster.clone(),
        capacity: (capacity != Capacity::default()).then_some(wire::Capacity { memory, disk, cores }),
        load: None,
    }
}

fn held(holding: Holding) -> Held {
    let (state, reason, everywhere) = match holding.progress {
        Progress::Loading => (held::State::Loading, String::new(), false),
        Progress::Resident => (held::State::Resident, String::new(), false),
        Progress::Retiring => (held::State::Retiring, String::new(), false),
        Progress::Void => (held::State::Void, String::new(), false),
        Progress::Failed { reason, everywhere } => (held::State::Failed, reason, everywhere),
    };
    Held {
        corpus: holding.corpus,
        version: holding.version.0,
        shard: holding.shard.map(|shard| shard.to_string()).unwrap_or_default(),
        state: state as i32,
        reason,
        everywhere,
        bytes: holding.bytes,
        memory: holding.memory,
    }
}

fn load(work: Work) -> Load {
    let Work { queries, errors, latency_p90_us, lag_ms, shards } = work;
    let shard = |(corpus, shard, queries): (String, ShardId, u64)| ShardLoad {
        corpus,
        shard: shard.to_string(),
        queries,
    };
    Load { queries, errors, latency_p90_us, lag_ms, shards: shards.into_iter().map(shard).collect() }
}
