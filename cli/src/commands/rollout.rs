//! `canopy rollout` and `canopy rollback`: a version for the queries of a corpus, step by step, and back.

mod plan;
mod show;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_proto::topology::{
    AbortRollout, PauseRollout, ResumeRollout, Rollback, StartRollout, command_request::Command as Asked,
    show_request::What,
};
use serde_json::Value;
use show::cut;
pub use show::lines;
use tokio::time::Instant;

use crate::{
    control::{Client, Service},
    failure::{GaveUp, Stopped},
    news::News,
    say::{aside, say},
    store,
};

/// Between two looks of `watch`.
const LOOK: Duration = Duration::from_millis(500);

/// Longest that `watch` looks for a service that does not answer: one that is started anew is back sooner.
const PATIENCE: Duration = Duration::from_mins(2);
/// Largest file of statistics that is read before a rollout, bytes; larger ones are left to roots.
const MOST_STATISTICS: u64 = 256 << 20;

/// `canopy rollout`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Give a version to the queries: load, shadow, canary, all; back by itself when it is worse
    Start(StartArgs),
    /// Where the rollout of a corpus is, and how the last ones ended
    Status(CorpusArgs),
    /// The same, until it has ended. Exit status 1: it was turned back; 3: the service did not answer for two minutes; 4: it stands
    /// until somebody decides
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
    /// Version; default: the newest complete one of --store, else of the store of the configuration file
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
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// The version that it turns back from: refused when that neither comes nor serves any more. Needed after a rollout that was
    /// turned back, so that two who turn back the same one don't go back twice
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
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
    let RollbackArgs { of, to, from, reason, at_once } = args;
    if let Some(to) = to {
        can_come(None, &of.service, &of.corpus, to).await?;
    }
    let corpus = of.corpus.clone();
    let (to, from) = (to.unwrap_or(0), from.unwrap_or(0));
    ask(&of, Asked::Rollback(Rollback { corpus, to, reason, at_once, from })).await
}

/// How many shards a version has, by group; empty: not known.
type Shards = BTreeMap<String, u32>;

/// The store of a command, where this machine can read it.
fn seen_store(named: Option<&str>, service: &Service) -> Option<VersionStore> {
    if named.is_none() && service.config().is_none() {
        return None;
    }
    let settings = store::settings(named, service.config());
    settings.and_then(|settings| store::open(&settings)).ok()
}

/// Refuses a version that this machine sees no node can serve: it can't be read, is not trusted, lacks files, or its statistics are
/// not what was published. What can't be asked is the service's and the leaves' to find.
async fn servable(store: &VersionStore, corpus: &str, version: u64) -> Result<()> {
    let refused = |reason: String| {
        let reason = crate::show::plain(&reason);
        Err(anyhow!(
            "v{version} of {corpus} can't be served, so nothing was started: {reason}; hint: `canopy index verify` names every file that is missing or damaged"
        ))
    };
    match store.fault(corpus, Version(version)).await {
        Ok(None) => {}
        Ok(Some(fault)) => return refused(fault.to_string()),
        Err(_) => return Ok(()),
    }
    match store.statistics_flaw(corpus, Version(version), MOST_STATISTICS).await {
        Ok(Some(flaw)) => refused(format!("{}: {}", flaw.file.path, flaw.reason)),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Whether the store of the configuration file has the version, and what shards it has there. Errors: it has not, and what it
/// has. A store that this machine can't read says nothing: leaves and roots may.
async fn exists(service: &Service, corpus: &str, version: u64) -> Result<Shards> {
    let Some(config) = service.config() else { return Ok(Shards::default()) };
    let opened = store::settings(None, Some(config)).and_then(|settings| store::open(&settings));
    let Ok(store) = opened else { return Ok(Shards::default()) };
    let Ok(known) = store.versions(corpus).await else { return Ok(Shards::default()) };
    if known.iter().any(|known| known.0 == version) {
        return Ok(shards_in(&store, corpus, version).await);
    }
    if known.is_empty() {
        return Ok(Shards::default());
    }
    let newest: Vec<String> = known.iter().rev().take(8).map(ToString::to_string).collect();
    let newest = newest.join(", ");
    Err(anyhow!(
        "v{version} of {corpus} is not in the store: removed by `canopy index gc`, or never built; it has {newest}{}",
        if known.len() > 8 { " and older" } else { "" }
    ))
}

/// What shards a version has, where that can be read.
async fn shards_in(store: &VersionStore, corpus: &str, version: u64) -> Shards {
    let Ok(manifest) = store.manifest(corpus, Version(version)).await else { return Shards::default() };
    manifest.layouts.iter().map(|layout| (layout.group.clone(), layout.shards)).collect()
}

/// Whether a version can come to serve, forwards or back, as far as this machine sees it; what shards it has.
async fn can_come(named: Option<&str>, service: &Service, corpus: &str, version: u64) -> Result<Shards> {
    let shards = exists(service, corpus, version).await?;
    if let Some(store) = seen_store(named, service) {
        servable(&store, corpus, version).await?;
    }
    Ok(shards)
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
    let (named, file) = (args.store.as_deref(), args.service.config());
    let version = match args.version {
        Some(version) => version,
        None if named.is_some() || file.is_some() => {
            let settings = store::settings(named, file)?;
            let opened =
                store::open(&settings).context("which version? the newest is looked for in the store")?;
            newest(&opened, &args.corpus).await?
        }
        None => {
            let hint = "--version N, or the newest one: of the store of -c FILE, or of --store URL";
            return Err(anyhow!("which version? hint: {hint}"));
        }
    };
    if args.version.is_none() {
        meant(&args.service.client()?.show(What::Status, 0).await?, &args.corpus, version)?;
    }
    let mut shards = can_come(named, &args.service, &args.corpus, version).await?;
    if let (true, Some(store)) = (shards.is_empty(), &args.store) {
        shards = shards_in(&store::open(&store::settings(Some(store), None)?)?, &args.corpus, version).await;
    }
    let policy = args.plan.as_deref().map(plan::read).transpose()?.unwrap_or_default();
    let start = StartRollout {
        corpus: args.corpus.clone(),
        version,
        policy,
        supersede: args.supersede,
        dry_run: args.dry_run,
        at_once: args.at_once,
        shards,
    };
    let reply = args.service.client()?.command(Asked::Start(start)).await?;
    if args.dry_run {
        let dry: Value = serde_json::from_str(&reply.document)?;
        if args.json {
            say!("{dry:#}");
        } else {
            plan::print(&dry);
        }
        if let Some(refused) = dry["refused"].as_str() {
            return Err(anyhow!("it would be refused: {refused}"));
        }
        return Ok(());
    }
    print_done(args.json, &reply.done, reply.epoch);
    Ok(())
}

/// Whether the newest version is meant by who names none. Errors: the last that is known says otherwise.
fn meant(status: &Value, corpus: &str, version: u64) -> Result<()> {
    if let Some(held) = held_instead(&status["lost"], corpus, version) {
        return Err(anyhow!(
            "the newest version is v{version} of {corpus}, and leaves answer from v{held}, which the service does not know of as live; \
             hint: `--version {held} --at-once` goes on with what serves"
        ));
    }
    if let Some(why) = given_up(&status["corpora"][corpus], version) {
        return Err(anyhow!(
            "the newest version is v{version} of {corpus}, and {why}; it is not taken again unless it is named; hint: `--version {version}` \
             tries it again, or build or publish a newer one"
        ));
    }
    Ok(())
}

/// The version that leaves answer a corpus from, of which the service knows none that is live, if that is another one.
fn held_instead(lost: &Value, corpus: &str, version: u64) -> Option<u64> {
    let ours = lost.as_array()?.iter().find(|lost| lost["corpus"] == corpus)?;
    let held: Vec<u64> = ours["versions"].as_array()?.iter().filter_map(Value::as_u64).collect();
    held.last().copied().filter(|_| !held.contains(&version))
}

/// Why nobody means a version who does not name it: the last that is known of it is that it was given up.
fn given_up(corpus: &Value, version: u64) -> Option<String> {
    let rollout = &corpus["rollout"];
    let state = rollout["state"].as_str().unwrap_or_default();
    if rollout["to"] == version && state.starts_with("rolling back") {
        return Some(format!("it is being turned back ({state})"));
    }
    if rollout["from"] == version && rollout["back"] == true {
        return Some(format!("it is being turned back from: a rollback to v{} is under way", rollout["to"]));
    }
    let known = |one: &&Value| one["to"] == version || (one["from"] == version && one["back"] == true);
    let last = ended(corpus).find(known)?;
    let [outcome, reason] = ["outcome", "reason"].map(|key| last[key].as_str().unwrap_or("?"));
    if last["to"] != version {
        // A rollback that did not come to its end turned back from nothing.
        return (outcome == "serving").then(|| format!("it was rolled back from, to v{}", last["to"]));
    }
    let given_up = ["rolled back", "failed", "aborted"].contains(&outcome);
    given_up.then(|| format!("it was given up: {outcome} ({})", cut(reason)))
}

async fn newest(store: &VersionStore, corpus: &str) -> Result<u64> {
    Ok(store.latest(corpus).await?.version.0)
}

async fn corpus(client: &Client, name: &str) -> Result<Value> {
    let status = client.show(What::Status, 0).await?;
    let corpora: BTreeMap<String, Value> = serde_json::from_value(status["corpora"].clone())?;
    let known: Vec<&str> = corpora.keys().map(String::as_str).collect();
    let placed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let missing = || {
        anyhow!(
            "corpus {name:?} is not placed, and placed are: {placed}; hint: `canopy topology place --corpus {name}` places it"
        )
    };
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

/// The corpus; a service that does not answer, because it is started anew, is asked again for a while. Gives up with a status of
/// its own: a rollout that nobody can look at is not one that was turned back.
async fn looked_up(client: &Client, name: &str) -> Result<Value> {
    let end = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        let error = match corpus(client, name).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        if Instant::now() >= end {
            return Err(error.context(GaveUp));
        }
        if !told {
            aside!("{}; asking again for {} s", crate::failure::line(&error), PATIENCE.as_secs());
            told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The rollouts that ended, the last one first.
fn ended(corpus: &Value) -> impl Iterator<Item = &Value> {
    corpus["ended"].as_array().into_iter().flatten()
}

/// Without the rollouts that had ended before somebody watched: they are in `rollout status`.
fn since(corpus: &Value, before: &[Value]) -> Value {
    let mut corpus = corpus.clone();
    if let Some(ended) = corpus.get_mut("ended").and_then(Value::as_array_mut) {
        ended.retain(|one| !before.contains(&one["id"]));
    }
    corpus
}

/// Prints each change until the new version serves all queries. Fails when it is stopped or was turned back.
async fn watch(args: &CorpusArgs) -> Result<()> {
    let client = args.service.client()?;
    // What is mistyped is told at once.
    let mut found = Some(corpus(&client, &args.corpus).await?);
    let before: Vec<Value> = found.iter().flat_map(ended).map(|one| one["id"].clone()).collect();
    let mut news = if args.json { News::of_a_log() } else { News::of_stdout() };
    let mut printed = Vec::new();
    loop {
        let mut corpus = match found.take() {
            Some(found) => found,
            None => looked_up(&client, &args.corpus).await?,
        };
        news.settled(&mut corpus);
        let lines = lines(&args.corpus, &since(&corpus, &before));
        if !args.json {
            news.show(lines);
        } else if lines != printed {
            say!("{corpus:#}");
            printed = lines;
        }
        if let Some(stopped) = corpus["rollout"]["stopped"].as_str() {
            return Err(anyhow!(
                "{}; hint: `canopy rollout resume`, `resume --accept` or `abort`",
                cut(stopped)
            )
            .context(Stopped));
        }
        let serves = !corpus["live"].is_null() && corpus["live"] == corpus["rollout"]["to"];
        if serves && corpus["waiting"].is_null() {
            return Ok(());
        }
        if corpus["rollout"].is_null() && corpus["waiting"].is_null() {
            let last = &corpus["ended"][0];
            return match last["outcome"].as_str() {
                None | Some("serving") => Ok(()),
                Some(outcome) => Err(anyhow!("{outcome}: {}", cut(last["reason"].as_str().unwrap_or("?")))),
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use canopy_format::{
        schema::Schema,
        store::{Corpus, Ordering},
    };

    use serde_json::json;

    use super::*;

    #[test]
    fn what_leaves_answer_from_is_meant_and_not_the_newest_where_the_service_knows_of_none() {
        let lost = json!([{ "corpus": "news", "versions": [9] }, { "corpus": "web", "versions": [5, 6] }]);
        assert_eq!(held_instead(&lost, "web", 7), Some(6));
        assert_eq!(held_instead(&lost, "web", 5), None);
        assert_eq!(held_instead(&lost, "mail", 7), None);
        assert_eq!(held_instead(&Value::Null, "web", 7), None);
    }

    #[test]
    fn a_version_that_was_given_up_is_not_meant_unless_it_is_named() {
        let ended = |to: u64, outcome: &str| json!({ "id": to, "from": 1, "to": to, "outcome": outcome, "reason": "errors grew" });
        let after = |ended: Value| given_up(&json!({ "live": 1, "rollout": null, "ended": ended }), 5);
        for outcome in ["rolled back", "failed", "aborted"] {
            let why = after(json!([ended(4, "serving"), ended(5, outcome)])).unwrap();
            assert_eq!(why, format!("it was given up: {outcome} (errors grew)"));
        }
        assert_eq!(after(json!([])), None);
        assert_eq!(after(json!([ended(5, "superseded")])), None);
        // It was tried again since, by name.
        assert_eq!(after(json!([ended(5, "serving"), ended(5, "rolled back")])), None);
        let mut back = ended(4, "serving");
        (back["back"], back["from"]) = (json!(true), json!(5));
        let why = after(json!([back, ended(5, "serving")])).unwrap();
        assert_eq!(why, "it was rolled back from, to v4");
        let now = |rollout: Value| given_up(&json!({ "rollout": rollout, "ended": [] }), 5);
        assert!(now(json!({ "from": 4, "to": 5, "state": "rolling back (rolled back)" })).is_some());
        assert!(now(json!({ "from": 5, "to": 4, "back": true, "state": "stage" })).is_some());
        assert_eq!(now(json!({ "from": 4, "to": 5, "state": "canary 1 %" })), None);
        assert_eq!(given_up(&Value::Null, 5), None, "the service says what it does not know");
    }

    #[test]
    fn a_watcher_is_told_of_no_rollout_that_had_ended_before() {
        let corpus = json!({ "live": 1, "ended": [{ "id": 7 }, { "id": 9 }, { "id": 2 }] });
        let seen = since(&corpus, &[json!(9), json!(2)]);
        assert_eq!(seen["ended"], json!([{ "id": 7 }]));
    }

    #[tokio::test]
    async fn without_a_version_the_newest_of_the_store_of_the_file_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let (file, url) =
            (directory.path().join("c.toml"), directory.path().join("versions").display().to_string());
        std::fs::write(&file, format!("[store]\nurl = {url:?}")).unwrap();
        let store = VersionStore::open(&url, true).unwrap();
        let (name, schema) = ("web".to_owned(), Schema::web());
        store.create_corpus(&Corpus { name, schema, partitions: 4, ordering: Ordering::Log }).await.unwrap();
        let asked = async |service, version| {
            let args = StartArgs {
                service,
                corpus: "web".to_owned(),
                version,
                store: None,
                plan: None,
                at_once: false,
                supersede: false,
                dry_run: true,
                json: false,
            };
            crate::failure::line(&start(args).await.unwrap_err())
        };
        let looked = asked(Service::of(Some(&file)), None).await;
        assert!(looked.contains("web has no complete version yet"), "{looked}");
        assert!(asked(Service::of(None), None).await.contains("which version? hint: --version N"));
        // One that `index list` shows as damaged is refused before anybody is asked.
        let damaged = store.version_dir("web", Version(1)).unwrap();
        std::fs::create_dir_all(&damaged).unwrap();
        std::fs::write(damaged.join("manifest.json"), "{").unwrap();
        let refused = asked(Service::of(Some(&file)), Some(1)).await;
        assert!(refused.contains("v1 of web can't be served") && refused.contains("is damaged"), "{refused}");
        let service = Service::of(Some(&file));
        let of = CorpusArgs { service, corpus: "web".to_owned(), json: false };
        let back = RollbackArgs { of, to: Some(1), from: None, reason: String::new(), at_once: false };
        let refused = crate::failure::line(&rollback(back).await.unwrap_err());
        assert!(refused.contains("v1 of web can't be served") && refused.contains("is damaged"), "{refused}");
    }
}
