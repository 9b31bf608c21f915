//! `canopy status`: one screen over a tree: its nodes, asked at once, and what the topology service knows of versions, rollouts
//! and replicas. A node that does not answer is a line, not an error; so is a service that is away.

mod feed;
mod screen;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use canopy_common::net::NetIo;
use canopy_proto::topology::show_request::What;
use canopy_topology::config::{NodeConfig, Role, TopologyConfig};
use futures::future::join_all;
use serde_json::{Value, json};

pub use screen::placement;

use self::screen::{Report, Screen, Tree};
use crate::{
    config::Loaded,
    control::Service,
    failure,
    http::{self, Client},
    news::News,
    say::say,
};

/// Between two looks of `--watch`.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest that one node may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// `canopy status`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy status -c canopy.toml\n          canopy status -c canopy.toml --watch\n          canopy status --admin 127.0.0.1:8080"
)]
pub struct Args {
    /// Configuration file that names the nodes
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin address of one node, instead of a file
    #[arg(long, value_name = "HOST:PORT", value_parser = http::address)]
    admin: Vec<String>,
    /// Lists every shard on every leaf, not only those that lack something
    #[arg(long)]
    replicas: bool,
    /// Shows it again every second, until it is stopped; what is new only, where nobody sits at a terminal
    #[arg(short, long)]
    watch: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs it. Fails when a node is not ready or lacks something that it should serve, so that scripts can wait for the whole tree,
/// and when something waits for a person: a rollout that is halted, an alarm.
pub async fn run(args: Args) -> Result<()> {
    let mut topology = TopologyConfig::default();
    if let Some(path) = &args.config {
        topology = Loaded::read(Some(path), &[]).checked()?.topology;
    }
    let asked = args.admin.iter();
    topology.nodes.extend(
        asked.map(|admin| NodeConfig { admin: admin.clone(), ..NodeConfig::at(admin, Role::Root, "") }),
    );
    if topology.nodes.iter().all(|node| node.admin.is_empty()) {
        return Err(anyhow!("no node to ask; hint: -c canopy.toml, or --admin 127.0.0.1:8080"));
    }
    let mut news = News::of_stdout();
    loop {
        let mut screen = look(&args, &topology).await;
        if args.json {
            say!("{:#}", document(&screen));
        } else if args.watch {
            let corpora = screen.tree.iter_mut().filter_map(|tree| tree.status.get_mut("corpora"));
            let corpora = corpora.filter_map(Value::as_object_mut);
            corpora.flat_map(|corpora| corpora.values_mut()).for_each(|corpus| news.settled(corpus));
            news.show(screen.lines(args.replicas));
        } else {
            screen.lines(args.replicas).iter().for_each(|line| say!("{line}"));
        }
        if !args.watch {
            return verdict(&screen);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Asks everybody once.
async fn look(args: &Args, topology: &TopologyConfig) -> Screen {
    let tree = if topology.services().is_empty() { None } else { Some(know(args).await) };
    let mut nodes = topology.nodes.clone();
    let known: BTreeSet<String> = nodes.iter().map(|node| node.id.clone()).collect();
    // Those that only registered are nodes too.
    let registered =
        tree.iter().flatten().flat_map(|tree| tree.status["nodes"].as_array().into_iter().flatten());
    for node in registered {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        if let Some(role) = Role::parse(text("role")).filter(|_| !known.contains(text("node"))) {
            let at = NodeConfig::at(text("node"), role, text("address"));
            nodes.push(NodeConfig { admin: text("admin").to_owned(), ..at });
        }
    }
    nodes.retain(|node| !node.admin.is_empty());
    let reports = join_all(nodes.into_iter().map(ask)).await;
    let (tree, away) = match tree {
        None => (None, None),
        Some(Ok(tree)) => (Some(tree), None),
        Some(Err(error)) => (None, Some(failure::line(&error))),
    };
    Screen { reports, tree, away }
}

/// What the topology service knows.
async fn know(args: &Args) -> Result<Tree> {
    let client = Service::of(args.config.as_deref()).client()?;
    let (status, replicas) =
        futures::try_join!(client.show(What::Status, 0), client.show(What::Replicas, 0))?;
    Ok(Tree { status, replicas })
}

async fn ask(node: NodeConfig) -> Report {
    let client = Client::new(NetIo::tcp(), &node.admin, PATIENCE);
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
        role: status["role"].as_str().unwrap_or(node.role.as_str()).to_owned(),
        admin: node.admin,
        ready,
        status,
    }
}

fn document(screen: &Screen) -> Value {
    let list: Vec<Value> = screen
        .reports
        .iter()
        .map(|r| {
            json!({ "node": r.id, "role": r.role, "admin": r.admin, "ready": r.ready.is_ok(),
                    "reason": r.ready.as_ref().err(), "status": r.status })
        })
        .collect();
    let (unready, lacking) = (screen.unready().count(), screen.lacking().count());
    let halted: Vec<String> = screen.halted().collect();
    let mut document = json!({ "nodes": list, "unready": unready, "lacking": lacking, "halted": halted });
    document["feeds"] = json!(feed::of(&screen.reports));
    if let Some(tree) = &screen.tree {
        document["topology"] = tree.status.clone();
        document["replicas"] = tree.replicas.clone();
    }
    if let Some(away) = &screen.away {
        document["topology_away"] = json!(away);
    }
    document
}

fn verdict(screen: &Screen) -> Result<()> {
    let unready: Vec<&str> = screen.unready().map(|report| report.id.as_str()).collect();
    let lacking: Vec<&str> = screen.lacking().map(|(report, _)| report.id.as_str()).collect();
    let faulty: Vec<&str> = screen.faulty().collect();
    let lacking = (lacking, "lack something that they should serve");
    let wrong = [(unready, "not ready"), lacking, (faulty, "are faulty: others are asked before them")]
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, what)| {
            let some = names.iter().take(10).copied().collect::<Vec<_>>().join(", ");
            let more = if names.len() > 10 { ", ..." } else { "" };
            format!("{} of {} nodes {what}: {some}{more}", names.len(), screen.reports.len())
        })
        .chain(feed::of(&screen.reports).into_iter().flat_map(|(corpus, feed)| {
            feed.alarms.into_iter().map(move |alarm| format!("{corpus}: {alarm}"))
        }))
        .chain(screen.halted())
        .chain(screen.alarmed())
        .chain(screen.lost());
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(anyhow!(wrong.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(status: Value) -> Screen {
        let tree = Tree { status, replicas: Value::Null };
        Screen { reports: Vec::new(), tree: Some(tree), away: None }
    }

    #[test]
    fn what_waits_for_a_person_is_no_success() {
        let stopped = |why: &str| json!({ "corpora": { "web": { "rollout": { "from": 1, "to": 2, "stopped": why } }, "news": {} } });
        let halted = verdict(&screen(stopped("halted: errors grew"))).unwrap_err().to_string();
        assert!(halted.contains("the rollout of web to v2 is halted: errors grew"), "{halted}");
        assert!(halted.contains("canopy rollout resume"), "{halted}");
        // Somebody wanted a pause.
        assert!(verdict(&screen(stopped("paused by ann"))).is_ok());
        let alarm = json!({ "corpus": "web", "shard": "main/0", "node": "leaf-1" });
        let alarmed = verdict(&screen(json!({ "alarms": [alarm, alarm] }))).unwrap_err().to_string();
        assert!(alarmed.contains("2 alarms: web main/0 on leaf-1"), "{alarmed}");
        assert!(verdict(&screen(json!({ "alarms": [], "corpora": {} }))).is_ok());
        let lost =
            json!([{ "corpus": "web", "versions": [3, 4], "shards": 2, "leaves": 4, "placed": false }]);
        let lost = verdict(&screen(json!({ "lost": lost }))).unwrap_err().to_string();
        assert!(lost.contains("4 leaves hold 2 shards of web (v3,v4)"), "{lost}");
        assert!(
            lost.contains("topology place --corpus web") && lost.contains("--version 4 --at-once"),
            "{lost}"
        );
        let node = |health| json!({ "nodes": [{ "node": "leaf-3", "state": "here", "health": health }] });
        let faulty = verdict(&screen(node("faulty"))).unwrap_err().to_string();
        assert!(faulty.contains("faulty: others are asked before them: leaf-3"), "{faulty}");
        assert!(verdict(&screen(node("sub_healthy"))).is_ok());
    }

    #[test]
    fn a_root_that_can_not_serve_a_corpus_is_ready_and_said_to_lack_it() {
        let mut screen = screen(json!({}));
        screen.reports.push(Report {
            id: "root-1".to_owned(),
            role: "root".to_owned(),
            admin: "h:1".to_owned(),
            ready: Ok(()),
            status: json!({ "corpora": {
                "web": { "state": "serving" }, "nope": { "state": "opening", "why": "does not exist" },
            }}),
        });
        let lacks = verdict(&screen).unwrap_err().to_string();
        assert!(lacks.contains("1 of 1 nodes lack something that they should serve: root-1"), "{lacks}");
        let shown = screen.lines(false).join("\n");
        assert!(shown.contains("ready, lacks 1") && shown.contains("nope: does not exist"), "{shown}");
    }
}
