//! `POST /v1/{corpus}/documents`: one operation a line, one answer a line, in order.
//!
//! Lines are taken as they arrive, and made durable in groups, so that a body may be longer than memory. Rules: what was answered
//! for stays answered: when the body ends badly (too many lines, nothing for too long, the client is gone) the lines before are
//! written and their answers given with the error. The status is 200 unless something was refused for now (429, or 503 when the
//! log's server is away), or the body ended badly (400).

use axum::{
    body::Body,
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use canopy_common::error::{Classify, ErrorClass, Failure};
use canopy_format::token::Token;
use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::{App, allowed, reply};
use crate::{
    error::{Error, Result},
    feed::Feed,
    lines::{Line, Lines},
    write::{self, Answer, Status, Written},
};

/// Writes the lines of a body.
pub async fn write(
    State(app): State<App>,
    Path(corpus): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let _finished_though_it_drains = app.drain.busy();
    let begun = async {
        allowed(&app, &headers, &corpus)?;
        let feed = app.corpora.get(&corpus)?;
        let busy = |reason: String| Error::Busy { reason, retry_after_ms: crate::pressure::RETRY_AFTER_MS };
        let place = app.writers.clone().try_acquire_owned().map_err(|_| {
            let most = feed.around.config.writers;
            busy(format!("{most} requests are being read already (ingest.writers); send this one again"))
        })?;
        // Before a body is read that would be refused line by line.
        match feed.pressed() {
            Some(reason) => Err(busy(reason)),
            None => Ok((feed, place)),
        }
    };
    match begun.await {
        Err(error) => reply::of(Err(error)),
        Ok((feed, _place)) => {
            let mut taking = Taking::new(&feed);
            let ended = taking.take(body).await;
            taking.answer(ended.err())
        }
    }
}

struct Taking<'a> {
    feed: &'a std::sync::Arc<Feed>,
    lines: Lines,
    batch: Vec<Line>,
    bytes: usize,
    taken: u32,
    numbers: Vec<u64>,
    written: Written,
}

impl<'a> Taking<'a> {
    fn new(feed: &'a std::sync::Arc<Feed>) -> Self {
        let token = Token { epoch: feed.log.epoch(), ..Token::default() };
        Self {
            feed,
            lines: Lines::new(feed.around.config.max_line.0 as usize),
            batch: Vec::new(),
            bytes: 0,
            taken: 0,
            numbers: Vec::new(),
            written: Written { token, ..Written::default() },
        }
    }

    async fn take(&mut self, body: Body) -> Result<()> {
        let read = self.read(body).await;
        // What came whole counts, however the rest ended.
        let last = if read.is_ok() { self.lines.end() } else { None };
        let added = match last {
            Some(line) => self.add(line).await,
            None => Ok(()),
        };
        self.flush().await;
        read.and(added)
    }

    async fn read(&mut self, body: Body) -> Result<()> {
        let patience = self.feed.around.config.body_patience.0;
        let mut pieces = body.into_data_stream();
        loop {
            let piece = tokio::time::timeout(patience, pieces.next()).await;
            let Some(piece) = piece.map_err(|_| {
                let message = "nothing more of the body came in time (ingest.body_patience)";
                Error::invalid("body", message)
            })?
            else {
                return Ok(());
            };
            let piece =
                piece.map_err(|error| Error::invalid("body", format!("it could not be read: {error}")))?;
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (line, taken) = self.lines.take(rest);
                rest = rest.get(taken..).unwrap_or_default();
                if let Some(line) = line {
                    self.add(line).await?;
                }
            }
        }
    }

    async fn add(&mut self, line: Line) -> Result<()> {
        let config = &self.feed.around.config;
        if self.taken >= config.max_lines {
            let most = config.max_lines;
            let message = format!(
                "more than {most} lines in one request (ingest.max_lines); those before line {} have answers, send the rest again",
                line.number
            );
            return Err(Error::above("body", message, most.into()));
        }
        self.taken += 1;
        self.bytes += line.text.len();
        self.batch.push(line);
        if self.batch.len() >= config.batch as usize || self.bytes as u64 >= config.batch_bytes.0 {
            self.flush().await;
        }
        Ok(())
    }

    async fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let (lines, max_line) = (std::mem::take(&mut self.batch), self.feed.around.config.max_line.0);
        self.bytes = 0;
        self.numbers.extend(lines.iter().map(|line| line.number));
        let items = lines.into_iter().map(|line| write::came(line, max_line)).collect();
        self.written.join(write::write(self.feed, items).await);
    }

    fn answer(self, ended: Option<Error>) -> Response {
        let count = |status: Status| self.written.answers.iter().filter(|one| one.status == status).count();
        let again = self.written.answers.iter().filter_map(|one| one.again.map(|class| (class, one)));
        let worst = again.max_by_key(|(class, _)| reply::status(*class));
        let (applied, rejected) = (count(Status::Applied), count(Status::Rejected));
        let mut body = Map::new();
        body.insert("accepted".to_owned(), json!(self.written.answers.len() - rejected));
        body.insert("applied".to_owned(), json!(applied));
        body.insert("stale".to_owned(), json!(count(Status::Stale)));
        body.insert("superseded".to_owned(), json!(count(Status::Superseded)));
        body.insert("rejected".to_owned(), json!(rejected));
        body.insert("token".to_owned(), json!(self.written.token.to_string()));
        let mut status = 200;
        if let Some((class, answer)) = worst {
            status = reply::status(class);
            let message =
                format!("some operations were refused for now, send those again: {}", answer.reason);
            body.insert("error".to_owned(), reply::error(class.code(), &Failure::new(class, message)));
        }
        if let Some(error) = ended {
            let class = error.class();
            status = status.max(class.http_status());
            body.insert("error".to_owned(), reply::error(class.code(), &error.into()));
        }
        let items: Vec<Value> = self.numbers.iter().zip(&self.written.answers).map(item).collect();
        body.insert("items".to_owned(), Value::Array(items));
        reply::json(status, &Value::Object(body))
    }
}

fn item((line, answer): (&u64, &Answer)) -> Value {
    let mut item = Map::new();
    item.insert("key".to_owned(), json!(answer.key));
    item.insert("status".to_owned(), json!(answer.status.word()));
    item.insert("line".to_owned(), json!(line));
    for (name, text) in
        [("offset", answer.place()), ("reason", answer.reason.clone()), ("field", answer.field.clone())]
    {
        if !text.is_empty() {
            item.insert(name.to_owned(), json!(text));
        }
    }
    if answer.again.is_some_and(|class| class != ErrorClass::InvalidArgument) {
        item.insert("again".to_owned(), json!(true));
    }
    Value::Object(item)
}
