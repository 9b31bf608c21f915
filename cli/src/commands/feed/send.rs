//! Sends a batch of operations until each has an answer.
//!
//! An ingest that has no room says which items it refused for now. Sent again are those, and with each of them whatever follows it of
//! the same key: else an older put that comes again would undo a delete that was taken meanwhile. A connection that is lost before
//! the answer came sends all again, which changes nothing, since each write says the whole of what it sets.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Error, anyhow};
use bytes::Bytes;
use canopy_format::token::Token;
use http::Response;
use serde_json::Value;
use tokio::time::Instant;

use crate::{failure, http::Client, show::plain};

/// What to do when nobody answers.
pub const HINT_AWAY: &str =
    "; hint: start an ingest with `canopy ingest -c FILE`, or name it with --ingest HOST:PORT";
/// First pause after a lost connection; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An operation.
#[derive(Debug, Clone)]
pub struct Line {
    /// Which of all that are sent, from 1.
    pub number: u64,
    /// Where it is from, for people.
    pub place: String,
    /// Its key; empty: not known here.
    pub key: String,
    /// The line.
    pub text: String,
}

/// What became of a batch.
pub struct Sent {
    /// An answer for each line that has one, in order.
    pub items: Vec<Option<Value>>,
    /// Holds all that was applied.
    pub token: Token,
    /// Why some have none.
    pub error: Option<Error>,
}

/// Sends to one ingest.
#[derive(Clone)]
pub struct Sender {
    client: Client,
    path: String,
    patience: Duration,
}

/// One answer of the ingest, judged.
struct Judged {
    items: Vec<Value>,
    token: Option<Token>,
    /// Why it is not all.
    error: Option<Error>,
    /// When to come again; `None`: that would not help.
    again: Option<Duration>,
}

impl Sender {
    /// Tries again for `patience` while nothing moves.
    pub fn new(client: Client, path: String, patience: Duration) -> Self {
        Self { client, path, patience }
    }

    /// Sends lines until each has an answer, or it is hopeless.
    pub async fn send(&self, lines: &[Line]) -> Sent {
        let mut sent = Sent { items: vec![None; lines.len()], token: Token::default(), error: None };
        let mut open: Vec<usize> = (0..lines.len()).collect();
        let (mut moved, mut pause) = (Instant::now(), PAUSE);
        while !open.is_empty() {
            let mut body = String::new();
            for line in open.iter().filter_map(|at| lines.get(*at)) {
                body.push_str(&line.text);
                body.push('\n');
            }
            let judged = match self.client.post(&self.path, body.into()).await {
                Ok(answer) => judge(&answer, self.client.address()),
                Err(error) => {
                    let error = anyhow!("{}{HINT_AWAY}", failure::line(&error));
                    Judged { items: Vec::new(), token: None, error: Some(error), again: Some(pause) }
                }
            };
            if let Some(token) = judged.token {
                join(&mut sent.token, token);
            }
            let keys: Vec<&str> =
                open.iter().filter_map(|at| lines.get(*at)).map(|line| &*line.key).collect();
            let left = again(&keys, &judged.items);
            for (place, at) in open.iter().enumerate() {
                let settled = judged.items.get(place).filter(|_| !left.contains(&place));
                if let (Some(item), Some(slot)) = (settled, sent.items.get_mut(*at)) {
                    *slot = Some(item.clone());
                }
            }
            if left.len() < open.len() {
                (moved, pause) = (Instant::now(), PAUSE);
            }
            open = left.into_iter().filter_map(|place| open.get(place).copied()).collect();
            if open.is_empty() {
                break;
            }
            let error =
                judged.error.unwrap_or_else(|| anyhow!("the ingest left operations without an answer"));
            let Some(wait) = judged.again.filter(|_| moved.elapsed() < self.patience) else {
                sent.error = Some(error);
                break;
            };
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        sent
    }
}

/// Which are to be sent again: those without an answer, those refused for now, and what follows these of the same key.
fn again(keys: &[&str], items: &[Value]) -> BTreeSet<usize> {
    let mut held = BTreeSet::new();
    let mut left = BTreeSet::new();
    for (at, key) in keys.iter().enumerate() {
        let for_now = items.get(at).is_none_or(|item| item["again"] == true);
        if for_now || held.contains(key) {
            held.insert(*key);
            left.insert(at);
        }
    }
    left
}

/// The later of two places in one log; of another log, the newer one.
pub fn join(token: &mut Token, other: Token) {
    if token.epoch != other.epoch {
        *token = other;
        return;
    }
    for (partition, next) in other.offsets {
        token.raise(partition, next);
    }
}

/// An error that the ingest gave.
pub fn refused(status: u16, error: &Value) -> Error {
    let hint = match status {
        401 | 403 => "; hint: --key-file FILE with a key of the ingest's keys_file",
        404 => "; hint: `canopy corpus list` names the corpora; an ingest takes new ones within seconds",
        _ => "",
    };
    let message = plain(error["message"].as_str().unwrap_or("the ingest refused"));
    anyhow!("{message} ({}){hint}", error["code"].as_str().unwrap_or("no code"))
}

fn judge(answer: &Response<Bytes>, address: &str) -> Judged {
    let status = answer.status().as_u16();
    let later = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let later = Duration::from_secs(later.unwrap_or(1).clamp(1, 60));
    let again = matches!(status, 408 | 429 | 500 | 502..=504).then_some(later);
    let Ok(body) = serde_json::from_slice::<Value>(answer.body()) else {
        let error = anyhow!("{address} is no ingest: it answered {status}");
        return Judged { items: Vec::new(), token: None, error: Some(error), again };
    };
    let items = body["items"].as_array().cloned().unwrap_or_default();
    let token = body["token"].as_str().and_then(|token| token.parse().ok());
    let error = (!body["error"].is_null() || status != 200).then(|| refused(status, &body["error"]));
    Judged { items, token, error, again }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_follows_a_refused_one_of_its_key_is_sent_again_with_it() {
        let applied = json!({ "status": "applied" });
        let later = json!({ "status": "rejected", "again": true });
        let wrong = json!({ "status": "rejected", "field": "title" });
        let items = [applied.clone(), later, applied.clone(), applied, wrong];
        // The delete of a that came after its refused put, not the one before.
        assert_eq!(again(&["a", "a", "b", "a", "c"], &items), [1, 3].into());
        // What has no answer, too.
        assert_eq!(again(&["a", "b"], &items[..1]), [1].into());
        assert!(again(&["a"], &items[..1]).is_empty());
    }

    #[test]
    fn answers_say_whether_to_come_again() {
        let answer = |status: u16, body: &str| {
            let answer = Response::builder().status(status).header("retry-after", "7");
            judge(&answer.body(Bytes::from(body.to_owned())).unwrap(), "a:1")
        };
        let full = answer(429, r#"{"error":{"code":"OVERLOADED","message":"the disk is full"}}"#);
        assert_eq!(full.again, Some(Duration::from_secs(7)));
        assert!(full.error.unwrap().to_string().contains("the disk is full (OVERLOADED)"));
        let foreign = answer(401, r#"{"error":{"code":"UNAUTHENTICATED","message":"no key"}}"#);
        assert!(foreign.again.is_none() && foreign.error.unwrap().to_string().contains("--key-file"));
        let page = answer(200, "<html>");
        assert!(page.again.is_none() && page.error.unwrap().to_string().contains("a:1 is no ingest"));
        let good = answer(200, r#"{"items":[{"status":"applied"}],"token":"e:0.5"}"#);
        assert!(good.error.is_none() && good.items.len() == 1);
        assert_eq!(good.token.unwrap().to_string(), "e:0.5");
    }

    #[test]
    fn tokens_of_one_log_are_joined_and_of_two_the_newer_counts() {
        let token = |text: &str| text.parse::<Token>().unwrap();
        let mut all = Token::default();
        for (next, expected) in
            [("a:0.5", "a:0.5"), ("a:0.3,1.2", "a:0.5,1.2"), ("b:0.1", "b:0.1"), ("b:", "b:0.1")]
        {
            join(&mut all, token(next));
            assert_eq!(all.to_string(), expected);
        }
    }
}
