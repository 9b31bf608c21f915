//! `canopy lab fleet`: how large a tree has to be, and what its tail will be.

use anyhow::{Result, anyhow};
use canopy_lab::fleet as chart;
use canopy_topology::fleet::{Demand, Fleet, LeafLatency, plan};

use super::output::{Forms, Shown};
use crate::{say::say, show};

/// `canopy lab fleet`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy lab fleet --documents 8000000000 --per-shard 40000000 --qps 150000 --replica-qps 2500 --headroom 0.3 --fan-out 60 --plot fleet.svg"
)]
pub struct Args {
    /// Documents in all
    #[arg(long)]
    documents: u64,
    /// Documents of one shard
    #[arg(long, default_value_t = 40_000_000)]
    per_shard: u64,
    /// Queries a second in all
    #[arg(long)]
    qps: f64,
    /// Queries a second that one replica answers within its latency
    #[arg(long, default_value_t = 2_500.0)]
    replica_qps: f64,
    /// Replicas beyond what the queries need, for failures and the tail: 0.3 is 30 %
    #[arg(long, default_value_t = 0.3)]
    headroom: f64,
    /// Most children of a root or aggregator
    #[arg(long, default_value_t = 64)]
    fan_out: u64,
    /// Mean time of a leaf that does not depend on documents, ms
    #[arg(long, default_value_t = 2.0)]
    base_ms: f64,
    /// Mean time of a leaf for each million documents, ms
    #[arg(long, default_value_t = 0.15)]
    ms_per_million: f64,
    /// Sigma of the logarithm of a leaf's time
    #[arg(long, default_value_t = 0.5)]
    sigma: f64,
    /// Share of calls that hang
    #[arg(long, default_value_t = 0.005)]
    hiccups: f64,
    /// For how long, ms
    #[arg(long, default_value_t = 200.0)]
    hiccup_ms: f64,
    /// Quantile of the root that is aimed at
    #[arg(long, default_value_t = 0.99)]
    quantile: f64,
    #[command(flatten)]
    shown: Shown,
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let demand = Demand {
        documents: args.documents,
        documents_per_shard: args.per_shard,
        queries_per_second: args.qps,
        queries_per_replica: args.replica_qps,
        headroom: args.headroom,
        fan_out: args.fan_out,
        leaf: LeafLatency {
            base_ms: args.base_ms,
            ms_per_million: args.ms_per_million,
            sigma: args.sigma,
            hiccups: args.hiccups,
            hiccup_ms: args.hiccup_ms,
        },
        quantile: args.quantile,
    };
    let fleet = plan(&demand).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(|(field, reason)| format!("{field} {reason}")).collect();
        anyhow!("{}", lines.join("; "))
    })?;
    let svg = |_: &Fleet| chart::svg(&demand);
    let print = |fleet: &Fleet| print(&demand, fleet);
    args.shown.write(&Forms { report: &fleet, svg: Some(&svg), print: &print, failures: &[] })
}

fn print(demand: &Demand, fleet: &Fleet) {
    let count = show::count;
    say!(
        "{} shards x {} replicas = {} leaves",
        count(fleet.shards),
        count(fleet.replicas),
        count(fleet.leaves)
    );
    match fleet.levels {
        0 => say!("no aggregators: the root asks the {} shards", fleet.shards),
        levels => say!(
            "{levels} level{} of aggregators: {} subtrees of at most {} shards",
            if levels == 1 { "" } else { "s" },
            count(fleet.subtrees),
            count(fleet.shards_per_subtree),
        ),
    }
    let percent = |quantile: f64| format!("p{}", (quantile * 1e7).round() / 1e5);
    say!(
        "{} of the root is {} of a leaf (mean {:.1} ms): {:.0} ms asked once, {:.0} ms with a hedge at the leaf's p95",
        percent(demand.quantile),
        percent(fleet.leaf_quantile),
        fleet.leaf_mean_ms,
        fleet.unhedged_ms,
        fleet.hedged_ms,
    );
    let growth = &fleet.growth;
    say!(
        "10 % more documents: {} shards, {} leaves, {:.1} % of the slots move",
        growth.more_documents_shards,
        count(growth.more_documents_leaves),
        growth.more_documents_moved * 100.0,
    );
    say!(
        "10 % more queries: {} replicas of each shard, {} leaves, nothing moves",
        growth.more_queries_replicas,
        count(growth.more_queries_leaves),
    );
}
