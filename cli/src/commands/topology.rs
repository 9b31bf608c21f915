//! `canopy topology`: runs the service; with a subcommand, shows what it knows and changes what should be.

use anyhow::Result;
use canopy_proto::topology::{
    CommandReply, DrainNode, ForgetNode, PlaceShards, UnplaceCorpus, command_request::Command as Asked,
    show_request::What,
};
use canopy_topology::config::Role;
use comfy_table::{Table, presets};
use serde_json::Value;

use super::roles::{self, RoleArgs};
use crate::{
    control::Service,
    say::{aside, say},
    show, store,
};

/// `canopy topology`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Example:  canopy topology -c canopy.toml        runs the service\n          canopy topology show -c canopy.toml   what it knows"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    role: Option<RoleArgs>,
}

/// What can be asked of a running service.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Nodes, corpora and rollouts
    Show(ShowArgs),
    /// The routing snapshot that nodes go by, as JSON
    Routing(ServiceArgs),
    /// Who did what: the last lines of the audit log
    Audit(AuditArgs),
    /// No more queries to a leaf, where another one has its shards
    Drain(NodeArgs),
    /// Queries to it again
    Undrain(NodeArgs),
    /// What placing the shards of a corpus anew would move; changes nothing
    Plan(PlaceArgs),
    /// Places the shards of a corpus on the leaves that are here: loads first, drops after
    #[command(
        after_help = "Examples:  canopy topology place -c canopy.toml --corpus web --shards 8 --replicas 2   the first time\n           canopy topology place -c canopy.toml --corpus web                            after leaves joined\n           canopy topology place -c canopy.toml --corpus web --remove leaf-3            empties a leaf"
    )]
    Place(ApplyArgs),
    /// Places a corpus nowhere any more: one that was mistyped, or never got a version. One that answers is refused
    #[command(after_help = "Example:  canopy topology unplace -c canopy.toml --corpus wbe")]
    Unplace(UnplaceArgs),
    /// Sets how many replicas each shard of a corpus has
    SetReplicas(ReplicasArgs),
    /// Removes a node that is away for good
    Forget(NodeArgs),
}

/// What is to be placed.
#[derive(clap::Args, Clone)]
pub struct PlaceArgs {
    #[command(flatten)]
    service: Service,
    /// Corpus
    #[arg(long)]
    corpus: String,
    /// Group whose replicas and shards are meant; default: all of the corpus
    #[arg(long, default_value = "")]
    group: String,
    /// Replicas of each shard; default: as many as now
    #[arg(long, value_name = "N", default_value_t = 0)]
    replicas: u32,
    /// How many shards there are: needed the first time, and when a version with more or fewer is to come (of --group, else of
    /// main). As many as `canopy index inspect` shows; the corpus must be in the store of the configuration file, where it has one
    #[arg(long, value_name = "N", default_value_t = 0)]
    shards: u32,
    /// A leaf that is to be emptied
    #[arg(long, value_name = "NODE")]
    remove: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `canopy topology place`.
#[derive(clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Shows it and does nothing
    #[arg(long)]
    dry_run: bool,
    /// Does only what this plan says, one that `topology plan` has shown; refused when it would be another one by now
    #[arg(long, value_name = "PLAN", conflicts_with = "dry_run")]
    plan: Option<String>,
}

/// `canopy topology set-replicas`.
#[derive(clap::Args)]
pub struct ReplicasArgs {
    #[command(flatten)]
    service: Service,
    /// Corpus
    #[arg(long)]
    corpus: String,
    /// Group; default: all of the corpus
    #[arg(long, default_value = "")]
    group: String,
    /// Replicas of each shard
    count: u32,
    /// Shows it and does nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `canopy topology unplace`.
#[derive(clap::Args)]
pub struct UnplaceArgs {
    #[command(flatten)]
    service: Service,
    /// Corpus
    #[arg(long)]
    corpus: String,
}

/// The service.
#[derive(clap::Args)]
pub struct ServiceArgs {
    #[command(flatten)]
    service: Service,
}

/// `canopy topology show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    service: Service,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `canopy topology audit`.
#[derive(clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    service: Service,
    /// How many lines
    #[arg(long, default_value_t = 50)]
    last: u32,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// One node.
#[derive(clap::Args)]
pub struct NodeArgs {
    #[command(flatten)]
    service: Service,
    /// Its name
    node: String,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    match (args.command, args.role) {
        (Some(command), _) => ask(command).await,
        (None, Some(role)) => roles::one(role, Role::Topology).await,
        (None, None) => Err(anyhow::anyhow!("-c FILE runs the service; hint: `canopy topology --help`")),
    }
}

async fn ask(command: Command) -> Result<()> {
    match command {
        Command::Show(args) => {
            let status = args.service.client()?.show(What::Status, 0).await?;
            if args.json {
                say!("{status:#}");
            } else {
                print(&status);
            }
        }
        Command::Routing(args) => say!("{:#}", args.service.client()?.show(What::Routing, 0).await?),
        Command::Audit(args) => {
            let lines = args.service.client()?.show(What::Audit, args.last).await?;
            if args.json {
                say!("{lines:#}");
            } else {
                for line in lines.as_array().into_iter().flatten() {
                    let at = line["at_us"].as_i64().unwrap_or(0);
                    say!("{}  {}", crate::show::time(at), line["what"].as_str().unwrap_or("?"));
                }
            }
        }
        Command::Drain(args) => drain(args, false).await?,
        Command::Undrain(args) => drain(args, true).await?,
        Command::Plan(args) => place(args, true, None).await?,
        Command::Place(args) => place(args.place, args.dry_run, args.plan).await?,
        Command::Unplace(UnplaceArgs { service, corpus }) => {
            done(&service.client()?.command(Asked::Unplace(UnplaceCorpus { corpus })).await?);
        }
        Command::SetReplicas(args) => {
            let ReplicasArgs { service, corpus, group, count, dry_run, json } = args;
            if count == 0 {
                return Err(anyhow::anyhow!("a shard needs at least one replica"));
            }
            let (shards, remove) = Default::default();
            place(PlaceArgs { service, corpus, group, replicas: count, shards, remove, json }, dry_run, None)
                .await?;
        }
        Command::Forget(args) => {
            done(&args.service.client()?.command(Asked::Forget(ForgetNode { node: args.node })).await?);
        }
    }
    Ok(())
}

/// Shows what is moved, then has it done unless only that was wanted: what was shown, `of` an earlier time or now, or nothing.
async fn place(args: PlaceArgs, dry_run: bool, of: Option<String>) -> Result<()> {
    let client = args.service.client()?;
    // A name that nobody has would be placed like any other, and every root would wait for it.
    if args.shards > 0
        && let Some(note) = store::knows(args.service.config(), &args.corpus).await?
    {
        aside!("note: {note}");
    }
    let PlaceArgs { corpus, group, replicas, shards, remove, .. } = args.clone();
    let wish = |dry_run, plan| {
        let (corpus, group, remove) = (corpus.clone(), group.clone(), remove.clone());
        Asked::Place(PlaceShards { corpus, group, replicas, shards, remove, dry_run, plan })
    };
    let planned = client.command(wish(true, String::new())).await?;
    let plan: Value = serde_json::from_str(&planned.document)?;
    if args.json {
        say!("{plan:#}");
    } else {
        print_plan(&plan);
    }
    if dry_run {
        return Ok(());
    }
    let shown = of.unwrap_or_else(|| plan["plan"].as_str().unwrap_or_default().to_owned());
    let reply = client.command(wish(false, shown)).await?;
    if !args.json {
        done(&reply);
        say!("loads first, drops after; canopy status shows how far it is");
        // It was done; what comes next is only a hint.
        let status = client.show(What::Status, 0).await.unwrap_or_default();
        // What leaves hold of it was told with the plan, and is not what comes next to a new corpus.
        let lost = status["lost"].as_array().into_iter().flatten().any(|lost| lost["corpus"] == *args.corpus);
        if let Some(next) = next(&args, &status["corpora"][&args.corpus]).filter(|_| !lost) {
            say!("{next}");
        }
    }
    Ok(())
}

/// What is to be done after a corpus was placed that has no version: to place it gives it none.
fn next(args: &PlaceArgs, corpus: &Value) -> Option<String> {
    let none = corpus.is_object() && ["live", "rollout", "waiting"].iter().all(|key| corpus[*key].is_null());
    let file = args.service.config().map_or_else(String::new, |file| format!(" -c {}", file.display()));
    let name = &args.corpus;
    none.then(|| {
        format!(
            "it has no version yet, and answers nothing; next: canopy rollout start{file} --corpus {name}"
        )
    })
}

/// Moves that are shown one by one.
const MOVES_SHOWN: usize = 40;

fn print_plan(plan: &Value) {
    let number = |key: &str| plan[key].as_u64().unwrap_or(0);
    // Before a leaf holds one nobody knows how large a shard is.
    let sized = !plan["total_bytes"].is_null();
    let moves: &[Value] = plan["moves"].as_array().map_or(&[], Vec::as_slice);
    for one in moves.iter().take(MOVES_SHOWN) {
        let shard = format!(
            "{}:{}",
            one["shard"]["corpus"].as_str().unwrap_or("?"),
            one["shard"]["shard"].as_str().unwrap_or("?")
        );
        let node = |key: &str| one[key].as_str().map(str::to_owned);
        let what = match (node("load"), node("drop")) {
            (Some(load), Some(drop)) => format!("load on {load}, then drop on {drop}"),
            (Some(load), None) => format!("load on {load}"),
            (None, Some(drop)) => format!("drop on {drop}"),
            (None, None) => continue,
        };
        let bytes = one["bytes"].as_u64().filter(|_| sized).map(show::bytes);
        say!("{}", format!("{shard}  {what}  {}", bytes.unwrap_or_default()).trim_end());
    }
    if moves.len() > MOVES_SHOWN {
        say!("... and {} more", moves.len() - MOVES_SHOWN);
    }
    if sized {
        let (bytes, total) = (number("bytes"), number("total_bytes"));
        let part = if total == 0 { 0.0 } else { bytes as f64 * 100.0 / total as f64 };
        say!("{} moves, {} to fetch: {part:.1} % of {}", moves.len(), show::bytes(bytes), show::bytes(total));
    } else {
        say!("{} moves", moves.len());
    }
    for (key, word) in [("warnings", "warning"), ("unmet", "not met")] {
        for line in plan[key].as_array().into_iter().flatten().filter_map(Value::as_str) {
            say!("{word}: {line}");
        }
    }
    if let Some(name) = plan["plan"].as_str() {
        say!("plan {name}");
    }
    if let Some(refused) = plan["refused"].as_str() {
        say!("it would be refused: {refused}");
    }
}

fn done(reply: &CommandReply) {
    for line in &reply.done {
        say!("{line}");
    }
}

async fn drain(args: NodeArgs, undo: bool) -> Result<()> {
    done(&args.service.client()?.command(Asked::Drain(DrainNode { node: args.node, undo })).await?);
    Ok(())
}

fn print(status: &Value) {
    say!("epoch {}", status["epoch"]);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["node", "role", "state", "health", "address", "zone", "reason"]);
    for node in status["nodes"].as_array().into_iter().flatten() {
        table.add_row(
            ["node", "role", "state", "health", "address", "zone", "reason"]
                .map(|key| node[key].as_str().unwrap_or("").to_owned()),
        );
    }
    for line in table.lines() {
        say!("{}", line.trim_end());
    }
    for (name, corpus) in status["corpora"].as_object().into_iter().flatten() {
        for line in super::rollout::lines(name, corpus) {
            say!("{line}");
        }
        if let Some(line) = super::status::placement(&corpus["placement"]) {
            say!("{line}");
        }
    }
    let hot = status["hot_shards"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("{} {}/s", one["shard"].as_str().unwrap_or("?"), one["queries_per_second"]));
    let hot: Vec<String> = hot.collect();
    if !hot.is_empty() {
        say!("asked most: {}", hot.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_placed_without_a_version_is_told_what_comes_next() {
        let args = PlaceArgs {
            service: Service::of(Some(std::path::Path::new("tree.toml"))),
            corpus: "news".to_owned(),
            group: String::new(),
            replicas: 2,
            shards: 4,
            remove: Vec::new(),
            json: false,
        };
        let told = next(&args, &json!({ "live": null, "rollout": null, "waiting": null })).unwrap();
        assert!(told.contains("next: canopy rollout start -c tree.toml --corpus news"), "{told}");
        for has in
            [json!({ "live": 3 }), json!({ "rollout": { "to": 1 } }), json!({ "waiting": { "to": 1 } })]
        {
            assert_eq!(next(&args, &has), None, "{has}");
        }
    }
}
