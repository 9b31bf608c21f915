//! What shards cost the root: CPU time of the root's process per query with 64 shards on 4 leaves, against 4 shards on 4
//! leaves of the same corpus. Real processes, the same queries, arms alternating by batches of 25, one query in flight;
//! once without facets and once with two.
//!
//! The figure is the median over rounds of the ratio of CPU times. Both arms must answer every query completely.
//!
//! `cargo build --release -p canopy-cli -p canopy-bench && target/release/root --input passages.jsonl.gz --documents 100000`

use std::time::Duration;

use anyhow::{Result, ensure};
use canopy_bench::{asked::Asked, processes::Processes, served, spent::median};
use canopy_common::{
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::v1::{QueryRequest, search_client::SearchClient};
use canopy_topology::config::Role;
use clap::Parser;

/// Arguments.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    asked: Asked,
    /// Passes over the queries
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Leaves
    #[arg(long, default_value_t = 4)]
    leaves: u32,
    /// Shards of the two arms
    #[arg(long, num_args = 2, default_values_t = [4, 64])]
    shards: Vec<u32>,
    /// Facets of the second pass
    #[arg(long, default_value = "host,lang")]
    facets: String,
}

const BATCH: usize = 25;

struct Arm {
    tree: Processes,
    client: SearchClient<ClientChannel>,
}

impl Arm {
    async fn ask(&mut self, text: &str, facets: &str) -> Result<()> {
        let request = QueryRequest {
            corpus: "web".into(),
            q: text.to_owned(),
            completion: "all".into(),
            timeout_ms: 10_000,
            facets: facets.to_owned(),
            ..Default::default()
        };
        let answer = self.client.search(request).await?.into_inner();
        ensure!(
            answer.coverage.is_some_and(|coverage| coverage.complete),
            "{text:?}: the answer is not complete"
        );
        Ok(())
    }
}

async fn measure(arms: &mut [Arm], texts: &[String], facets: &str, rounds: usize) -> Result<()> {
    let (mut small, mut large, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut spent = [Duration::ZERO; 2];
        for (at, batch) in texts.chunks(BATCH).enumerate() {
            for turn in 0..2 {
                let which = (turn + at + round) % 2;
                let before = arms[which].tree.cpu(Role::Root);
                for text in batch {
                    arms[which].ask(text, facets).await?;
                }
                spent[which] += arms[which].tree.cpu(Role::Root).saturating_sub(before);
            }
        }
        // The first round warms up.
        if round > 0 {
            let us = spent.map(|spent| spent.as_secs_f64() * 1e6 / texts.len() as f64);
            small.push(us[0]);
            large.push(us[1]);
            ratios.push(us[1] / us[0]);
        }
    }
    let ratio = median(&mut ratios);
    println!(
        "{:12} {:>10.0} {:>10.0} {ratio:>8.2} ({:.2}-{:.2})",
        if facets.is_empty() { "no facets" } else { facets },
        median(&mut small),
        median(&mut large),
        ratios[0],
        ratios[ratios.len() - 1]
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let texts = options.asked.texts()?;
    let mut arms = Vec::new();
    let mut dirs = Vec::new();
    for shards in &options.shards {
        let dir = tempfile::tempdir()?;
        served::build(dir.path(), &[options.asked.corpus(dir.path())?], *shards).await?;
        let tree = Processes::start(dir.path(), "tree", served::flat(*shards, options.leaves)).await?;
        let channel = rpc::channel(&RpcConfig::default(), &NetIo::tcp(), tree.address(Role::Root)?.0)?;
        arms.push(Arm { tree, client: SearchClient::new(channel) });
        dirs.push(dir);
    }
    println!("{} queries, {} rounds; root CPU us a query, medians", texts.len(), options.rounds);
    let name = |at: usize| format!("{} shards", options.shards[at]);
    println!("{:12} {:>10} {:>10} {:>8}", "query", name(0), name(1), "ratio");
    measure(&mut arms, &texts, "", options.rounds).await?;
    measure(&mut arms, &texts, &options.facets, options.rounds).await
}
