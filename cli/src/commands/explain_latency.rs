//! `canopy explain-latency`: what a slow query waited for, from the records that the nodes keep of slow queries.
//!
//! The root's record has the critical path, whose parts sum to the query's time, and the attempts; with a configuration
//! file the other nodes are asked for their records of the same query as well.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use canopy_common::net::NetIo;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    config::Loaded,
    http::{self, Client},
    say::say,
    show::plain,
};

/// `canopy explain-latency`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy explain-latency 5f0c…  -c canopy.toml\n          \
              The id is in every answer (query_id) and in the log. Nodes keep the last 128 queries that took longer than \
              slow_threshold;\n          for a query that you can ask again: canopy search QUERY --trace")]
pub struct Args {
    /// The query's id, or as many of its first digits as tell it from others
    query_id: String,
    /// HTTP address of the root that answered
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT", value_parser = http::address)]
    root: String,
    /// Configuration file that names the other nodes (and the root, when --root is left out)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// The records of the query that one node keeps.
async fn records(admin: &str, id: &str) -> Result<Vec<Value>> {
    let client = Client::new(NetIo::tcp(), admin, Duration::from_secs(5));
    let answered = client.get("/debug/slow").await?;
    let slow: Value =
        serde_json::from_slice(answered.body()).with_context(|| format!("{admin} is no canopy node"))?;
    let mine = |record: &&Value| record["query_id"].as_str().is_some_and(|known| known.starts_with(id));
    Ok(slow["slow"].as_array().into_iter().flatten().filter(mine).cloned().collect())
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    if args.query_id.is_empty() || !args.query_id.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(anyhow!("{:?} is no query id; hint: query_id of an answer, hex digits", args.query_id));
    }
    let mut admins = Vec::new();
    if let Some(path) = &args.config {
        let nodes = Loaded::read(Some(path), &[]).checked()?.topology.nodes;
        admins.extend(nodes.into_iter().map(|node| node.admin).filter(|admin| !admin.is_empty()));
    }
    if admins.is_empty() {
        admins.push(args.root.clone());
    }
    let asked = join_all(admins.iter().map(|admin| records(admin, &args.query_id))).await;
    let mut found: Vec<(&String, Value)> = Vec::new();
    let mut silent = Vec::new();
    for (admin, records) in admins.iter().zip(asked) {
        match records {
            Ok(records) => found.extend(records.into_iter().map(|record| (admin, record))),
            Err(error) => silent.push(format!("{admin}: {}", error.root_cause())),
        }
    }
    if found.is_empty() && silent.len() == admins.len() {
        return Err(anyhow!("no node answers: {}; hint: --root HOST:PORT", silent.join("; ")));
    }
    let at_root = found.iter().find(|(_, record)| record["critical_path"].is_array());
    let Some((_, root)) = at_root else {
        return Err(anyhow!(
            "no root of {} keeps a slow query {:?}; hint: they keep the last 128 that took longer than \
             root.slow_threshold; `canopy search QUERY --trace` shows a query that is asked again",
            admins.join(", "),
            args.query_id
        ));
    };
    if args.json {
        let elsewhere: Vec<Value> = found
            .iter()
            .filter(|(_, record)| record != root)
            .map(|(admin, record)| json!({ "admin": admin, "record": record }))
            .collect();
        say!("{:#}", json!({ "root": root, "elsewhere": elsewhere, "silent": silent }));
        return Ok(());
    }
    say!("{}", told(root));
    for (admin, record) in found.iter().filter(|(_, record)| record != root) {
        say!(
            "{admin} took {:.2} ms: {}",
            record["took_ms"].as_f64().unwrap_or(0.0),
            plain(&record.to_string())
        );
    }
    for node in silent {
        say!("no answer from {node}");
    }
    Ok(())
}

/// The record as lines.
fn told(record: &Value) -> String {
    let took = record["took_ms"].as_f64().unwrap_or(0.0);
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let mut out = format!(
        "query {} ({}) took {took:.2} ms: {}\n\nits critical path\n",
        text(&record["query_id"]),
        text(&record["q"]),
        text(&record["outcome"])
    );
    let parts = record["critical_path"].as_array().map_or(&[][..], Vec::as_slice);
    let us = |part: &Value| part["us"].as_u64().unwrap_or(0) as f64 / 1000.0;
    for part in parts {
        let share = if took > 0.0 { us(part) / took * 100.0 } else { 0.0 };
        out.push_str(&format!(
            "{:9.2} ms {share:3.0} %  {} {}\n",
            us(part),
            text(&part["part"]),
            text(&part["node"])
        ));
    }
    let sum: f64 = parts.iter().map(us).sum();
    out.push_str(&format!("{sum:9.2} ms        together\n\nits attempts, those that ended last first\n"));
    for step in record["attempts"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "{:9.2} ms {:9.2} ms  {} to {}, {} shards: {}\n",
            step["start_ms"].as_f64().unwrap_or(0.0),
            step["took_ms"].as_f64().unwrap_or(0.0),
            text(&step["kind"]),
            text(&step["node"]),
            step["shards"],
            text(&step["fate"]),
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_told_with_shares_and_their_sum() {
        let record = json!({ "query_id": "ab", "q": "hot", "took_ms": 10.0, "outcome": "answered",
            "critical_path": [{ "part": "parse", "us": 1000 }, { "part": "searching", "node": "leaf-1", "us": 9000 }],
            "attempts": [{ "kind": "hedge", "node": "leaf-1", "start_ms": 1.0, "took_ms": 9.0, "shards": 4, "fate": "won" }] });
        let told = told(&record);
        assert!(told.contains("     9.00 ms  90 %  searching leaf-1\n"), "{told}");
        assert!(told.contains("    10.00 ms        together\n"), "{told}");
        assert!(told.contains("hedge to leaf-1, 4 shards: won"), "{told}");
    }
}
