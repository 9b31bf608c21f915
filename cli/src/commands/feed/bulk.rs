//! `canopy feed bulk`: whole files of operations. Several batches are under way at once; of one key all operations go the same way,
//! one batch after the other, so that they arrive in the files' order.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io::IsTerminal,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Error, Result, anyhow, bail};
use canopy_format::token::Token;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    At,
    inputs::{Inputs, Read, Reading},
    send::{Line, Sender, Sent, join},
    show,
};
use crate::{
    failure,
    say::{aside, say},
    show::{count, plain},
};

/// Batches under way at once.
const WAYS: usize = 4;
/// Operations of a batch.
const BATCH: usize = 1000;
/// Bytes of a batch.
const BATCH_BYTES: usize = 4 << 20;
/// Refused operations that are listed.
const LISTED: usize = 20;
/// Those in the JSON report.
const LISTED_JSON: usize = 1000;

/// `canopy feed bulk`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy feed bulk operations.ndjson.zst\n          \
              canopy feed bulk --put pages.jsonl.gz more.jsonl --corpus web")]
pub struct Args {
    /// Files of one operation a line, such as {"op":"delete","key":"…"}; .gz and .zst are recognised; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The lines are documents, as `index build` takes them (also web archives): each is put
    #[arg(long)]
    put: bool,
    /// The field of documents that is their key
    #[arg(long, default_value = "url", value_name = "FIELD")]
    key_field: String,
    /// Leave out the records before this one; a feed that ended early names it
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    from: u64,
    #[command(flatten)]
    at: At,
}

/// What became of all.
#[derive(Default)]
struct Report {
    counts: BTreeMap<String, u64>,
    failures: Vec<String>,
    failed: u64,
    token: Token,
}

impl Report {
    fn bad(&mut self, what: String) {
        *self.counts.entry("rejected".to_owned()).or_default() += 1;
        self.failed += 1;
        if self.failures.len() < LISTED_JSON {
            self.failures.push(plain(&what));
        }
    }

    fn settled(&mut self, lines: &[Line], sent: Sent) {
        for (line, item) in lines.iter().zip(&sent.items) {
            let Some(item) = item else { continue };
            match item["status"].as_str().unwrap_or_default() {
                "rejected" => self.bad(format!("{}: {}", line.place, show::item(item))),
                status => *self.counts.entry(plain(status)).or_default() += 1,
            }
        }
        join(&mut self.token, sent.token);
    }

    fn lines(&self) -> Vec<String> {
        let counts: Vec<String> =
            self.counts.iter().map(|(status, number)| format!("{} {status}", count(*number))).collect();
        let counts = if counts.is_empty() { "nothing to send".to_owned() } else { counts.join(", ") };
        vec![counts, format!("token {}", self.token)]
    }
}

/// What a way tells.
enum News {
    Settled(Vec<Line>, Sent),
    Bad(String),
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let sender = args.at.sender()?;
    let reading = Reading { put: args.put, key_field: args.key_field.clone() };
    let inputs = Inputs::new(args.files, reading);
    let (told, news) = mpsc::channel(WAYS * 2);
    let (ways, ends): (Vec<_>, Vec<_>) = (0..WAYS)
        .map(|_| {
            let (way, batches) = mpsc::channel(1);
            (way, tokio::spawn(work(sender.clone(), batches, told.clone())))
        })
        .unzip();
    let from = args.from;
    let reader = tokio::task::spawn_blocking(move || feed(inputs, from, &ways, &told));
    let report = listen(news, args.at.json).await;
    let (unsent, read) = reader.await?;
    let mut first = unsent;
    let mut errors: Vec<Error> = read.err().into_iter().collect();
    for end in ends {
        if let Err((number, error)) = end.await? {
            first = Some(first.map_or(number, |first| first.min(number)));
            errors.extend(error);
        }
    }
    if args.at.json {
        let failures = &report.failures;
        let document = json!({ "counts": report.counts, "token": report.token.to_string(), "failures": failures,
            "next": first, "error": errors.first().map(failure::line) });
        say!("{document:#}");
    } else {
        report.lines().iter().for_each(|line| say!("{line}"));
    }
    verdict(&report, first, errors.into_iter().next())
}

fn verdict(report: &Report, first: Option<u64>, error: Option<Error>) -> Result<()> {
    if let Some(error) = error {
        let said = failure::line(&error);
        let go_on = first.map_or_else(String::new, |first| format!("go on with --from {first}"));
        let joint = match (go_on.is_empty(), said.contains("; hint: ")) {
            (true, _) => "",
            (false, true) => "; then ",
            (false, false) => "; hint: ",
        };
        return Err(anyhow!("{said}{joint}{go_on}"));
    }
    if report.failed > 0 {
        let hint = "hint: `canopy feed dead-letters` keeps what the ingest refused";
        bail!("{} operations refused; {hint}", count(report.failed));
    }
    Ok(())
}

/// Shows what the ways tell until all have ended.
async fn listen(mut news: mpsc::Receiver<News>, quiet: bool) -> Report {
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new_spinner()
    };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} operations, {per_sec}, {elapsed}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut report = Report::default();
    let mut listed = 0;
    while let Some(told) = news.recv().await {
        match told {
            News::Settled(lines, sent) => {
                bar.inc(sent.items.iter().flatten().count() as u64);
                report.settled(&lines, sent);
            }
            News::Bad(what) => report.bad(what),
        }
        for failure in report.failures.iter().take(LISTED).skip(listed).filter(|_| !quiet) {
            bar.suspend(|| aside!("{failure}"));
        }
        listed = report.failures.len();
    }
    bar.finish_and_clear();
    if report.failed > LISTED as u64 && !quiet {
        aside!("... and {} more", count(report.failed - LISTED as u64));
    }
    report
}

/// Which way operations of a key go.
fn way(key: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % WAYS as u64).unwrap_or(0)
}

/// Reads the inputs and gives batches to the ways. The first record that was not given, and the error that ended it.
fn feed(
    mut inputs: Inputs,
    from: u64,
    ways: &[mpsc::Sender<Vec<Line>>],
    told: &mpsc::Sender<News>,
) -> (Option<u64>, Result<()>) {
    let mut batches: Vec<(Vec<Line>, usize)> = ways.iter().map(|_| Default::default()).collect();
    let mut next = 1;
    let ended = loop {
        let (number, read) = match inputs.next() {
            Ok(Some(read)) => read,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        next = number + 1;
        let line = match read {
            _ if number < from => continue,
            Read::Bad(what) => {
                let _nobody_listens_when_all_ends = told.blocking_send(News::Bad(what));
                continue;
            }
            Read::Line(line) => line,
        };
        let at = way(&line.key);
        let (Some(way), Some((batch, bytes))) = (ways.get(at), batches.get_mut(at)) else { continue };
        *bytes += line.text.len();
        batch.push(line);
        if batch.len() >= BATCH || *bytes >= BATCH_BYTES {
            *bytes = 0;
            if let Err(back) = way.blocking_send(std::mem::take(batch)) {
                *batch = back.0;
                break Ok(());
            }
        }
    };
    let mut unsent: Option<u64> = ended.is_err().then_some(next);
    for (way, (batch, _)) in ways.iter().zip(batches).filter(|(_, (batch, _))| !batch.is_empty()) {
        if let Err(back) = way.blocking_send(batch) {
            let number = back.0.first().map_or(next, |line| line.number);
            unsent = Some(unsent.map_or(number, |first| first.min(number)));
        }
    }
    (unsent, ended)
}

/// Sends the batches of one way. Errors: the first record without an answer, and why.
async fn work(
    sender: Sender,
    mut batches: mpsc::Receiver<Vec<Line>>,
    told: mpsc::Sender<News>,
) -> Result<(), (u64, Option<Error>)> {
    while let Some(batch) = batches.recv().await {
        let mut sent = sender.send(&batch).await;
        let error = sent.error.take();
        let open =
            batch.iter().zip(&sent.items).find(|(_, item)| item.is_none()).map(|(line, _)| line.number);
        let _nobody_listens_when_all_ends = told.send(News::Settled(batch, sent)).await;
        if let Some(number) = open {
            // What was given already is not sent any more: its records come after this one.
            return Err((number, error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn inputs(text: &str, put: bool) -> (tempfile::NamedTempFile, Inputs) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let reading = Reading { put, key_field: "url".to_owned() };
        let inputs = Inputs::new(vec![file.path().to_owned()], reading);
        (file, inputs)
    }

    #[test]
    fn of_one_key_everything_goes_one_way_in_order_and_bad_lines_are_told() {
        let text: String = (0..2500)
            .map(|n| match n % 3 {
                0 => {
                    format!("{{\"op\":\"put\",\"document\":{{\"url\":\"k{}\",\"title\":\"{n}\"}}}}\n", n % 50)
                }
                1 => format!("{{\"op\":\"delete\",\"key\":\"k{}\"}}\n", n % 50),
                _ => "nonsense\n".to_owned(),
            })
            .collect();
        let (_file, inputs) = inputs(&text, false);
        let (told, mut news) = mpsc::channel(5000);
        let (ways, mut batches): (Vec<_>, Vec<_>) = (0..WAYS).map(|_| mpsc::channel(100)).unzip();
        let (unsent, ended) = feed(inputs, 11, &ways, &told);
        assert!(unsent.is_none() && ended.is_ok());
        let mut seen: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        let mut lines = 0;
        for (at, way) in batches.iter_mut().enumerate() {
            while let Ok(batch) = way.try_recv() {
                for line in batch {
                    let (first, last) = seen.entry(line.key.clone()).or_insert((at, 0));
                    assert!(*first == at && *last < line.number && line.number >= 11, "{line:?}");
                    *last = line.number;
                    lines += 1;
                }
            }
        }
        let bad = std::iter::from_fn(|| news.try_recv().ok()).count();
        assert_eq!((seen.len(), lines + bad), (50, 2490));
    }

    #[test]
    fn a_way_that_ends_names_the_first_record_that_was_not_sent() {
        let (_file, inputs) = inputs("{\"url\":\"a\"}\n{\"url\":\"b\"}\n", true);
        let (told, _news) = mpsc::channel(10);
        let (ways, batches): (Vec<_>, Vec<_>) = (0..WAYS).map(|_| mpsc::channel(1)).unzip();
        drop(batches);
        let (unsent, ended) = feed(inputs, 1, &ways, &told);
        assert_eq!((unsent, ended.is_ok()), (Some(1), true));
        let error = verdict(&Report::default(), unsent, Some(anyhow!("away"))).unwrap_err().to_string();
        assert_eq!(error, "away; hint: go on with --from 1");
    }

    #[test]
    fn counts_and_failures_are_told() {
        let mut report = Report::default();
        let line = Line { number: 1, place: "f:1".into(), key: "k".into(), text: String::new() };
        let items = vec![
            Some(json!({ "status": "applied", "key": "k" })),
            Some(json!({ "status": "rejected", "key": "k", "field": "title", "reason": "too\u{1b} long" })),
            None,
        ];
        let sent = Sent { items, token: "e:0.3".parse().unwrap(), error: None };
        report.settled(&[line.clone(), line.clone(), line], sent);
        assert_eq!(report.lines(), ["1 applied, 1 rejected", "token e:0.3"]);
        assert!(report.failures[0].starts_with("f:1: rejected") && !report.failures[0].contains('\u{1b}'));
        assert!(verdict(&report, None, None).unwrap_err().to_string().contains("1 operations refused"));
        assert!(verdict(&Report::default(), None, None).is_ok());
    }
}
