//! `canopy index publish`: a version from one store to another, to the byte, seen by nobody before it is whole.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Result;
use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_indexer::publish::{self, PublishReport, PublishRequest};

use super::{bar, keygen, warmup};
use crate::{say::say, show, store};

/// `canopy index publish`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy index publish --corpus web --from ./canopy-data --to s3://bucket/search -c canopy.toml\n\
          The keys and the endpoint of an S3 store are those of [store] in the file, or of CANOPY__STORE__… and AWS_… variables."
)]
pub struct Args {
    /// Corpus; made in the target when it is not there
    #[arg(long, default_value = "web")]
    corpus: String,
    /// Store that has the version
    #[arg(long, value_name = "URL")]
    from: String,
    /// Store that gets it
    #[arg(long, value_name = "URL")]
    to: String,
    /// Version; the newest when left out
    #[arg(long)]
    version: Option<u64>,
    /// Take the next number of the target, and not the version's own
    #[arg(long)]
    renumber: bool,
    /// Publish also an empty version, one below half of the target's newest, or one of another schema
    #[arg(long)]
    force: bool,
    /// File of queries, one a line, or a root's query log, to warm the version with; its own when left out
    #[arg(long, value_name = "FILE")]
    warmup: Option<PathBuf>,
    /// Private key that signs the version, also one that is there already (keys are exchanged so); the source need not be signed
    /// then. When left out its own signature goes with it
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Configuration file whose [store] says how to reach both stores and whose versions are taken
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Another one for --from, when the two are reached differently
    #[arg(long, value_name = "FILE")]
    from_config: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

fn open(url: &str, file: Option<&Path>, create: bool) -> Result<VersionStore> {
    let config = store::settings(Some(url), file)?;
    if create { Ok(VersionStore::connect(&config, true)?) } else { store::open(&config) }
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let config = args.config.as_deref();
    let from = open(&args.from, args.from_config.as_deref().or(config), false)?;
    let to = open(&args.to, config, true)?;
    let sign = args.sign_key.as_deref().map(keygen::read).transpose()?;
    let request = PublishRequest::new(from, to, args.corpus.clone()).signing(sign);
    let version = match args.version {
        Some(version) => Version(version),
        None => request.from.latest(&args.corpus).await?.version,
    };
    let bytes: u64 = request.from.manifest(&args.corpus, version).await?.files().map(|file| file.bytes).sum();
    // Each byte goes twice: there, and read back.
    let bar = bar::bytes(2 * bytes, args.json, "publish");
    let moving = bar.clone();
    let request = PublishRequest {
        version: Some(version),
        renumber: args.renumber,
        force: args.force,
        warmup: args.warmup.as_deref().map(|file| warmup::read(file, &args.corpus)).transpose()?,
        progress: Arc::new(move |bytes| moving.inc(bytes)),
        ..request
    };
    let published = publish::run(&request).await;
    bar.finish_and_clear();
    let report = published?;
    if args.json {
        say!("{:#}", serde_json::to_value(&report)?);
    } else {
        say!("{}", line(&report, &args.to));
    }
    Ok(())
}

fn line(report: &PublishReport, to: &str) -> String {
    let PublishReport { corpus, version, .. } = report;
    let signed =
        report.signed_by.as_ref().map_or("not signed".to_owned(), |key| format!("signed by key {key}"));
    if report.signed_anew {
        return format!("{version} of {corpus} is in {to} already, the same to the byte; now {signed}");
    }
    if report.already_there {
        return format!("{version} of {corpus} is in {to} already, the same to the byte; {signed}");
    }
    let was = if report.source == *version {
        String::new()
    } else {
        format!(", {} where it came from", report.source)
    };
    format!(
        "{version} of {corpus} is published in {to}{was}: {} documents, {} files, {} ({} sent), {signed}",
        show::count(report.documents),
        report.files,
        show::bytes(report.bytes),
        show::bytes(report.sent_bytes)
    )
}
