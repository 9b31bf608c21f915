//! `canopy rollout` and `canopy rollback`: a version for the queries of a corpus, step by step, and back.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use canopy_format::store::VersionStore;
use canopy_proto::topology::{
    AbortRollout, PauseRollout, ResumeRollout, Rollback, StartRollout, command_request::Command as Asked,
    show_request::What,
};
use canopy_topology::{
    gates::judged::{Judged, MOST_BYTES},
    rollout::Policy,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    control::{Client, Service},
    say::say,
    store,
};

/// Between two looks of `watch`.
const LOOK: Duration = Duration::from_millis(500);
/// Longest reason on a screen, characters.
const MOST_REASON: usize = 240;

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
    /// Go on, with the step judged anew; or at once, without the steps that are left
    Resume(ResumeArgs),
    /// Turn back and give up; or give up the one that waits
    Abort(AbortArgs),
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
    /// File with the steps, limits and judged queries (TOML); default: 0, 1, 10, 50, 100 %
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// All queries as soon as it is loaded: no steps, no judgement. One to this version that is under way goes on so
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
    /// Leave the other steps out: all queries as soon as it is loaded
    #[arg(long, conflicts_with = "accept")]
    at_once: bool,
}

/// `canopy rollout abort`.
#[derive(clap::Args)]
pub struct AbortArgs {
    #[command(flatten)]
    of: CorpusArgs,
    /// The one that waits, not the one under way
    #[arg(long)]
    waiting: bool,
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
    /// Where it is not held any more: all queries as soon as it is loaded, instead of step by step
    #[arg(long)]
    at_once: bool,
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
        Command::Resume(ResumeArgs { of, accept, at_once }) => {
            ask(&of, Asked::Resume(ResumeRollout { corpus: of.corpus.clone(), accept, at_once })).await
        }
        Command::Abort(AbortArgs { of, waiting }) => {
            ask(&of, Asked::Abort(AbortRollout { corpus: of.corpus.clone(), waiting })).await
        }
    }
}

/// Runs `canopy rollback`.
pub async fn rollback(args: RollbackArgs) -> Result<()> {
    let RollbackArgs { of, to, reason, at_once } = args;
    if let Some(to) = to {
        exists(&of.service, &of.corpus, to).await?;
    }
    let corpus = of.corpus.clone();
    ask(&of, Asked::Rollback(Rollback { corpus, to: to.unwrap_or(0), reason, at_once })).await
}

/// Whether the store of the configuration file has the version. Errors: it has not, and what it has. A store that this machine
/// can't read says nothing: leaves and roots may.
async fn exists(service: &Service, corpus: &str, version: u64) -> Result<()> {
    let Some(config) = service.config() else { return Ok(()) };
    let known = match store::settings(None, Some(config)).and_then(|settings| store::open(&settings)) {
        Ok(store) => store.versions(corpus).await,
        Err(_) => return Ok(()),
    };
    let Ok(known) = known else { return Ok(()) };
    if known.is_empty() || known.iter().any(|known| known.0 == version) {
        return Ok(());
    }
    let newest: Vec<String> = known.iter().rev().take(8).map(ToString::to_string).collect();
    let newest = newest.join(", ");
    Err(anyhow!(
        "v{version} of {corpus} is not in the store: removed by `canopy index gc`, or never built; it has {newest}{}",
        if known.len() > 8 { " and older" } else { "" }
    ))
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
        (None, Some(store)) => {
            newest(&store::open(&store::settings(Some(store), None)?)?, &args.corpus).await?
        }
        (None, None) => {
            return Err(anyhow!("which version? hint: --version N, or --store URL for the newest"));
        }
    };
    exists(&args.service, &args.corpus, version).await?;
    let policy = args.plan.as_deref().map(read_plan).transpose()?.unwrap_or_default();
    let start = StartRollout {
        corpus: args.corpus.clone(),
        version,
        policy,
        supersede: args.supersede,
        dry_run: args.dry_run,
        at_once: args.at_once,
    };
    let reply = args.service.client()?.command(Asked::Start(start)).await?;
    if args.dry_run {
        let plan: Value = serde_json::from_str(&reply.document)?;
        if args.json {
            say!("{plan:#}");
        } else {
            print_plan(&plan);
        }
        if let Some(refused) = plan["refused"].as_str() {
            return Err(anyhow!("it would be refused: {refused}"));
        }
        return Ok(());
    }
    print_done(args.json, &reply.done, reply.epoch);
    Ok(())
}

async fn newest(store: &VersionStore, corpus: &str) -> Result<u64> {
    Ok(store.latest(corpus).await?.version.0)
}

/// A plan as the service reads it: its `judged` names a file, whose text takes the name's place.
fn read_plan(file: &Path) -> Result<String> {
    let not_a_plan = || format!("{} is not a rollout plan", file.display());
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut plan: toml::Table = toml::from_str(&text).with_context(not_a_plan)?;
    let judged = plan.remove("judged");
    let mut policy = Policy::deserialize(plan).with_context(not_a_plan)?;
    if let Some(judged) = judged {
        let name = judged.as_str().ok_or_else(|| anyhow!("judged: it is not the name of a file"));
        policy.judged = read_judged(&file.with_file_name(name.with_context(not_a_plan)?))?;
    }
    if let Some((key, reason)) = policy.problems().into_iter().next() {
        return Err(anyhow!("{key}: {reason}").context(not_a_plan()));
    }
    Ok(serde_json::to_string(&policy)?)
}

fn read_judged(file: &Path) -> Result<Judged> {
    let name = || file.display().to_string();
    let bytes = std::fs::metadata(file).with_context(name)?.len();
    if bytes > MOST_BYTES as u64 {
        return Err(anyhow!("{bytes} bytes; the limit is {MOST_BYTES}: judge fewer queries").context(name()));
    }
    let judged = Judged::from(std::fs::read_to_string(file).with_context(name)?.as_str());
    let count = judged.queries().map_err(|reason| anyhow!(reason)).with_context(name)?.len();
    if count == 0 {
        return Err(
            anyhow!("it is empty; write one judged query a line, or leave `judged` out").context(name())
        );
    }
    Ok(judged)
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
    for skipped in plan["skipped"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("not judged: {skipped}");
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
        lines.extend(failures(rollout["failed"].as_array().map_or(&[], Vec::as_slice)));
    }
    if let Some(waiting) = corpus["waiting"].as_object() {
        lines.push(format!(
            "  waiting: {} (`canopy rollout abort --waiting` gives it up)",
            version(&waiting["to"])
        ));
    }
    for ended in corpus["ended"].as_array().into_iter().flatten().take(3) {
        let [outcome, reason] = ["outcome", "reason"].map(|key| ended[key].as_str().unwrap_or("?"));
        lines.push(format!("  {}: {outcome} ({})", version(&ended["to"]), cut(reason)));
    }
    lines
}

/// What could not be loaded, by reason: many leaves fail alike.
fn failures(failed: &[Value]) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in failed {
        let [shard, node, reason] = ["shard", "node", "reason"].map(|key| one[key].as_str().unwrap_or("?"));
        by_reason.entry(reason).or_default().push(format!("{shard} on {node}"));
    }
    let line = |(reason, all): (&str, Vec<String>)| {
        let more = if all.len() > 3 { format!(" and {} more", all.len() - 3) } else { String::new() };
        format!("  {}{more}: {}", all[..all.len().min(3)].join(", "), cut(reason))
    };
    by_reason.into_iter().map(line).collect()
}

/// A reason short enough for a screen; `--json` and the audit log have the whole.
fn cut(reason: &str) -> String {
    match reason.char_indices().nth(MOST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
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
            return Err(anyhow!(
                "{}; hint: `canopy rollout resume`, `resume --accept` or `abort`",
                cut(stopped)
            ));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_brings_its_judged_queries_and_errors_name_file_line_and_field() {
        let directory = tempfile::tempdir().unwrap();
        let [plan, judged] = ["plan.toml", "judged.jsonl"].map(|name| directory.path().join(name));
        std::fs::write(&plan, "judged = \"judged.jsonl\"\nretain = \"1min\"").unwrap();
        let line = |at: usize| format!("{{\"q\":\"query {at}\",\"gains\":{{\"k\":1}}}}\n");
        let text: String = (0..20).map(line).collect();
        std::fs::write(&judged, &text).unwrap();
        let policy: Policy = serde_json::from_str(&read_plan(&plan).unwrap()).unwrap();
        assert_eq!(policy.judged, Judged::from(text.as_str()));
        let refused = |judged_text: &str, plan_text: &str| {
            std::fs::write(&judged, judged_text).unwrap();
            std::fs::write(&plan, plan_text).unwrap();
            crate::failure::line(&read_plan(&plan).unwrap_err())
        };
        let named = "judged = \"judged.jsonl\"";
        let error = refused(&text.replace("query 7", "query 6"), named);
        assert!(error.contains("judged.jsonl: line 8: q: it is on line 7 too"), "{error}");
        assert!(refused("", named).contains("it is empty"));
        assert!(refused(&" ".repeat(MOST_BYTES + 1), named).contains("the limit is 1048576"));
        assert!(refused(&text, "judged = 3").contains("not the name of a file"));
        assert!(refused(&text, "bake = 3").contains("plan.toml is not a rollout plan: unknown field `bake`"));
        assert!(refused(&text, "max_unavailable = 0").contains("max_unavailable: 0 is not within"));
    }

    #[test]
    fn reasons_that_many_have_are_told_once_and_cut() {
        let failed =
            |node: u32| json!({ "shard": "main/0", "node": format!("leaf-{node}"), "reason": "disk full" });
        let mut all: Vec<Value> = (0..5).map(failed).collect();
        all.push(json!({ "shard": "main/1", "node": "leaf-9", "reason": "x".repeat(900) }));
        let lines = failures(&all);
        assert_eq!(lines[0], "  main/0 on leaf-0, main/0 on leaf-1, main/0 on leaf-2 and 2 more: disk full");
        assert!(lines[1].chars().count() < 300 && lines[1].ends_with('…'), "{}", lines[1]);
    }
}
