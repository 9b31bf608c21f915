//! Phase two: fields, snippets and explanations of the hits of a page.
//!
//! Each item names the view that gave its address (a lease). When that lease is unknown or has ended, the key is looked
//! up in the pinned version, which finds the same document at another address; when that version is not held either,
//! the item stays empty and says so. A document of the overlay, and one that was replaced or deleted since, is looked up
//! by its key in the newest state of the shard: what is gone is never shown. Items are independent: one that can't be read, is too large or came too late never
//! costs the others. The reply has one entry per item, in order, and comes by the deadline with what there is.
//!
//! A reply is at most one message: what could never fit is refused before any work, naming the field; an item that
//! would not fit any more stays empty. Fetches go before searches that have not begun: they end work already paid for.

pub mod item;
pub mod source;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    error::{ErrorClass, Failure},
    request::RequestContext,
};
use canopy_format::{analysis::Analyzer, schema::SEARCH_FIELD};
use canopy_proto::v1::{FetchReply, FetchRequest, FetchedDocument};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    executor::{Lane, Task, Turn},
    node::Parts,
    snippet::{DEFAULT_CHARS, Snippets, terms::Terms},
    stop::Stop,
};

/// Room of a message for what is not documents, bytes.
const OVERHEAD: usize = 16 << 10;

/// What the items of one fetch share.
pub struct Fetch {
    /// The request.
    pub request: FetchRequest,
    /// Makes the snippets; `None`: none are wanted.
    pub snippets: Option<Snippets>,
    /// Words to highlight.
    pub terms: Terms,
    /// When to stop.
    pub stop: Stop,
    span: tracing::Span,
    number: u64,
    room: usize,
    next: AtomicUsize,
    begun_us: AtomicUsize,
    arrived: Instant,
    results: Mutex<Results>,
    done: Notify,
}

struct Results {
    documents: Vec<Option<FetchedDocument>>,
    open: usize,
    bytes: usize,
}

/// Stops the work when nobody waits for it any more.
struct Leaving {
    parts: Arc<Parts>,
    number: u64,
    cancelled: Arc<AtomicBool>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.parts.executor.remove(self.number);
    }
}

/// Answers a fetch.
pub async fn run(
    parts: Arc<Parts>,
    context: RequestContext,
    request: FetchRequest,
) -> Result<FetchReply, Failure> {
    let _busy = parts.drain.busy();
    let cancelled = Arc::new(AtomicBool::new(false));
    let fetch = Arc::new(prepare(&parts, &context, request, cancelled.clone())?);
    let (items, number) = (fetch.request.items.len(), fetch.number);
    let tasks = (0..parts.executor.threads().min(items)).map(|_| {
        let (parts, fetch) = (parts.clone(), fetch.clone());
        let run = Box::new(move |turn| work(&parts, &fetch, turn));
        Task { lane: Lane::Fetch, deadline: context.deadline, owner: number, run }
    });
    let tasks: Vec<_> = tasks.collect();
    let _leaving = Leaving { parts: parts.clone(), number, cancelled };
    if items > 0 && parts.executor.submit(tasks) == 0 {
        let pushback = parts.executor.pushback();
        let full = Failure::new(ErrorClass::Overloaded, "the queue of this leaf is full");
        return Err(Failure { pushback_ms: Some(pushback.as_millis() as u64), ..full });
    }
    let reason = loop {
        if fetch.results.lock().open == 0 {
            break "";
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => break "the caller left",
            () = fetch.done.notified() => {}
            () = tokio::time::sleep_until(context.deadline.instant()) => {
                break "the deadline passed before it was fetched";
            }
        }
    };
    let documents = fetch.take(reason);
    for document in &documents {
        let result = if document.filled { "filled" } else { "empty" };
        parts.metrics.fetched.with_label_values(&[result]).inc();
    }
    parts.metrics.fetch.observe(fetch.arrived.elapsed().as_secs_f64());
    let waited = fetch.begun_us.load(Ordering::Relaxed) as u64;
    Ok(FetchReply { documents, call: Some(parts.report_of(waited, Duration::ZERO)) })
}

/// Checks the request before any work.
fn prepare(
    parts: &Parts,
    context: &RequestContext,
    request: FetchRequest,
    cancelled: Arc<AtomicBool>,
) -> Result<Fetch, Failure> {
    let room = parts.max_message.saturating_sub(OVERHEAD).max(parts.max_message / 2);
    let snippets = match &request.snippet {
        None => None,
        Some(by) => {
            let chars = if by.max_chars == 0 { DEFAULT_CHARS } else { by.max_chars } as usize;
            let least = request.items.len() * chars * 2;
            if least > room {
                let message = format!(
                    "{} items with snippets of {chars} characters need {least} bytes; one reply has {room}: ask for \
                     fewer or shorter ones",
                    request.items.len()
                );
                return Err(Failure::invalid("snippet.max_chars", message).with_limit(room as u64));
            }
            Some(Snippets::new(Analyzer::new(), by, parts.config.snippet_scan.0 as usize)?)
        }
    };
    let terms = match (&snippets, &request.query) {
        (Some(_), Some(query)) => Terms::of(query, &[SEARCH_FIELD, item::BODY], request.statistics.as_ref()),
        _ => Terms::default(),
    };
    let remaining = context.deadline.remaining();
    let work_until = context.deadline.child((remaining / 10).min(Duration::from_millis(2)));
    let open = request.items.len();
    Ok(Fetch {
        snippets,
        terms,
        stop: Stop::new(work_until, cancelled),
        span: tracing::info_span!("leaf_fetch", query = %context.query, items = open),
        number: parts.calls.number(),
        room,
        next: AtomicUsize::new(0),
        begun_us: AtomicUsize::new(0),
        arrived: Instant::now(),
        results: Mutex::new(Results { documents: vec![None; open], open, bytes: 0 }),
        done: Notify::new(),
        request,
    })
}

impl Fetch {
    /// Takes one finished item, unless it would not fit.
    fn put(&self, index: usize, mut document: FetchedDocument) {
        let mut results = self.results.lock();
        let bytes = size(&document);
        if document.filled && results.bytes + bytes > self.room {
            let reason = format!(
                "it has {bytes} bytes, more than is left of the {} of one reply; ask for fewer fields",
                self.room
            );
            document = item::empty(reason);
        }
        results.bytes += size(&document);
        if results.documents[index].replace(document).is_none() {
            results.open -= 1;
        }
        if results.open == 0 {
            drop(results);
            self.done.notify_one();
        }
    }

    /// What there is; what is not there yet says why.
    fn take(&self, reason: &str) -> Vec<FetchedDocument> {
        let mut results = self.results.lock();
        let documents = std::mem::take(&mut results.documents);
        results.open = 0;
        documents.into_iter().map(|document| document.unwrap_or_else(|| item::empty(reason))).collect()
    }
}

fn size(document: &FetchedDocument) -> usize {
    let texts = [
        &document.key,
        &document.title,
        &document.snippet,
        &document.snippet_text,
        &document.fields_json,
        &document.explain_json,
        &document.reason,
    ];
    texts.iter().map(|text| text.len() + 6).sum::<usize>() + document.ranges.len() * 14 + 16
}

fn work(parts: &Arc<Parts>, fetch: &Fetch, turn: Turn) {
    if !matches!(turn, Turn::Run(_)) {
        // The deadline's timer, or the caller's, ends the call.
        return;
    }
    let _same_trace = fetch.span.enter();
    fetch.begun_us.store(fetch.arrived.elapsed().as_micros() as usize, Ordering::Relaxed);
    loop {
        let index = fetch.next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = fetch.request.items.get(index) else { return };
        if fetch.stop.now() {
            return;
        }
        let filled = catch_unwind(AssertUnwindSafe(|| item::fill(parts, fetch, item))).unwrap_or_else(|_| {
            parts.metrics.panics.inc();
            tracing::error!(shard = item.shard, "fetching a document panicked");
            item::empty("fetching this document failed inside the leaf")
        });
        if fetch.results.lock().documents.is_empty() {
            return;
        }
        fetch.put(index, filled);
    }
}

#[cfg(test)]
mod tests;
