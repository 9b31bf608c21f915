//! `canopy index absorb`: the next version of the last one and the log of a running ingest, without the source.

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use canopy_common::config::Size;
use canopy_format::token::Token;
use canopy_indexer::absorb::{self, AbsorbReport, AbsorbRequest};

use super::{build::Bars, keygen, remote_log::RemoteLog};
use crate::{
    control::address,
    say::{self, say},
    show,
    store::StoreArgs,
};

/// `canopy index absorb`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy index absorb --corpus web --ingest 127.0.0.1:7500")]
pub struct Args {
    /// Corpus; it has a version that keeps documents whole
    #[arg(long, default_value = "web")]
    corpus: String,
    #[command(flatten)]
    store: StoreArgs,
    /// gRPC address of the ingest that has the log
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    ingest: String,
    /// Up to here, as `canopy feed token` prints it; the end of the log when left out
    #[arg(long, value_name = "TOKEN")]
    until: Option<Token>,
    /// Shards; those of the version before when left out. Another number analyses every document again
    #[arg(long)]
    shards: Option<u32>,
    /// Memory to work with
    #[arg(long, default_value = "1GiB")]
    memory: Size,
    /// Threads; all cores when left out
    #[arg(long)]
    threads: Option<usize>,
    /// Where temporary files go; beside the version when left out, needed when the store is no directory
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,
    /// Private key that signs the version
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let log = RemoteLog::new(&args.ingest, &args.corpus)?;
    let request = AbsorbRequest {
        until: args.until,
        shards: args.shards,
        memory: args.memory.0,
        threads: args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from)),
        sign: args.sign_key.as_deref().map(keygen::read).transpose()?,
        temp: args.temp,
        progress: Arc::new(Bars::new(args.json)),
        ..AbsorbRequest::new(args.store.open()?, args.corpus.clone(), Arc::new(log))
    };
    match absorb::run(request).await? {
        Some(report) if args.json => say!("{:#}", serde_json::to_value(&report)?),
        Some(report) => say::write(format_args!("{}", summary(&report))),
        None if args.json => say!("null"),
        None => say!("{}: nothing was written since the newest version", args.corpus),
    }
    Ok(())
}

fn summary(report: &AbsorbReport) -> String {
    let (build, absorbed) = (&report.build, &report.absorbed);
    let mut out = format!(
        "{} {} of {}: {} documents in {} shards, {}, {:.1} s\n",
        build.corpus,
        build.version,
        report.of,
        show::count(build.documents),
        build.shards.len(),
        show::bytes(build.bytes),
        build.total_seconds,
    );
    out.push_str(&format!(
        "operations {}, of them stale {}, refused {}; documents new {}, gone {}, analysed {}\n",
        show::count(absorbed.operations),
        show::count(absorbed.stale),
        show::count(absorbed.refused),
        show::count(absorbed.documents),
        show::count(absorbed.removed),
        show::count(absorbed.analysed),
    ));
    out.push_str(&format!("up to {}\n", report.token));
    out
}
