//! `canopy index gc`: removes versions that nobody needs. What a topology service knows is never removed: versions that leaves
//! hold or should hold, that a rollout goes to or comes from, and the one before, to which a rollback goes. In a remote store it
//! also removes what builds and copies that died have left, when that is two days old.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use canopy_common::{
    clock::{System, WallClock},
    ids::Version,
};
use canopy_proto::topology::show_request::What;
use serde_json::{Value, json};

use crate::{control::Service, say::say, show, store::StoreArgs};

/// `canopy index gc`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy index gc --corpus web --store ./canopy-data --keep 3 -c canopy.toml --dry-run"
)]
pub struct Args {
    /// Corpus
    #[arg(long, default_value = "web")]
    corpus: String,
    #[command(flatten)]
    store: StoreArgs,
    /// How many of the newest versions stay
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    #[command(flatten)]
    service: Service,
    /// No topology service knows who serves from this store: only --keep protects
    #[arg(long, conflicts_with_all = ["config", "addresses"])]
    without_service: bool,
    /// Print what it would remove, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let store = args.store.open()?;
    let versions = store.versions(&args.corpus).await?;
    let needed = if args.without_service {
        BTreeSet::new()
    } else {
        let client = args.service.client()?;
        let status = client.show(What::Status, 0).await?;
        let routing = client.show(What::Routing, 0).await?;
        if status["corpora"][&args.corpus].is_null() {
            bail!(
                "the topology service does not know corpus {:?}; hint: --without-service when nobody serves it by one",
                args.corpus
            );
        }
        needed(&status["corpora"][&args.corpus], &routing["corpora"][&args.corpus])
    };
    let mut removed = Vec::new();
    for version in surplus(&versions, args.keep as usize, &needed) {
        let bytes = if args.dry_run { 0 } else { store.remove(&args.corpus, version).await? };
        removed.push((version, bytes));
    }
    // Two days: longer than any build or copy takes.
    let before = System.now_us() - 2 * 24 * 3600 * 1_000_000;
    removed.extend(store.remove_abandoned(&args.corpus, before, args.dry_run).await?);
    if args.json {
        let list: Vec<Value> =
            removed.iter().map(|(version, bytes)| json!({ "version": version, "bytes": bytes })).collect();
        say!("{:#}", json!({ "removed": list, "needed": needed, "dry_run": args.dry_run }));
        return Ok(());
    }
    let gone = removed.iter().filter(|(version, _)| versions.contains(version)).count();
    let kept = versions.len() - gone;
    for (version, bytes) in &removed {
        if args.dry_run {
            say!("would remove {version}");
        } else {
            say!("removed {version} ({})", show::bytes(*bytes));
        }
    }
    say!("{} of {} versions stay", kept, versions.len());
    Ok(())
}

/// Versions that the topology service says anything of.
fn needed(status: &Value, routing: &Value) -> BTreeSet<Version> {
    let rollout = &status["rollout"];
    let before = status["ended"][0]["from"].clone();
    let named = [&status["live"], &rollout["from"], &rollout["to"], &status["waiting"]["to"], &before];
    let named = named.into_iter().filter_map(Value::as_u64);
    let held =
        routing["versions"].as_object().into_iter().flatten().filter_map(|(version, _)| version.parse().ok());
    named.chain(held).map(Version).collect()
}

/// Those that go: neither among the newest `keep` nor needed.
fn surplus(versions: &[Version], keep: usize, needed: &BTreeSet<Version>) -> Vec<Version> {
    let older = versions.len().saturating_sub(keep);
    versions[..older].iter().filter(|version| !needed.contains(version)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_the_needed_stay() {
        let all: Vec<Version> = (1..=6).map(Version).collect();
        let needed = needed(
            &json!({ "live": 3, "rollout": { "from": 3, "to": 6 }, "waiting": null, "ended": [{ "from": 2 }] }),
            &json!({ "versions": { "3": {}, "6": {} } }),
        );
        assert_eq!(needed, [2, 3, 6].map(Version).into());
        assert_eq!(surplus(&all, 2, &needed), [1, 4].map(Version));
        assert_eq!(surplus(&all, 9, &needed), []);
        assert_eq!(surplus(&all, 1, &BTreeSet::new()), [1, 2, 3, 4, 5].map(Version));
    }
}
