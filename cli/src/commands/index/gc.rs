//! `canopy index gc`: removes versions that nobody needs. What a topology service knows is never removed: versions that leaves
//! hold or should hold, that a rollout goes to or comes from, and the one before, to which a rollback goes. In a remote store it
//! also removes what builds and copies that died have left, when that is two days old.
//!
//! Only versions that can be served count as the newest: readable, with every file, and trusted by the store's keys. What can't
//! be is named with its reason and stays, because a mistyped key makes every version look so; --broken names those that go.
//!
//! The failures this prevents: damaged versions that are kept in the place of good ones, until no good one is left; and a
//! rollout that begins while versions are removed, to one that is gone a moment later. Rule: right before a version is removed
//! the service is asked, and from its answer on either the version stays or nothing goes to it; it is told when the version is
//! gone. Broken off in between, the next run goes on: what is marked is removed, or told of when it is gone or stays after all.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use canopy_common::{
    clock::{System, WallClock},
    ids::Version,
};
use canopy_format::store::PassedOver;
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
    /// How many of the newest versions that can be served stay
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Removes also these versions, which can't be served: damaged, or signed by nobody who is trusted
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    broken: Vec<u64>,
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
    // The keys of the tree's file say what its nodes take.
    let store = args.store.or_by(args.service.config()).open()?;
    let (servable, others) = store.told_apart(&args.corpus).await?;
    let broken = broken(&args.broken, &servable, &others)?;
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
    let mut surplus = surplus(&servable, args.keep as usize).to_vec();
    surplus.extend(&broken);
    let (surplus, stays): (Vec<Version>, Vec<Version>) =
        surplus.into_iter().partition(|version| !needed.contains(version));
    let (mut removed, mut kept_back) = if args.dry_run {
        (surplus.into_iter().map(|version| (version, 0)).collect(), Vec::new())
    } else {
        // Of a run that was broken off: gone, or to stay by now.
        for marked in removing.iter().filter(|version| !surplus.contains(version)) {
            release(*marked, true).await?;
        }
        let remove = async |version| Ok(store.remove(&args.corpus, version).await?);
        remove_each(surplus, release, remove).await?
    };
    kept_back.extend(stays.into_iter().map(|version| (version, NEEDED.to_owned())));
    kept_back.sort();
    // Two days: longer than any build or copy takes.
    let before = System.now_us() - 2 * 24 * 3600 * 1_000_000;
    removed.extend(store.remove_abandoned(&args.corpus, before, args.dry_run).await?);
    let stay = others.into_iter().filter(|other| removed.iter().all(|(gone, _)| *gone != other.version));
    let seen = Seen { servable, others: stay.collect(), needed };
    print(&args, &seen, &removed, &kept_back);
    Ok(())
}

/// Why an old version stays.
const NEEDED: &str = "it serves, comes, is held by leaves, or is what a rollback goes to";

/// What there was.
struct Seen {
    servable: Vec<Version>,
    /// Those that can't be served and stay.
    others: Vec<PassedOver>,
    needed: BTreeSet<Version>,
}

/// What went, and what stays.
fn print(args: &Args, seen: &Seen, removed: &[(Version, u64)], kept_back: &[(Version, String)]) {
    if args.json {
        let list: Vec<Value> =
            removed.iter().map(|(version, bytes)| json!({ "version": version, "bytes": bytes })).collect();
        let kept: Vec<&Version> = kept_back.iter().map(|(version, _)| version).collect();
        let Seen { others, needed, .. } = seen;
        let said = json!({
            "removed": list, "needed": needed, "kept": kept, "not_servable": others, "dry_run": args.dry_run
        });
        say!("{said:#}");
        return;
    }
    let versions = &seen.servable;
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
    for PassedOver { version, reason } in &seen.others {
        let reason = show::plain(reason);
        say!("kept {version}, which can't be served and does not count: {reason}");
    }
    if let [first, ..] = seen.others.as_slice() {
        say!(
            "hint: `canopy index list` tells what to do about them; --broken {} removes it, once a newer version is there",
            first.version.0
        );
    }
    say!("{} of {} versions that can be served stay", versions.len() - gone, versions.len());
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

/// Versions that the topology service would not let go of, and those that leaves hold.
fn needed_by(status: &Value, routing: &Value) -> BTreeSet<Version> {
    let rollout = &status["rollout"];
    let before = status["ended"][0]["from"].clone();
    let named = [&status["live"], &rollout["from"], &rollout["to"], &status["waiting"]["to"], &before];
    let told = status["needed"].as_array().into_iter().flatten();
    let named = named.into_iter().chain(told).filter_map(Value::as_u64);
    let held =
        routing["versions"].as_object().into_iter().flatten().filter_map(|(version, _)| version.parse().ok());
    named.chain(held).map(Version).collect()
}

/// Those that are not among the newest `keep`.
fn surplus(versions: &[Version], keep: usize) -> &[Version] {
    &versions[..versions.len().saturating_sub(keep)]
}

/// Those that --broken names. Errors: one can be served, is not there, or is the newest, whose number the next one is above.
fn broken(named: &[u64], servable: &[Version], others: &[PassedOver]) -> Result<Vec<Version>> {
    let newest = servable.iter().chain(others.iter().map(|other| &other.version)).max();
    for version in named.iter().copied().map(Version) {
        if servable.contains(&version) {
            bail!("--broken: {version} can be served; nothing was removed");
        }
        if others.iter().all(|other| other.version != version) {
            bail!("--broken: there is no {version}; nothing was removed");
        }
        if newest == Some(&version) {
            bail!(
                "--broken: {version} is the newest, and its number must not be given out again; nothing was removed; hint: build or \
                 publish the next version first"
            );
        }
    }
    let named: BTreeSet<Version> = named.iter().copied().map(Version).collect();
    Ok(named.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use canopy_format::{
        schema::Schema,
        store::{Corpus, Ordering, VersionStore},
    };

    use super::*;

    fn args(url: &str, keep: u32, broken: &[u64]) -> Args {
        Args {
            corpus: "web".to_owned(),
            store: StoreArgs::at(url),
            keep,
            broken: broken.to_vec(),
            service: Service::of(None),
            without_service: true,
            dry_run: false,
            json: true,
        }
    }

    /// A store of whole versions, each of a build.
    async fn built(directory: &std::path::Path, versions: u64) -> VersionStore {
        let store = VersionStore::open(&directory.join("store").display().to_string(), true).unwrap();
        let (name, schema) = ("web".to_owned(), Schema::web());
        store.create_corpus(&Corpus { name, schema, partitions: 4, ordering: Ordering::Log }).await.unwrap();
        let input = directory.join("pages.jsonl");
        std::fs::write(
            &input,
            "{\"url\": \"https://example.org/\", \"title\": \"fox\", \"body\": \"red\"}\n",
        )
        .unwrap();
        for _ in 0..versions {
            let request = canopy_indexer::build::BuildRequest {
                shards: Some(1),
                memory: canopy_indexer::build::MIN_MEMORY,
                ..canopy_indexer::build::BuildRequest::new(store.clone(), "web", vec![input.clone()])
            };
            canopy_indexer::build::run(request).await.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn what_cannot_be_served_neither_counts_nor_goes_unless_it_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let store = built(directory.path(), 6).await;
        let url = directory.path().join("store").display().to_string();
        let file = |version: u64, name: &str| store.version_dir("web", Version(version)).unwrap().join(name);
        // Cut, without a shard's files, and no manifest at all.
        let manifest = std::fs::read(file(5, "manifest.json")).unwrap();
        std::fs::write(file(5, "manifest.json"), &manifest[..manifest.len() / 2]).unwrap();
        std::fs::write(file(6, "manifest.json"), "{").unwrap();
        std::fs::remove_dir_all(file(3, "shards")).unwrap();
        let there =
            async || store.versions("web").await.unwrap().iter().map(|version| version.0).collect::<Vec<_>>();
        run(args(&url, 2, &[])).await.unwrap();
        assert_eq!(there().await, [2, 3, 4, 5, 6]);
        for (named, why) in [(4, "can be served"), (1, "no v1"), (6, "is the newest")] {
            let error = run(args(&url, 1, &[3, named])).await.unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("nothing was removed"), "{error}");
            assert_eq!(there().await, [2, 3, 4, 5, 6]);
        }
        run(args(&url, 1, &[3, 5])).await.unwrap();
        assert_eq!(there().await, [4, 6]);
        // Nobody's signature is trusted: nothing can be served, and nothing goes.
        let (config, key) =
            (directory.path().join("c.toml"), canopy_format::signature::SigningKey::from_seed(&[1; 32]));
        let text = format!("[store]\nverify_keys = [{:?}]", key.unwrap().public().to_base64());
        std::fs::write(&config, text).unwrap();
        let untrusting = Args { store: StoreArgs::at(&url).by(&config), ..args(&url, 1, &[]) };
        run(untrusting).await.unwrap();
        assert_eq!(there().await, [4, 6]);
        let (servable, others) = store.told_apart("web").await.unwrap();
        assert_eq!((servable, others[0].version), (vec![Version(4)], Version(6)));
    }

    #[test]
    fn the_newest_and_the_needed_stay() {
        let all: Vec<Version> = (1..=6).map(Version).collect();
        let needed = needed_by(
            &json!({ "live": 3, "rollout": { "from": 3, "to": 6 }, "waiting": null, "ended": [{ "from": 2 }] }),
            &json!({ "versions": { "3": {}, "6": {} } }),
        );
        assert_eq!(needed, [2, 3, 6].map(Version).into());
        // What only the service can tell: v4 is what a rollback goes to.
        let told = needed_by(&json!({ "live": 5, "ended": [{ "from": 5 }], "needed": [4, 5] }), &Value::Null);
        assert_eq!(told, [4, 5].map(Version).into());
        assert_eq!(surplus(&all, 2), [1, 2, 3, 4].map(Version));
        assert_eq!(surplus(&all, 9), []);
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
