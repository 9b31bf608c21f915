//! What a call costs: one unhedged arm, `cost SHARDS QUERIES HEDGE`; wall microseconds per call that came to a leaf.

use canopy_lab::{
    arm,
    policy::{Hedge, Policy},
    workload::Workload,
};

fn main() -> canopy_lab::Result<()> {
    let mut words = std::env::args().skip(1);
    let mut next = |default: &str| words.next().unwrap_or_else(|| default.to_owned());
    let (shards, queries, hedge) = (next("100"), next("20000"), next("off"));
    let mut workload = Workload::plain(0.005);
    workload.shards = shards.parse().unwrap_or(100);
    workload.queries = queries.parse().unwrap_or(20_000);
    let policy = Policy::hedge(hedge.parse::<Hedge>()?);
    let outcome = arm::run(&workload, &policy, &|_| {})?;
    let calls = outcome.calls as f64;
    println!(
        "{} shards: p50 {:.2} p99 {:.2} p99.9 {:.2}, extra {:.4}, {:.2} us per call, {:?}",
        workload.shards,
        outcome.ms(0.5),
        outcome.ms(0.99),
        outcome.ms(0.999),
        outcome.extra(),
        outcome.cost_us as f64 / calls,
        outcome.counts,
    );
    Ok(())
}
