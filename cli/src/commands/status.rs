//! `canopy status`: one screen over all nodes of a configuration, asked at once; a node that does not answer is a line, not
//! an error.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use canopy_common::net::NetIo;
use canopy_topology::config::{NodeConfig, Role};
use comfy_table::{Table, presets};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{config::Loaded, failure, http::Client, say::say, show};

/// `canopy status`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy status -c canopy.toml\n          canopy status --admin 127.0.0.1:8080"
)]
pub struct Args {
    /// Configuration file that names the nodes
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin address of one node, instead of a file
    #[arg(long, value_name = "HOST:PORT")]
    admin: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

struct Report {
    id: String,
    role: String,
    admin: String,
    ready: Result<(), String>,
    status: Value,
}

async fn ask(node: NodeConfig) -> Report {
    let client = Client::new(NetIo::tcp(), &node.admin, Duration::from_secs(3));
    let (ready, status) = futures::join!(client.get("/healthz/ready"), client.get("/status"));
    let ready = match ready {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(String::from_utf8_lossy(answer.body()).trim().to_owned()),
        Err(error) => Err(failure::line(&error)),
    };
    let status =
        status.ok().and_then(|answer| serde_json::from_slice(answer.body()).ok()).unwrap_or(Value::Null);
    Report {
        id: status["node"].as_str().unwrap_or(&node.id).to_owned(),
        role: status["role"]
            .as_str()
            .map_or_else(|| format!("{:?}", node.role).to_lowercase(), str::to_owned),
        admin: node.admin,
        ready,
        status,
    }
}

/// Runs it. Fails when a node is not ready, so that scripts can wait for it.
pub async fn run(args: Args) -> Result<()> {
    let mut nodes = Vec::new();
    if let Some(path) = &args.config {
        nodes = Loaded::read(Some(path), &[]).checked()?.topology.nodes;
    }
    nodes.extend(
        args.admin
            .iter()
            .map(|admin| NodeConfig { admin: admin.clone(), ..NodeConfig::at(admin, Role::Root, "") }),
    );
    nodes.retain(|node| !node.admin.is_empty());
    if nodes.is_empty() {
        return Err(anyhow!("no node to ask; hint: -c canopy.toml, or --admin 127.0.0.1:8080"));
    }
    let reports = join_all(nodes.into_iter().map(ask)).await;
    let unready = reports.iter().filter(|report| report.ready.is_err()).count();
    if args.json {
        let list: Vec<Value> = reports
            .iter()
            .map(|r| {
                json!({ "node": r.id, "role": r.role, "admin": r.admin, "ready": r.ready.is_ok(),
                        "reason": r.ready.as_ref().err(), "status": r.status })
            })
            .collect();
        say!("{:#}", json!({ "nodes": list, "unready": unready }));
    } else {
        print_table(&reports);
    }
    if unready == 0 {
        return Ok(());
    }
    let names = reports.iter().filter(|report| report.ready.is_err()).map(|report| report.id.as_str());
    Err(anyhow!("{unready} of {} nodes not ready: {}", reports.len(), names.collect::<Vec<_>>().join(", ")))
}

fn print_table(reports: &[Report]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["node", "role", "http", "health", "shards", "documents", "version", "reason"]);
    for report in reports {
        let shards: Vec<&Value> = report.status["shards"].as_array().into_iter().flatten().collect();
        let serving = shards.iter().filter(|shard| shard["state"] == "serving").count();
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
        let documents: u64 = shards.iter().map(|shard| number(&shard["documents"])).sum();
        let versions: std::collections::BTreeSet<u64> =
            shards.iter().map(|shard| number(&shard["serving"])).filter(|v| *v > 0).collect();
        let versions: Vec<String> = versions.iter().map(|v| format!("v{v}")).collect();
        let errors = shards.iter().filter_map(|shard| shard["last_error"].as_str());
        let unready = report.ready.as_ref().err().cloned();
        let passed_over = report.status["passed_over"].as_array().into_iter().flatten().map(|passed| {
            let [corpus, reason] = ["corpus", "reason"].map(|key| passed[key].as_str().unwrap_or("?"));
            format!("{corpus} v{} can't be served: {reason}", number(&passed["version"]))
        });
        let errors = errors.filter(|error| !error.is_empty()).take(1).map(str::to_owned);
        let reasons: Vec<String> = unready.into_iter().chain(errors).chain(passed_over).collect();
        let health = match (&report.ready, report.status.is_null()) {
            (Ok(()), _) => "ready",
            (Err(_), true) => "no answer",
            (Err(_), false) => "not ready",
        };
        table.add_row([
            report.id.clone(),
            report.role.clone(),
            report.admin.clone(),
            health.to_owned(),
            if shards.is_empty() { String::new() } else { format!("{serving}/{}", shards.len()) },
            if shards.is_empty() { String::new() } else { show::count(documents) },
            versions.join(","),
            show::plain(&reasons.join("; ")),
        ]);
    }
    for line in table.lines() {
        say!("{}", line.trim_end());
    }
}
