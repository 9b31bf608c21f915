//! `canopy index build|absorb|list|inspect|verify|diff|publish|gc|keygen`.

mod absorb;
mod bar;
mod build;
mod gc;
mod keygen;
mod publish;
mod remote_log;
mod warmup;

use anyhow::{Result, bail};
use canopy_common::ids::Version;
use canopy_format::{
    error::Error as StoreError,
    manifest::Manifest,
    store::{Table as StoredTable, VersionStore},
};
use clap::Subcommand;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::{say::say, show, store::StoreArgs};

/// Which version.
#[derive(clap::Args)]
pub struct Which {
    /// Corpus
    #[arg(long, default_value = "web")]
    corpus: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Version; the newest when left out
    #[arg(long)]
    version: Option<u64>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Build and publish the next version of a corpus
    Build(build::Args),
    /// Make and publish the next version of the last one and the log of an ingest, without the source
    Absorb(absorb::Args),
    /// List the complete versions of a corpus
    #[command(after_help = "Example:  canopy index list --corpus web --store ./canopy-data")]
    List(Which),
    /// Show what a version holds
    #[command(after_help = "Example:  canopy index inspect --corpus web --version 3")]
    Inspect(Which),
    /// Re-read every file of a version and compare it with the manifest
    #[command(after_help = "Example:  canopy index verify --corpus web")]
    Verify(Which),
    /// Copy a version to another store and make it visible there
    Publish(publish::Args),
    /// Remove versions that nobody needs
    Gc(gc::Args),
    /// Make a pair of keys: one signs versions, the other checks them
    Keygen(keygen::Args),
    /// Compare two versions
    #[command(after_help = "Example:  canopy index diff --corpus web --from 3 --version 4")]
    Diff {
        /// The older version; the parent when left out
        #[arg(long)]
        from: Option<u64>,
        /// The newer version
        #[command(flatten)]
        which: Which,
    },
}

/// Runs it.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Build(args) => build::run(args).await,
        Command::Absorb(args) => absorb::run(args).await,
        Command::Publish(args) => publish::run(args).await,
        Command::Gc(args) => gc::run(args).await,
        Command::Keygen(args) => keygen::run(&args),
        Command::List(which) => list(&which).await,
        Command::Inspect(which) => inspect(&which).await,
        Command::Verify(which) => verify(&which).await,
        Command::Diff { from, which } => diff(from, &which).await,
    }
}

async fn open(which: &Which) -> Result<(VersionStore, Manifest)> {
    let store = which.store.open()?;
    let manifest = match which.version {
        Some(version) => store.manifest(&which.corpus, Version(version)).await?,
        None => store.latest(&which.corpus).await?,
    };
    Ok((store, manifest))
}

async fn list(which: &Which) -> Result<()> {
    let store = which.store.open()?;
    store.corpus(&which.corpus).await?;
    let mut listed = Vec::new();
    for version in store.versions(&which.corpus).await? {
        let table = store.table(&which.corpus, version).await.map_err(|error| Unread {
            fault: match error {
                StoreError::Untrusted { .. } => Fault::Unsigned,
                StoreError::Changed { .. } => Fault::Changed,
                _ => Fault::Damaged,
            },
            reason: show::plain(&error.to_string()),
        });
        listed.push((version, table));
    }
    if which.json {
        say!("{:#}", listed.iter().map(as_json).collect::<Value>());
    } else {
        show_list(which, &listed);
    }
    let unread: Vec<(Version, &Unread)> =
        listed.iter().filter_map(|(version, table)| Some((*version, table.as_ref().err()?))).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let reasons = unread.iter().map(|(version, unread)| format!("{version}: {}", unread.reason));
    let reasons: Vec<String> = reasons.collect();
    let mut hints = Vec::new();
    let any = |fault| unread.iter().any(|(_, unread)| unread.fault == fault);
    if any(Fault::Unsigned) {
        hints.push(
            "what is not trusted may be whole: sign it (`canopy index publish --from URL --to URL --version N --sign-key FILE`, URL \
             may be the same), or name the key that signed it in [store] verify_keys",
        );
    }
    if any(Fault::Changed) {
        hints.push(
            "what is not what was signed: find out who changed it: compare its manifest.json with the publisher's copy, \
             and publish that again under a new number",
        );
    }
    if any(Fault::Damaged) {
        hints.push("copy or build again what is damaged; nodes pass it over meanwhile");
    }
    bail!("{}; hint: {}", reasons.join("; "), hints.join("; "))
}

/// What kind of fault it is: each has its own way out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It may be whole, and nobody who is trusted signed it.
    Unsigned,
    /// It is not what was signed.
    Changed,
    Damaged,
}

/// Why a version can't be listed.
struct Unread {
    fault: Fault,
    reason: String,
}

/// A version and its table, or why that can't be read.
type Listed = (Version, std::result::Result<StoredTable, Unread>);

fn bytes(manifest: &Manifest) -> u64 {
    manifest.files().map(|file| file.bytes).sum()
}

fn as_json((version, table): &Listed) -> Value {
    match table {
        Ok(StoredTable { manifest: m, signature, .. }) => json!({
            "version": version.0.to_string(), "parent": m.parent.map(|v| v.0.to_string()), "created": m.created,
            "documents": m.documents().to_string(), "shards": m.shards.len(), "bytes": bytes(m).to_string(),
            "schema_id": m.schema_id, "signed_by": signature.as_ref().map(|signature| &signature.key)
        }),
        Err(Unread { fault: Fault::Damaged, reason }) => {
            json!({ "version": version.0.to_string(), "damaged": reason })
        }
        Err(Unread { reason, .. }) => json!({ "version": version.0.to_string(), "untrusted": reason }),
    }
}

fn show_list(which: &Which, listed: &[Listed]) {
    if listed.is_empty() {
        say!("no version yet; hint: canopy index build --corpus {} --input FILE", which.corpus);
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["version", "created", "documents", "shards", "size", "schema", "signed by"]);
    for (version, listed) in listed {
        let version = version.to_string();
        match listed {
            Ok(StoredTable { manifest: m, signature, .. }) => table.add_row([
                version,
                m.created.clone(),
                show::count(m.documents()),
                m.shards.len().to_string(),
                show::bytes(bytes(m)),
                m.schema_id.clone(),
                signature.as_ref().map_or_else(|| "nobody".to_owned(), |signature| signature.key.clone()),
            ]),
            Err(Unread { fault: Fault::Unsigned, .. }) => table.add_row([version, "not trusted".to_owned()]),
            Err(Unread { fault: Fault::Changed, .. }) => {
                table.add_row([version, "not what was signed".to_owned()])
            }
            Err(_) => table.add_row([version, "can't be read".to_owned()]),
        };
    }
    say!("{table}");
}

async fn inspect(which: &Which) -> Result<()> {
    let (store, manifest) = open(which).await?;
    let signature = store.table(&which.corpus, manifest.version).await?.signature;
    if which.json {
        let mut shown = serde_json::to_value(&manifest)?;
        shown["signature"] = serde_json::to_value(&signature)?;
        say!("{shown:#}");
        return Ok(());
    }
    let m = &manifest;
    say!("{} {} of corpus {}, created {} by {}", m.version, m.schema_id, m.corpus, m.created, m.builder);
    say!(
        "{} documents, {} terms, {} read, {} rejected, {} superseded, {} over-long words, {} fields dropped",
        show::count(m.documents()),
        show::count(m.statistics.terms),
        show::count(m.counts.read),
        show::count(m.counts.rejected),
        show::count(m.counts.superseded),
        show::count(m.counts.long_tokens),
        show::count(m.counts.dropped_fields)
    );
    let languages: Vec<String> =
        m.languages.iter().map(|(code, n)| format!("{code} {}", show::count(*n))).collect();
    say!("languages: {}", languages.join(", "));
    match &signature {
        Some(signature) if store.trusted().everybody() => {
            say!("signed by key {}; nobody said which keys to trust, so this was not checked", signature.key);
        }
        Some(signature) => say!("signed by key {}, which is trusted", signature.key),
        None => say!("not signed"),
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["shard", "documents", "slots", "size", "resident", "average length"]);
    for shard in &m.shards {
        let layout = m.layouts.iter().find(|layout| layout.group == *shard.shard.group);
        let slots = layout.map_or(0, |layout| {
            layout.table.iter().filter(|number| u32::from(**number) == shard.shard.number).count()
        });
        let tokens = shard.tokens.get(canopy_format::schema::SEARCH_FIELD).copied().unwrap_or(0);
        table.add_row([
            shard.shard.to_string(),
            show::count(shard.documents),
            slots.to_string(),
            show::bytes(shard.bytes),
            show::bytes(shard.resident_bytes),
            format!("{:.1}", tokens as f64 / shard.documents.max(1) as f64),
        ]);
    }
    say!("{table}");
    Ok(())
}

async fn verify(which: &Which) -> Result<()> {
    let (store, manifest) = open(which).await?;
    let bar = bar::bytes(bytes(&manifest), which.json, "verify");
    let report = canopy_indexer::verify::verify(&store, &which.corpus, Some(manifest.version), &|bytes| {
        bar.inc(bytes);
    })
    .await?;
    bar.finish_and_clear();
    if which.json {
        say!("{:#}", serde_json::to_value(&report)?);
    }
    if !report.sound() {
        let damaged = report.damaged.iter().map(|d| format!("{}: {}", d.file.path, d.reason));
        let unusable = report.unusable.iter().map(|part| format!("{}: {}", part.part, part.reason));
        let list: Vec<String> = damaged.chain(unusable).collect();
        bail!(
            "{} of {} is damaged: {}; hint: build or copy it again",
            report.version,
            report.corpus,
            list.join(", ")
        );
    }
    if !which.json {
        let opened = if report.opened { ", every shard opened and answered" } else { "" };
        say!(
            "{} of {} is whole: {} files, {}{opened}",
            report.version,
            report.corpus,
            report.files,
            show::bytes(report.bytes)
        );
    }
    Ok(())
}

async fn diff(from: Option<u64>, which: &Which) -> Result<()> {
    let (store, new) = open(which).await?;
    let Some(from) = from.map(Version).or(new.parent) else {
        bail!("{} has no version before it to compare with; hint: --from VERSION", new.version);
    };
    let report = canopy_indexer::diff::versions(&store, &which.corpus, from, new.version).await?;
    if which.json {
        say!("{:#}", serde_json::to_value(&report)?);
    } else {
        say!("{report}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use canopy_format::{
        schema::Schema,
        signature::SigningKey,
        store::{Corpus, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn one_damaged_version_does_not_hide_the_others() {
        let place = tempfile::tempdir().unwrap();
        let url = place.path().display().to_string();
        let store = VersionStore::open(&url, true).unwrap();
        let (name, schema) = ("web".to_owned(), Schema::web());
        let corpus = Corpus { name, schema, partitions: 16, ordering: Ordering::Log };
        store.create_corpus(&corpus).await.unwrap();
        for version in [1, 2] {
            let dir = store.version_dir("web", Version(version)).unwrap();
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("manifest.json"), "{").unwrap();
        }
        let which = Which { corpus: "web".into(), store: StoreArgs::at(&url), version: None, json: true };
        let error = list(&which).await.unwrap_err().to_string();
        for part in ["v1: ", "v2: ", "is damaged", "; hint: copy or build again"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("sign") && !error.contains("remove"), "{error}");
        // Nobody is told to remove what may be whole.
        let file = place.path().join("c.toml");
        let key = SigningKey::from_seed(&[1; 32]).unwrap().public().to_base64();
        std::fs::write(&file, format!("[store]\nverify_keys = [{key:?}]")).unwrap();
        let which = Which { store: StoreArgs::at(&url).by(&file), ..which };
        let error = list(&which).await.unwrap_err().to_string();
        for part in ["v1: web v1 is not trusted: it is not signed", "--sign-key", "verify_keys"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("remove") && !error.contains("copy or build"), "{error}");
        // Nor to sign what was changed since it was signed.
        for version in [1, 2] {
            let dir = store.version_dir("web", Version(version)).unwrap();
            std::fs::write(dir.join("manifest-00000000000000000000000000000000.sig"), "{}").unwrap();
        }
        let error = list(&which).await.unwrap_err().to_string();
        for part in ["changed since it was signed", "don't sign it as it is", "find out who changed it"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("--sign-key"), "{error}");
    }
}
