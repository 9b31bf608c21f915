//! `canopy rollout` and `canopy rollback`: a version for the queries of a corpus, step by step, and back.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use canopy_format::store::VersionStore;
use canopy_proto::topology::{
    AbortRollout, PauseRollout, ResumeRollout, Rollback, StartRollout, command_request::Command as Asked,
    show_request::What,
};
use serde_json::Value;

use crate::{
    control::{Client, Service},
    failure::open_store,
    say::say,
};

/// Between two looks of `watch`.
const LOOK: Duration = Duration::from_millis(500);

/// `canopy rollout`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Give a version to the queries: load, shadow, canary, all; back by itself when it is worse
    Start(StartArgs),
    /// Where the rollout of a corpus is, and how the last ones ended
    Status(CorpusArgs),
    /// The same, until it has ended
    Watch(CorpusArgs),
    /// Stop it where it is
    Pause(CorpusArgs),
    /// Go on, with the step judged anew
    Resume(ResumeArgs),
    /// Turn back and give up
    Abort(CorpusArgs),
}

/// `canopy rollout start`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy rollout start -c canopy.toml --corpus web --version 1743 --dry-run")]
pub struct StartArgs {
    #[command(flatten)]
    service: Service,
    /// Corpus
    #[arg(long)]
    corpus: String,
    /// Version; default: the newest complete one of --store
    #[arg(long)]
    version: Option<u64>,
    /// Where versions are, to find the newest
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// File with the steps and limits (TOML); default: 0, 1, 10, 50, 100 %
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// All queries at once: no steps, no judgement
    #[arg(long, conflicts_with = "plan")]
    at_once: bool,
    /// Turn back from a rollout that is under way
    #[arg(long)]
    supersede: bool,
    /// Print what it would do, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// One corpus.
#[derive(clap::Args)]
pub struct CorpusArgs {
    #[command(flatten)]
    service: Service,
    /// Corpus
    #[arg(long)]
    corpus: String,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `canopy rollout resume`.
#[derive(clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    of: CorpusArgs,
    /// Take the step as passed, whatever its judgement
    #[arg(long)]
    accept: bool,
}

/// `canopy rollback`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy rollback -c canopy.toml --corpus web --reason 'empty pages'")]
pub struct RollbackArgs {
    #[command(flatten)]
    of: CorpusArgs,
    /// Version; default: the one that served before
    #[arg(long)]
    to: Option<u64>,
    /// Why, for the audit log
    #[arg(long, default_value = "no reason given")]
    reason: String,
}

/// Runs `canopy rollout`.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Start(args) => start(args).await,
        Command::Status(args) => {
            let corpus = corpus(&args.service.client()?, &args.corpus).await?;
            show(&args, &corpus);
            Ok(())
        }
        Command::Watch(args) => watch(&args).await,
        Command::Pause(args) => ask(&args, Asked::Pause(PauseRollout { corpus: args.corpus.clone() })).await,
        Command::Resume(ResumeArgs { of, accept }) => {
            ask(&of, Asked::Resume(ResumeRollout { corpus: of.corpus.clone(), accept })).await
        }
        Command::Abort(args) => ask(&args, Asked::Abort(AbortRollout { corpus: args.corpus.clone() })).await,
    }
}

/// Runs `canopy rollback`.
pub async fn rollback(args: RollbackArgs) -> Result<()> {
    let RollbackArgs { of, to, reason } = args;
    let corpus = of.corpus.clone();
    ask(&of, Asked::Rollback(Rollback { corpus, to: to.unwrap_or(0), reason })).await
}

async fn ask(args: &CorpusArgs, command: Asked) -> Result<()> {
    let reply = args.service.client()?.command(command).await?;
    print_done(args.json, &reply.done, reply.epoch);
    Ok(())
}

fn print_done(json: bool, done: &[String], epoch: u64) {
    if json {
        say!("{:#}", serde_json::json!({ "done": done, "epoch": epoch }));
    } else {
        for line in done {
            say!("{line}");
        }
    }
}

async fn start(args: StartArgs) -> Result<()> {
    let version = match (args.version, &args.store) {
        (Some(version), _) => version,
        (None, Some(store)) => newest(&open_store(store)?, &args.corpus).await?,
        (None, None) => {
            return Err(anyhow!("which version? hint: --version N, or --store URL for the newest"));
        }
    };
    let policy = match &args.plan {
        Some(file) => read_plan(file)?,
        None if args.at_once => serde_json::to_string(&canopy_topology::rollout::Policy::default().first())?,
        None => String::new(),
    };
    let start = StartRollout {
        corpus: args.corpus.clone(),
        version,
        policy,
        supersede: args.supersede,
        dry_run: args.dry_run,
    };
    let reply = args.service.client()?.command(Asked::Start(start)).await?;
    if args.dry_run {
        let plan: Value = serde_json::from_str(&reply.document)?;
        if args.json {
            say!("{plan:#}");
        } else {
            print_plan(&plan);
        }
        return Ok(());
    }
    print_done(args.json, &reply.done, reply.epoch);
    Ok(())
}

async fn newest(store: &VersionStore, corpus: &str) -> Result<u64> {
    Ok(store.latest(corpus).await?.version.0)
}

/// A plan as the service reads it.
fn read_plan(file: &PathBuf) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let policy: canopy_topology::rollout::Policy =
        toml::from_str(&text).with_context(|| format!("{} is not a rollout plan", file.display()))?;
    Ok(serde_json::to_string(&policy)?)
}

fn print_plan(plan: &Value) {
    for line in plan["answer"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("{line}");
    }
    for step in plan["steps"].as_array().into_iter().flatten() {
        let waves = step["waves"].as_array().map_or(0, Vec::len);
        say!(
            "{:>4} %  bake {}  sample {}  after {} of loading, {} rows hold it",
            step["percent"],
            step["bake"].as_str().unwrap_or("?"),
            step["sample"],
            if waves == 1 { "1 wave".to_owned() } else { format!("{waves} waves") },
            step["rows"],
        );
        for wave in step["waves"].as_array().into_iter().flatten() {
            say!("        {} replicas on {} leaves", wave["replicas"], wave["leaves"]);
        }
    }
    for warning in plan["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("warning: {warning}");
    }
}

async fn corpus(client: &Client, name: &str) -> Result<Value> {
    let status = client.show(What::Status, 0).await?;
    let corpora: BTreeMap<String, Value> = serde_json::from_value(status["corpora"].clone())?;
    let known: Vec<&str> = corpora.keys().map(String::as_str).collect();
    let missing = || anyhow!("there is no corpus {name:?}; placed are: {}", known.join(", "));
    corpora.get(name).cloned().ok_or_else(missing)
}

fn show(args: &CorpusArgs, corpus: &Value) {
    if args.json {
        say!("{corpus:#}");
    } else {
        for line in lines(&args.corpus, corpus) {
            say!("{line}");
        }
    }
}

/// The rollout of a corpus in a few lines.
pub fn lines(name: &str, corpus: &Value) -> Vec<String> {
    let version =
        |value: &Value| value.as_u64().map_or_else(|| "none".to_owned(), |version| format!("v{version}"));
    let pins = corpus["pins"].as_array().into_iter().flatten();
    let pins = pins.map(|pin| {
        format!("{} {} %", version(&pin["version"]), pin["share"].as_f64().unwrap_or(0.0) / 100.0)
    });
    let pins: Vec<_> = pins.collect();
    let mut lines = vec![format!("{name}: live {}, queries: {}", version(&corpus["live"]), pins.join(", "))];
    let rollout = &corpus["rollout"];
    if !rollout.is_null() {
        lines.push(format!(
            "  {} -> {}: {}; {} of {} replicas hold it",
            version(&rollout["from"]),
            version(&rollout["to"]),
            rollout["state"].as_str().unwrap_or("?"),
            rollout["resident"],
            rollout["replicas"],
        ));
        for failed in rollout["failed"].as_array().into_iter().flatten() {
            let [shard, node, reason] =
                ["shard", "node", "reason"].map(|key| failed[key].as_str().unwrap_or("?"));
            lines.push(format!("  {shard} on {node}: {reason}"));
        }
    }
    if let Some(waiting) = corpus["waiting"].as_object() {
        lines.push(format!("  waiting: {}", version(&waiting["to"])));
    }
    for ended in corpus["ended"].as_array().into_iter().flatten().take(3) {
        let [outcome, reason] = ["outcome", "reason"].map(|key| ended[key].as_str().unwrap_or("?"));
        lines.push(format!("  {}: {outcome} ({reason})", version(&ended["to"])));
    }
    lines
}

/// Prints each change until the new version serves all queries. Fails when it is stopped or was turned back.
async fn watch(args: &CorpusArgs) -> Result<()> {
    let client = args.service.client()?;
    let mut printed = Vec::new();
    loop {
        let corpus = corpus(&client, &args.corpus).await?;
        let lines = lines(&args.corpus, &corpus);
        if lines != printed {
            show(args, &corpus);
            printed = lines;
        }
        if let Some(stopped) = corpus["rollout"]["stopped"].as_str() {
            return Err(anyhow!("{stopped}; hint: resume, abort or roll back"));
        }
        let serves = !corpus["live"].is_null() && corpus["live"] == corpus["rollout"]["to"];
        if serves && corpus["waiting"].is_null() {
            return Ok(());
        }
        if corpus["rollout"].is_null() && corpus["waiting"].is_null() {
            let last = &corpus["ended"][0];
            return match last["outcome"].as_str() {
                None | Some("serving") => Ok(()),
                Some(outcome) => Err(anyhow!("{outcome}: {}", last["reason"].as_str().unwrap_or("?"))),
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}
