//! `canopy search`: one query against a root.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Result, anyhow};
use canopy_common::{config::Time, net::NetIo};
use serde_json::Value;

use crate::{
    failure,
    http::{self, Client, encode},
    say::{self, say},
    show,
};

/// `canopy search`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy search \"replication slots\" -k 3 --explain\n          \
              canopy search \"mutex lang:en\" --param filter=host:rust-doc.debian.example --json")]
pub struct Args {
    /// What to look for
    query: String,
    /// HTTP address of a root
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT", value_parser = http::address)]
    root: String,
    /// Corpus
    #[arg(long, default_value = "web")]
    corpus: String,
    /// Hits
    #[arg(short, default_value_t = 10)]
    k: u64,
    /// Deadline
    #[arg(long, default_value = "350ms")]
    timeout: Time,
    /// Shows how each score came about and where the hit is from
    #[arg(long)]
    explain: bool,
    /// Shows the timeline of the tree
    #[arg(long)]
    trace: bool,
    /// Sees the write that gave this token, of `canopy feed`
    #[arg(long, value_name = "TOKEN")]
    after: Option<String>,
    /// Any other parameter of the API
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Prints the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let mut path = format!(
        "/v1/{}/search?q={}&k={}&timeout_ms={}",
        encode(&args.corpus),
        encode(&args.query),
        args.k,
        args.timeout.0.as_millis()
    );
    for flag in [("explain", args.explain), ("trace", args.trace)] {
        if flag.1 {
            path.push_str(&format!("&{}=true", flag.0));
        }
    }
    if let Some(token) = &args.after {
        path.push_str(&format!("&min_offset={}", encode(token)));
    }
    for param in &args.param {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| anyhow!("--param {param:?} is not NAME=VALUE; hint: --param total=exact"))?;
        path.push_str(&format!("&{}={}", encode(name), encode(value)));
    }
    let client = Client::new(NetIo::tcp(), &args.root, args.timeout.0 + Duration::from_secs(2));
    let answered = client.get(&path).await.map_err(|error| {
        let refused = error.root_cause().is::<std::io::Error>();
        let hint = if refused {
            "start a tree with `canopy quickstart`, or name the root with --root"
        } else {
            "--timeout 2s"
        };
        anyhow!("{}; hint: {hint}", failure::line(&error))
    })?;
    let answer: Value = serde_json::from_slice(answered.body())
        .map_err(|_| anyhow!("{} is no canopy root: it answered {}", args.root, answered.status()))?;
    if args.json {
        say!("{answer:#}");
    }
    if !answered.status().is_success() {
        let error = &answer["error"];
        let hint = match answered.status().as_u16() {
            503 => "; hint: `canopy status -c FILE` shows which nodes answer",
            504 => "; hint: a longer --timeout, or `canopy status -c FILE` to see which nodes answer",
            _ => "",
        };
        return Err(anyhow!(
            "{} ({}){hint}",
            show::plain(error["message"].as_str().unwrap_or("the root refused")),
            error["code"].as_str().unwrap_or("no code"),
        ));
    }
    if !args.json {
        say::write(format_args!("{}", show::answer(&answer, std::io::stdout().is_terminal())));
        if args.trace {
            say!("\n{}", show::why::timeline(&answer["trace"]).trim_end());
        }
    }
    Ok(())
}
