//! `canopy load`: puts load on a root and measures it.
//!
//! Open loop by default: arrivals come at their own times whether or not answers do, and a latency is counted from the
//! intended arrival. A closed loop, which waits for one answer before it asks again, hides exactly the queries that a
//! frozen server would have hurt (coordinated omission); it is here, as `--closed N`, to compare with tools that do so.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use canopy_common::{config::Time, net::NetIo};
use hdrhistogram::Histogram;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{sync::Mutex, task::JoinSet, time::Instant};

use crate::{http::encode, say::say};

/// `canopy load`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy load --queries queries.txt --qps 200 --duration 30s\n          \
              canopy load --queries queries.txt --closed 8 --duration 10s --json")]
pub struct Args {
    /// HTTP address of a root
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    root: String,
    /// Corpus
    #[arg(long, default_value = "web")]
    corpus: String,
    /// File with one query a line (or an id, a tab and the query)
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Arrivals per second (open loop)
    #[arg(long, default_value_t = 100.0, conflicts_with = "closed")]
    qps: f64,
    /// Closed loop with N callers that wait for their answers
    #[arg(long, value_name = "N")]
    closed: Option<usize>,
    /// How long
    #[arg(long, default_value = "30s")]
    duration: Time,
    /// Deadline of each query
    #[arg(long, default_value = "350ms")]
    timeout: Time,
    /// Any other parameter of the API
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Most queries in flight in open loop; beyond, an arrival is counted as dropped by this tool.
const MAX_IN_FLIGHT: usize = 20_000;

/// What came of the queries.
struct Tally {
    latency: Histogram<u64>,
    answers: BTreeMap<String, u64>,
    partial: u64,
}

impl Tally {
    fn new() -> Result<Self> {
        // 1 us to 10 min, three digits.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        Ok(Self { latency, answers: BTreeMap::new(), partial: 0 })
    }

    fn add(&mut self, since: Instant, outcome: Result<(u16, bool)>) {
        let us = since.elapsed().as_micros() as u64;
        self.latency.saturating_record(us.max(1));
        let name = match outcome {
            Ok((status, partial)) => {
                self.partial += u64::from(partial);
                status.to_string()
            }
            Err(error) => format!("{}", error.root_cause()),
        };
        *self.answers.entry(name).or_default() += 1;
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        self.latency.add(other.latency)?;
        for (name, n) in other.answers {
            *self.answers.entry(name).or_default() += n;
        }
        self.partial += other.partial;
        Ok(())
    }
}

/// What is asked, and of whom.
struct Target {
    net: NetIo,
    root: String,
    paths: Vec<String>,
    patience: Duration,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
}

impl Target {
    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let io = self.net.connect(&self.root).await.context("connect")?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One query on one connection; (status, whether the answer was partial).
    async fn ask(&self, sender: &mut SendRequest<Empty<Bytes>>, n: usize) -> Result<(u16, bool)> {
        let path = &self.paths[n % self.paths.len()];
        let request = Request::get(path).header("host", &self.root).body(Empty::new())?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            let coverage = answer.headers().get("x-canopy-coverage").and_then(|value| value.to_str().ok());
            let partial = coverage.and_then(|text| text.split_once('/')).is_some_and(|(a, b)| a != b);
            let mut body = answer.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok((status, partial))
        };
        tokio::time::timeout(self.patience, exchange).await.map_err(|_| anyhow!("no answer in time"))?
    }

    /// Open loop: a connection that is idle, else a new one.
    async fn ask_pooled(&self, n: usize) -> Result<(u16, bool)> {
        let idle = self.idle.lock().await.pop();
        let mut sender = match idle {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        let outcome = self.ask(&mut sender, n).await;
        if outcome.is_ok() && sender.ready().await.is_ok() {
            self.idle.lock().await.push(sender);
        }
        outcome
    }
}

fn queries(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_once('\t').map_or(line, |(_, query)| query).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        bail!("{} holds no query; hint: one query a line", path.display());
    }
    Ok(lines)
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    if !(args.qps > 0.0 && args.qps <= 1e6) {
        bail!("--qps {} is outside 0..1000000", args.qps);
    }
    if args.closed.is_some_and(|n| n == 0 || n > 10_000) {
        bail!("--closed takes 1..10000 callers");
    }
    let mut tail = format!("&timeout_ms={}", args.timeout.0.as_millis());
    for param in &args.param {
        let (name, value) =
            param.split_once('=').ok_or_else(|| anyhow!("--param {param:?} is not NAME=VALUE"))?;
        tail.push_str(&format!("&{}={}", encode(name), encode(value)));
    }
    let paths = queries(&args.queries)?
        .iter()
        .map(|query| format!("/v1/{}/search?q={}{tail}", encode(&args.corpus), encode(query)))
        .collect();
    let target = Arc::new(Target {
        net: NetIo::tcp(),
        root: args.root.strip_prefix("http://").unwrap_or(&args.root).to_owned(),
        paths,
        patience: args.timeout.0 + Duration::from_secs(10),
        idle: Mutex::new(Vec::new()),
    });
    // Fails early, with the reason, when nobody is there.
    let reached = target.connect().await;
    drop(reached.map_err(|error| {
        let cause = error.root_cause();
        anyhow!(
            "nothing answers at {}: {cause}; hint: `canopy quickstart` starts a tree, --root names a root",
            args.root
        )
    })?);
    if !args.json {
        eprintln!("asking {} for {:?} …", args.root, args.duration.0);
    }
    let start = Instant::now();
    let (tally, dropped) = match args.closed {
        Some(callers) => (closed_loop(&target, callers, args.duration.0).await?, 0),
        None => open_loop(&target, args.qps, args.duration.0).await?,
    };
    report(&args, &tally, dropped, start.elapsed());
    Ok(())
}

/// Intended arrival and outcome of one query.
type Asked = (Instant, Result<(u16, bool)>);

async fn open_loop(target: &Arc<Target>, qps: f64, duration: Duration) -> Result<(Tally, u64)> {
    let mut tally = Tally::new()?;
    let mut running = JoinSet::new();
    let (start, mut dropped) = (Instant::now(), 0);
    let arrivals = (duration.as_secs_f64() * qps).ceil() as usize;
    let mut collect = |done: Option<Result<Asked, tokio::task::JoinError>>| {
        if let Some(Ok((intended, outcome))) = done {
            tally.add(intended, outcome);
        }
    };
    for n in 0..arrivals {
        let intended = start + Duration::from_secs_f64(n as f64 / qps);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(intended) => break,
                done = running.join_next(), if !running.is_empty() => collect(done),
            }
        }
        if running.len() >= MAX_IN_FLIGHT {
            dropped += 1;
            continue;
        }
        let target = target.clone();
        running.spawn(async move {
            let outcome = target.ask_pooled(n).await;
            (intended, outcome)
        });
    }
    while !running.is_empty() {
        collect(running.join_next().await);
    }
    Ok((tally, dropped))
}

async fn closed_loop(target: &Arc<Target>, callers: usize, duration: Duration) -> Result<Tally> {
    let end = Instant::now() + duration;
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let target = target.clone();
        running.spawn(async move {
            let mut tally = Tally::new()?;
            let mut sender = target.connect().await?;
            let mut n = caller;
            while Instant::now() < end {
                let since = Instant::now();
                let outcome = target.ask(&mut sender, n).await;
                let broken = outcome.is_err() || sender.ready().await.is_err();
                tally.add(since, outcome);
                if broken {
                    sender = target.connect().await?;
                }
                n += callers;
            }
            anyhow::Ok(tally)
        });
    }
    let mut sum = Tally::new()?;
    while let Some(done) = running.join_next().await {
        sum.merge(done??)?;
    }
    Ok(sum)
}

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn report(args: &Args, tally: &Tally, dropped: u64, elapsed: Duration) {
    let sent = tally.latency.len();
    let rate = sent as f64 / elapsed.as_secs_f64();
    let ms = |quantile: f64| tally.latency.value_at_quantile(quantile) as f64 / 1000.0;
    if args.json {
        let latency: serde_json::Map<_, _> =
            QUANTILES.iter().map(|(name, quantile)| ((*name).to_owned(), json!(ms(*quantile)))).collect();
        let report = json!({
            "loop": if args.closed.is_some() { "closed" } else { "open" }, "queries": sent, "dropped": dropped,
            "qps": rate, "answers": tally.answers, "partial": tally.partial, "latency_ms": latency,
            "mean_ms": tally.latency.mean() / 1000.0, "seconds": elapsed.as_secs_f64(),
            "percentiles_ms": (1..=100).map(|percent| ms(f64::from(percent) / 100.0)).collect::<Vec<_>>(),
        });
        say!("{report:#}");
        return;
    }
    say!("{sent} queries in {:.1} s, {rate:.1}/s, {} partial", elapsed.as_secs_f64(), tally.partial);
    for (name, n) in &tally.answers {
        say!("  answered {name}: {n}");
    }
    if dropped > 0 {
        say!("  not sent ({MAX_IN_FLIGHT} in flight): {dropped}");
    }
    let line: Vec<String> =
        QUANTILES.iter().map(|(name, quantile)| format!("{name} {:.2}", ms(*quantile))).collect();
    say!(
        "latency from the intended arrival, ms: {}, mean {:.2}",
        line.join("  "),
        tally.latency.mean() / 1000.0
    );
}
