//! The exact values for a workload and a policy, where there are any: no queues, all leaves alike, copies independent.

use serde::{Deserialize, Serialize};

use crate::{
    exact::{Copy, Grace, Scatter, optimum},
    policy::{Hedge, Policy, Wait},
    workload::Workload,
};

/// Exact values beside the measured ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exact {
    /// What it is: `exact` of the same policy, or the `optimum` that no policy with these copies and this budget beats
    /// (each quantile by the best delays for that quantile).
    pub kind: Kind,
    /// Model ms.
    pub p50: f64,
    /// Model ms.
    pub p99: f64,
    /// Model ms.
    pub p999: f64,
    /// Copies per call.
    pub extra: f64,
    /// Mean coverage.
    pub coverage: f64,
    /// Delays of the copies, of the optimum those for p99.
    pub copies: Vec<Copy>,
}

/// What the values are.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Of the same policy.
    Exact,
    /// The best there is.
    Optimum,
}

/// Whether the formulas apply.
fn plain(workload: &Workload) -> bool {
    workload.workers == 0 && workload.slow == 1.0 && workload.slowness.is_empty()
}

/// The scatter of an arm that waits for all and sends no copies.
pub fn unhedged(workload: &Workload, policy: &Policy) -> Option<Scatter> {
    let nothing = policy.hedge == Hedge::Off && policy.wait == Wait::All && plain(workload);
    nothing.then(|| Scatter::unhedged(workload.latency))
}

/// Exact values of an arm.
pub fn of(workload: &Workload, policy: &Policy) -> Option<Exact> {
    if !plain(workload) {
        return None;
    }
    let (latency, shards) = (workload.latency, workload.shards);
    let unhedged = Scatter::unhedged(latency);
    let alone = workload.replicas < 2;
    let scatter = match policy.hedge {
        Hedge::Off => unhedged,
        _ if alone => unhedged,
        Hedge::Delay(delay) => Scatter::hedged(latency, &[Copy { delay, chance: 1.0 }]),
        Hedge::Quantile(quantile) => Scatter::at_quantile(latency, quantile, 1.0),
        Hedge::Factor(copies) => Scatter::at_once(latency, copies.min(workload.replicas)),
        Hedge::Auto => return best(workload, policy),
        Hedge::Tied => return None,
    };
    let exact = |[p50, p99, p999]: [f64; 3], coverage: f64| Exact {
        kind: Kind::Exact,
        p50,
        p99,
        p999,
        extra: scatter.extra(),
        coverage,
        copies: scatter.copies().to_vec(),
    };
    const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
    match policy.wait {
        Wait::All => Some(exact(QUANTILES.map(|p| scatter.quantile(p, shards)), 1.0)),
        Wait::AllBut(missing) if missing < shards => {
            let covered = 1.0 - f64::from(missing) / f64::from(shards);
            Some(exact(QUANTILES.map(|p| scatter.quantile_but(p, shards, missing)), covered))
        }
        Wait::AllBut(_) => None,
        // The formula is for one shard that may be missing.
        Wait::Adaptive { enough, grace } => {
            let allowed = f64::from(shards) * (1.0 - enough);
            if !(1.0 - 1e-9..2.0 - 1e-9).contains(&allowed) || shards < 2 {
                return None;
            }
            let grace = Grace { scatter: scatter.clone(), shards, deadline: workload.deadline, share: grace };
            Some(exact(QUANTILES.map(|p| grace.quantile(p)), 1.0 - grace.partial() / f64::from(shards)))
        }
    }
}

fn best(workload: &Workload, policy: &Policy) -> Option<Exact> {
    if policy.wait != Wait::All {
        return None;
    }
    let hedges = (workload.replicas - 1).min(2);
    let best = |p: f64| optimum(workload.latency, workload.shards, p, policy.budget, hedges);
    let at = |p: f64| best(p).quantile(p, workload.shards);
    let (usual, p999) = (best(0.99), at(0.999));
    Some(Exact {
        kind: Kind::Optimum,
        p50: at(0.5),
        p99: usual.quantile(0.99, workload.shards),
        p999,
        extra: policy.budget,
        coverage: 1.0,
        copies: usual.copies().to_vec(),
    })
}
