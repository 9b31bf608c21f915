//! `canopy index gc`: removes versions that nobody needs. What a topology service knows is never removed: versions that leaves
//! hold or should hold, that a rollout goes to or comes from, and the one before, to which a rollback goes. In a remote store it
//! also removes what builds and copies that died have left, when that is two days old.
//!
//! The failure this prevents: a rollout that begins while versions are removed, to one that is gone a moment later. Rule: right
//! before a version is removed the service is asked, and from its answer on either the version stays or nothing goes to it; it is
//! told when the version is gone. Broken off in between, the next run goes on: what is marked is removed,
//! or told of when it is gone or stays after all.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use canopy_common::{
    clock::{System, WallClock},
    ids::Version,
};
use canopy_proto::topology::{ReleaseVersion, command_request::Command, show_request::What};
use serde_json::{Value, json};

use crate::{
    control::{Client, Service},
    say::say,
    show,
    store::StoreArgs,
};

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
    let client = if args.without_service { None } else { Some(args.service.client()?) };
    let (mut needed, mut removing) = (BTreeSet::new(), BTreeSet::new());
    if let Some(client) = &client {
        let status = client.show(What::Status, 0).await?;
        let routing = client.show(What::Routing, 0).await?;
        if status["corpora"][&args.corpus].is_null() {
            bail!(
                "the topology service does not know corpus {:?}; hint: --without-service when nobody serves it by one",
                args.corpus
            );
        }
        let status = &status["corpora"][&args.corpus];
        needed = needed_by(status, &routing["corpora"][&args.corpus]);
        let marked = status["removing"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        removing = marked.map(Version).collect();
    }
    let release = async |version: Version, removed: bool| match &client {
        None => Ok(None),
        Some(client) => release(client, &args.corpus, version, removed).await,
    };
    let surplus = surplus(&versions, args.keep as usize, &needed);
    let (mut removed, kept_back) = if args.dry_run {
        (surplus.into_iter().map(|version| (version, 0)).collect(), Vec::new())
    } else {
        // Of a run that was broken off: gone, or to stay by now.
        for marked in removing.iter().filter(|version| !surplus.contains(version)) {
            release(*marked, true).await?;
        }
        let remove = async |version| Ok(store.remove(&args.corpus, version).await?);
        remove_each(surplus, release, remove).await?
    };
    // Two days: longer than any build or copy takes.
    let before = System.now_us() - 2 * 24 * 3600 * 1_000_000;
    removed.extend(store.remove_abandoned(&args.corpus, before, args.dry_run).await?);
    print(&args, &versions, &needed, &removed, &kept_back);
    Ok(())
}

/// What went, and what stays.
fn print(
    args: &Args,
    versions: &[Version],
    needed: &BTreeSet<Version>,
    removed: &[(Version, u64)],
    kept_back: &[(Version, String)],
) {
    if args.json {
        let list: Vec<Value> =
            removed.iter().map(|(version, bytes)| json!({ "version": version, "bytes": bytes })).collect();
        let kept: Vec<&Version> = kept_back.iter().map(|(version, _)| version).collect();
        say!("{:#}", json!({ "removed": list, "needed": needed, "kept": kept, "dry_run": args.dry_run }));
        return;
    }
    let gone = removed.iter().filter(|(version, _)| versions.contains(version)).count();
    for (version, bytes) in removed {
        if args.dry_run {
            say!("would remove {version}");
        } else {
            say!("removed {version} ({})", show::bytes(*bytes));
        }
    }
    for (version, reason) in kept_back {
        say!("kept {version}: {reason}");
    }
    say!("{} of {} versions stay", versions.len() - gone, versions.len());
}

/// Removes versions one by one, each only once the service has let go of it, and tells the service then. Those that went with
/// their bytes, and those that are needed by now with the reason. Errors: the first that could not be removed; it stays marked,
/// so that nothing goes to what may be half gone.
async fn remove_each(
    versions: Vec<Version>,
    release: impl AsyncFn(Version, bool) -> Result<Option<String>>,
    remove: impl AsyncFn(Version) -> Result<u64>,
) -> Result<(Vec<(Version, u64)>, Vec<(Version, String)>)> {
    let (mut removed, mut kept) = (Vec::new(), Vec::new());
    for version in versions {
        if let Some(reason) = release(version, false).await? {
            kept.push((version, reason));
            continue;
        }
        removed.push((version, remove(version).await?));
        release(version, true).await?;
    }
    Ok((removed, kept))
}

/// Has the service let go of a version, or tells it that the version is gone; why it stays.
async fn release(client: &Client, corpus: &str, version: Version, removed: bool) -> Result<Option<String>> {
    let asked = ReleaseVersion { corpus: corpus.to_owned(), version: version.0, removed };
    let reply = client.command(Command::Release(asked)).await?;
    if removed {
        return Ok(None);
    }
    let said: Value = serde_json::from_str(&reply.document).context(
        "the topology service does not say whether the version may go; hint: is it of this release?",
    )?;
    if said["released"] == true {
        return Ok(None);
    }
    Ok(Some(said["needed"].as_str().unwrap_or("the topology service needs it").to_owned()))
}

/// Versions that the topology service says anything of.
fn needed_by(status: &Value, routing: &Value) -> BTreeSet<Version> {
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
        let needed = needed_by(
            &json!({ "live": 3, "rollout": { "from": 3, "to": 6 }, "waiting": null, "ended": [{ "from": 2 }] }),
            &json!({ "versions": { "3": {}, "6": {} } }),
        );
        assert_eq!(needed, [2, 3, 6].map(Version).into());
        assert_eq!(surplus(&all, 2, &needed), [1, 4].map(Version));
        assert_eq!(surplus(&all, 9, &needed), []);
        assert_eq!(surplus(&all, 1, &BTreeSet::new()), [1, 2, 3, 4, 5].map(Version));
    }

    #[tokio::test]
    async fn what_is_needed_by_the_time_it_would_go_stays_and_each_is_marked_before_it_goes() {
        let steps = parking_lot::Mutex::new(Vec::new());
        let note = |step: String| steps.lock().push(step);
        let release = async |version: Version, removed: bool| {
            note(format!("{} {version}", if removed { "gone" } else { "mark" }));
            // A rollout to it began since the list was made.
            Ok((version == Version(2)).then(|| "v2 comes".to_owned()))
        };
        let remove = async |version: Version| {
            note(format!("remove {version}"));
            anyhow::ensure!(version != Version(4), "the store is away");
            Ok(7)
        };
        let (removed, kept) = remove_each([1, 2, 3].map(Version).into(), &release, &remove).await.unwrap();
        assert_eq!(removed, [(Version(1), 7), (Version(3), 7)]);
        assert_eq!(kept, [(Version(2), "v2 comes".to_owned())]);
        let order = ["mark v1", "remove v1", "gone v1", "mark v2", "mark v3", "remove v3", "gone v3"];
        assert_eq!(*steps.lock(), order);
        steps.lock().clear();
        assert!(remove_each(vec![Version(4)], &release, &remove).await.is_err());
        assert_eq!(*steps.lock(), ["mark v4", "remove v4"], "it stays marked");
    }
}
