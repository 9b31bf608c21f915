//! `canopy index build`: input files to a published version, with a progress bar on a terminal and plain lines elsewhere.

use std::{io::IsTerminal, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use canopy_common::config::Size;
use canopy_format::token::Token;
use canopy_indexer::{
    build::{self, Amount, BuildReport, BuildRequest, Progress, Stage},
    source::Format,
};
use clap::ValueEnum;
use indicatif::ProgressBar;

use super::{super::corpus::read_schema, bar, keygen, warmup};
use crate::{
    say::{self, aside, say},
    show,
    store::StoreArgs,
};

/// Format of the input.
#[derive(Clone, Copy, ValueEnum)]
pub enum FormatArg {
    /// One JSON object a line; .gz and .zst are recognised
    Jsonl,
    /// Web archive; .gz and .zst are recognised
    Warc,
}

/// `canopy index build`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy corpus create web\n          \
              canopy index build --corpus web --input pages.jsonl.gz --shards 4\n          \
              canopy index build --corpus web --input crawl-1.warc.gz crawl-2.warc.gz --memory 2GiB")]
pub struct Args {
    /// Corpus; create it first
    #[arg(long, default_value = "web")]
    corpus: String,
    /// Input files, in order: of two records with one key the later wins
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    input: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Schema of this version; the corpus' own when left out
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Shards; those of the version before when left out, else 4
    #[arg(long)]
    shards: Option<u32>,
    /// Input format; recognised from the content when left out
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Memory to work with
    #[arg(long, default_value = "1GiB")]
    memory: Size,
    /// Threads; all cores when left out
    #[arg(long)]
    threads: Option<usize>,
    /// Largest share of rejected records, such as 0.1%
    #[arg(long, default_value = "0.1%")]
    max_rejects: String,
    /// Where rejected records are listed, one JSON object a line
    #[arg(long, value_name = "FILE")]
    reject_file: Option<PathBuf>,
    /// Where spill files go; beside the version when left out, needed when the store is no directory
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,
    /// Where the log ended before the input was read, as `canopy feed token` prints it: leaves replay what came after
    #[arg(long, value_name = "TOKEN", default_value = ":", value_parser = cut)]
    cut: Token,
    /// Publish also an empty version, one below half of the version before, or one of input files that end too early
    #[arg(long)]
    force: bool,
    /// File of queries, one a line, or a root's query log, that leaves warm the version with and the search page offers as
    /// examples; those of the version before when left out
    #[arg(long, value_name = "FILE")]
    warmup: Option<PathBuf>,
    /// Private key that signs the version
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match value {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => bail!("--max-rejects {text:?} is not a share; hint: 0.1% or 0.001"),
    }
}

/// A token of a known log; `:` is none.
fn cut(text: &str) -> Result<Token, String> {
    let token: Token = text.parse()?;
    if token.epoch.is_empty() && !token.offsets.is_empty() {
        return Err(
            "it does not say of which log it is; take all of what `canopy feed token` prints".to_owned()
        );
    }
    Ok(token)
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let store = args.store.open_to_make(&args.corpus)?;
    let schema = args.schema.as_deref().map(read_schema).transpose()?;
    let mut request = BuildRequest {
        schema,
        shards: args.shards,
        format: args.format.map(|format| match format {
            FormatArg::Jsonl => Format::Jsonl,
            FormatArg::Warc => Format::Warc,
        }),
        memory: args.memory.0,
        max_rejects: share(&args.max_rejects)?,
        reject_file: args.reject_file.clone(),
        temp: args.temp.clone(),
        cut: args.cut.offsets,
        log: args.cut.epoch,
        force: args.force,
        warmup: args.warmup.as_deref().map(|file| warmup::read(file, &args.corpus)).transpose()?,
        sign: args.sign_key.as_deref().map(keygen::read).transpose()?,
        progress: Arc::new(Bars::new(args.json)),
        ..BuildRequest::new(store, args.corpus.clone(), args.input.clone())
    };
    request.threads =
        args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let report = build::run(request).await?;
    if args.json {
        say!("{:#}", serde_json::to_value(&report)?);
    } else {
        say::write(format_args!("{}", summary(&report)));
    }
    Ok(())
}

fn summary(report: &BuildReport) -> String {
    let mut out = format!(
        "{} {}: {} documents in {} shards, {}, {:.1} s ({:.0} documents/s)\n",
        report.corpus,
        report.version,
        show::count(report.documents),
        report.shards.len(),
        show::bytes(report.bytes),
        report.total_seconds,
        report.documents as f64 / report.total_seconds.max(0.001)
    );
    let counts = &report.counts;
    out.push_str(&format!(
        "read {}, rejected {}, superseded {}, over-long words dropped {}, fields dropped {}\n",
        show::count(counts.read),
        show::count(counts.rejected),
        show::count(counts.superseded),
        show::count(counts.long_tokens),
        show::count(counts.dropped_fields)
    ));
    for reject in report.rejects.iter().take(5) {
        out.push_str(&format!("rejected: {}\n", show::plain(&reject.to_string())));
    }
    for passed in &report.passed_over {
        let reason = show::plain(&passed.reason);
        out.push_str(&format!("{} can't be read and was passed over: {reason}\n", passed.version));
    }
    for leftover in &report.leftovers {
        let what = if leftover.cleaned { "removed" } else { "still being built, or by another machine" };
        out.push_str(&format!("unpublished {}: {what}\n", leftover.version));
    }
    out
}

/// Shows a build's progress.
pub(super) struct Bars {
    quiet: bool,
    bar: parking_lot::Mutex<ProgressBar>,
}

impl Bars {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, bar: parking_lot::Mutex::new(ProgressBar::hidden()) }
    }

    fn counts_bytes(stage: Stage) -> bool {
        matches!(stage, Stage::Read | Stage::Verify)
    }
}

impl Progress for Bars {
    fn begin(&self, stage: Stage, total: Amount) {
        if self.quiet {
            return;
        }
        *self.bar.lock() = match stage {
            Stage::Read => bar::bytes(total.bytes, false, "read"),
            Stage::Verify => bar::bytes(total.bytes, false, "verify"),
            Stage::Write | Stage::Statistics => bar::documents(total.documents, stage.to_string()),
        };
    }

    fn advance(&self, stage: Stage, more: Amount) {
        self.bar.lock().inc(if Self::counts_bytes(stage) { more.bytes } else { more.documents });
    }

    fn end(&self, stage: Stage, took: Duration) {
        self.bar.lock().finish_and_clear();
        if !self.quiet && !std::io::stderr().is_terminal() {
            aside!("{stage}: {:.1} s", took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_cuts_are_read_or_refused() {
        assert_eq!(share("0.1%").unwrap(), 0.001);
        assert_eq!(share("1").unwrap(), 1.0);
        assert!(share("101%").is_err() && share("x").is_err());
        let token = cut("5f2c:0.5,3.7").unwrap();
        assert_eq!((token.epoch.as_str(), token.offsets), ("5f2c", [(0, 5), (3, 7)].into()));
        assert_eq!(cut(":"), Ok(Token::default()));
        assert!(cut("0:5,3:7").is_err() && cut(":0.5").is_err() && cut("0").is_err());
    }
}
