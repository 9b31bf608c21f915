//! `canopy load`: puts load on a root and measures it.
//!
//! Open loop by default: arrivals come at their own times whether or not answers do, and a latency is counted from the
//! intended arrival. A closed loop, which waits for one answer before it asks again, hides exactly the queries that a
//! frozen server would have hurt (coordinated omission); it is here, as `--closed N`, to compare with tools that do so.
//!
//! A query without an answer makes the command fail, unless failures are what is measured (`--allow-failures`). An
//! answer in part is an answer.

mod tally;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use canopy_common::{config::Time, net::NetIo};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::{sync::Mutex, task::JoinSet, time::Instant};

use self::tally::{End, Tally, end};
use crate::{
    http::encode,
    queries,
    say::{self, aside, say},
};

/// `canopy load`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy load --queries queries.txt --qps 200 --duration 30s\n          \
              canopy load --queries queries.txt --closed 8 --duration 10s --json")]
pub struct Args {
    /// HTTP address of a root
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT", value_parser = crate::http::address)]
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
    /// Succeed though queries failed
    #[arg(long)]
    allow_failures: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Most queries in flight in open loop; beyond, an arrival is counted as dropped by this tool.
const MAX_IN_FLIGHT: usize = 20_000;

/// Pause of a closed loop after its connection failed.
const PAUSE: Duration = Duration::from_millis(10);

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
        let connected = tokio::time::timeout(self.patience, self.net.connect(&self.root)).await;
        let io = connected.map_err(|_| anyhow!("no connection in time"))?.context("connect")?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One query on one connection.
    async fn ask(&self, sender: &mut SendRequest<Empty<Bytes>>, n: usize) -> Result<End> {
        let path = &self.paths[n % self.paths.len()];
        let request = Request::get(path).header("host", &self.root).body(Empty::new())?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            let coverage = answer.headers().get("x-canopy-coverage").and_then(|value| value.to_str().ok());
            let partial = coverage.and_then(|text| text.split_once('/')).is_some_and(|(a, b)| a != b);
            let body = answer.into_body().collect().await?.to_bytes();
            Ok(end(status, partial, &body))
        };
        tokio::time::timeout(self.patience, exchange).await.map_err(|_| anyhow!("no answer in time"))?
    }

    /// Closed loop: the caller's connection, made anew when it is gone.
    async fn ask_again(&self, open: &mut Option<SendRequest<Empty<Bytes>>>, n: usize) -> Result<End> {
        let mut sender = match open.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        let ended = self.ask(&mut sender, n).await?;
        *open = sender.ready().await.is_ok().then_some(sender);
        Ok(ended)
    }

    /// Open loop: a connection that is idle, else a new one.
    async fn ask_pooled(&self, n: usize) -> Result<End> {
        let mut open = self.idle.lock().await.pop();
        let ended = self.ask_again(&mut open, n).await;
        if let Some(sender) = open {
            self.idle.lock().await.push(sender);
        }
        ended
    }
}

/// Why there was no answer.
fn lost(outcome: Result<End>) -> End {
    outcome.unwrap_or_else(|error| End::Lost(error.root_cause().to_string()))
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
    let paths = queries::read(&args.queries)?
        .iter()
        .map(|query| format!("/v1/{}/search?q={}{tail}", encode(&args.corpus), encode(query)))
        .collect();
    let target = Arc::new(Target {
        net: NetIo::tcp(),
        root: args.root.clone(),
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
        aside!("asking {} for {:?} …", args.root, args.duration.0);
    }
    let start = Instant::now();
    let tally = match args.closed {
        Some(callers) => closed_loop(&target, callers, args.duration.0).await?,
        None => open_loop(&target, args.qps, args.duration.0).await?,
    };
    let elapsed = start.elapsed();
    if args.json {
        say!("{:#}", tally.json(if args.closed.is_some() { "closed" } else { "open" }, elapsed));
    } else {
        say::write(format_args!("{}", tally.text(elapsed)));
    }
    if tally.failed() > 0 && !args.allow_failures {
        bail!("{} queries failed; hint: --allow-failures when that is what you measure", tally.failed());
    }
    Ok(())
}

/// Time from the intended arrival, and the end of one query.
type Asked = (Duration, End);

async fn open_loop(target: &Arc<Target>, qps: f64, duration: Duration) -> Result<Tally> {
    let mut tally = Tally::new()?;
    let mut running = JoinSet::new();
    let start = Instant::now();
    let arrivals = (duration.as_secs_f64() * qps).ceil() as usize;
    for n in 0..arrivals {
        let intended = start + Duration::from_secs_f64(n as f64 / qps);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(intended) => break,
                done = running.join_next(), if !running.is_empty() => collect(&mut tally, done),
            }
        }
        if running.len() >= MAX_IN_FLIGHT {
            tally.dropped += 1;
            continue;
        }
        let target = target.clone();
        running.spawn(async move {
            let ended = lost(target.ask_pooled(n).await);
            (intended.elapsed(), ended)
        });
    }
    while !running.is_empty() {
        let done = running.join_next().await;
        collect(&mut tally, done);
    }
    Ok(tally)
}

fn collect(tally: &mut Tally, done: Option<Result<Asked, tokio::task::JoinError>>) {
    match done {
        Some(Ok((took, ended))) => tally.add(took, ended),
        Some(Err(error)) => tally.add(Duration::ZERO, End::Lost(error.to_string())),
        None => {}
    }
}

async fn closed_loop(target: &Arc<Target>, callers: usize, duration: Duration) -> Result<Tally> {
    let end = Instant::now() + duration;
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let target = target.clone();
        running.spawn(async move {
            let mut tally = Tally::new()?;
            let mut open = None;
            let mut n = caller;
            while Instant::now() < end {
                let since = Instant::now();
                let ended = target.ask_again(&mut open, n).await;
                tally.add(since.elapsed(), lost(ended));
                if open.is_none() {
                    // Nobody there, or somebody who closes every connection: not as fast as the loop turns.
                    tokio::time::sleep(PAUSE).await;
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
