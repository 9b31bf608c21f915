//! `canopy feed put|patch|delete|bulk|token|dead-letters|erase`: realtime updates through an ingest, over its HTTP.
//!
//! Rules: what is printed as applied is durable; a lost connection or an ingest that has no room for now is met by sending again, which
//! changes nothing when it was taken before; the exit status is not zero when anything was refused.

mod bulk;
mod inputs;
mod send;
mod show;

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use canopy_common::{
    bounded,
    config::{Secret, Time},
    net::NetIo,
};
use canopy_format::document::MAX_DOCUMENT_BYTES;
use canopy_topology::config::Role;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use self::send::{Line, Sender};
use crate::{
    config::Loaded,
    failure,
    http::{self, Client, encode},
    say::say,
};

/// The ingest that is asked unless another is named; the one of `canopy quickstart`.
pub const DEFAULT_INGEST: &str = "127.0.0.1:8081";
/// Longest that one request may take: an ingest answers when it is durable.
const PATIENCE: Duration = Duration::from_mins(1);

/// Which ingest, which corpus.
#[derive(clap::Args, Clone)]
pub struct At {
    /// Corpus
    #[arg(long, default_value = "web")]
    corpus: String,
    /// HTTP address of an ingest; that of the configuration file, else 127.0.0.1:8081, when left out
    #[arg(long, value_name = "HOST:PORT", value_parser = http::address)]
    ingest: Option<String>,
    /// Configuration file that names the ingest
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the key that the ingest wants of writers
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How long it is tried again while the ingest is away or has no room
    #[arg(long, default_value = "1min", value_name = "TIME")]
    patience: Time,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Put one whole document: what was there of its key is replaced
    #[command(after_help = "Example:  canopy feed put page.json\n          \
                  canopy feed put --key https://a.example/ --document '{\"title\":\"New\",\"body\":\"…\"}'\n          \
                  generate | canopy feed put -")]
    Put {
        /// File with one JSON document; - for standard input
        #[arg(conflicts_with = "document", required_unless_present = "document")]
        file: Option<PathBuf>,
        /// Key; may be left out when it is in the document
        #[arg(long)]
        key: Option<String>,
        /// The document, JSON
        #[arg(long, value_name = "JSON")]
        document: Option<String>,
        /// The producer's number of this write, in corpora that are ordered by producers
        #[arg(long)]
        order: Option<u64>,
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
    /// Change some fields of a document; null removes one
    #[command(
        after_help = "Example:  canopy feed patch --key https://a.example/ --document '{\"topic\":null}'"
    )]
    Patch {
        /// Key
        #[arg(long)]
        key: String,
        /// The fields, JSON
        #[arg(long, value_name = "JSON")]
        document: String,
        /// The producer's number of this write, in corpora that are ordered by producers
        #[arg(long)]
        order: Option<u64>,
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
    /// Delete documents
    #[command(after_help = "Example:  canopy feed delete https://a.example/ https://b.example/")]
    Delete {
        /// Keys
        #[arg(required = true)]
        keys: Vec<String>,
        /// The producer's number of this write, in corpora that are ordered by producers
        #[arg(long)]
        order: Option<u64>,
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
    /// Send whole files of operations, or of documents
    Bulk(bulk::Args),
    /// Print where the log ends: take it before reading the source of a build (index build --cut)
    #[command(after_help = "Example:  canopy feed token --corpus web")]
    Token {
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
    /// List operations that were refused, with the reason
    #[command(after_help = "Example:  canopy feed dead-letters --last 20")]
    DeadLetters {
        /// The newest so many
        #[arg(long, default_value_t = 100)]
        last: u32,
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
    /// Delete a document and remove its text from everything that the ingest keeps; says what is left to do elsewhere
    #[command(after_help = "Example:  canopy feed erase https://a.example/private")]
    Erase {
        /// Key
        key: String,
        /// The producer's number of the delete, in corpora that are ordered by producers
        #[arg(long)]
        order: Option<u64>,
        /// Which ingest
        #[command(flatten)]
        at: At,
    },
}

/// Runs it.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Put { file, key, document, order, at } => {
            let text = match (file, document) {
                (_, Some(text)) => text,
                (Some(file), None) => read(&file)?,
                (None, None) => bail!("no document; hint: a FILE, - for standard input, or --document JSON"),
            };
            let line = operation("put", key.as_deref(), Some(object(&text)?), order);
            one(&at, vec![line]).await
        }
        Command::Patch { key, document, order, at } => {
            one(&at, vec![operation("patch", Some(&key), Some(object(&document)?), order)]).await
        }
        Command::Delete { keys, order, at } => {
            one(&at, keys.iter().map(|key| operation("delete", Some(key), None, order)).collect()).await
        }
        Command::Bulk(args) => bulk::run(args).await,
        Command::Token { at } => token(&at).await,
        Command::DeadLetters { last, at } => dead_letters(&at, last).await,
        Command::Erase { key, order, at } => erase(&at, &key, order).await,
    }
}

impl At {
    fn client(&self) -> Result<Client> {
        let named = match (&self.ingest, &self.config) {
            (Some(address), _) => Some(address.clone()),
            (None, Some(file)) => {
                let topology = Loaded::read(Some(file), &[]).checked()?.topology;
                let ingest =
                    topology.nodes.iter().find(|node| node.role == Role::Ingest && !node.admin.is_empty());
                let ingest = ingest.ok_or_else(|| {
                    let file = file.display();
                    anyhow!("{file} names no ingest with an admin address; hint: a node of role ingest, or --ingest HOST:PORT")
                })?;
                Some(ingest.admin.clone())
            }
            (None, None) => None,
        };
        let client = Client::new(NetIo::tcp(), named.as_deref().unwrap_or(DEFAULT_INGEST), PATIENCE);
        Ok(match &self.key_file {
            Some(file) => client.with_key(key(file)?),
            None => client,
        })
    }

    /// The path of something below the corpus.
    fn path(&self, what: &str) -> String {
        format!("/v1/{}/{what}", encode(&self.corpus))
    }

    fn sender(&self) -> Result<Sender> {
        Ok(Sender::new(self.client()?, self.path("documents"), self.patience.0))
    }
}

fn key(file: &Path) -> Result<Secret> {
    let text = bounded::text(file, bounded::MOST_SETTINGS);
    let text = text.with_context(|| format!("{} can't be read", file.display()))?;
    let key = text.trim();
    if key.is_empty() || key.contains(|c: char| c.is_control() || c == ' ') {
        bail!(
            "{} holds no key; hint: the key alone, without the name that ingest.keys_file gives it",
            file.display()
        );
    }
    Ok(Secret::new(key))
}

fn read(file: &Path) -> Result<String> {
    if file.as_os_str() != "-" {
        let text = bounded::text(file, MAX_DOCUMENT_BYTES as u64);
        return text.with_context(|| format!("{} can't be read", file.display()));
    }
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_DOCUMENT_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .context("standard input can't be read")?;
    if text.len() > MAX_DOCUMENT_BYTES {
        bail!("the document has more than {MAX_DOCUMENT_BYTES} bytes; hint: shorten its body");
    }
    Ok(text)
}

fn object(text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => bail!("the document is no JSON object; hint: {{\"title\":\"…\",\"body\":\"…\"}}"),
        Err(error) => {
            bail!("the document is no JSON object: {error}; hint: {{\"title\":\"…\",\"body\":\"…\"}}")
        }
    }
}

fn operation(op: &str, key: Option<&str>, document: Option<Map<String, Value>>, order: Option<u64>) -> Line {
    let mut parts = Map::new();
    parts.insert("op".to_owned(), json!(op));
    if let Some(key) = key {
        parts.insert("key".to_owned(), json!(key));
    }
    if let Some(document) = document {
        parts.insert("document".to_owned(), Value::Object(document));
    }
    if let Some(order) = order {
        // As text: numbers of JSON are not whole beyond 53 bits everywhere.
        parts.insert("order".to_owned(), json!(order.to_string()));
    }
    Line {
        number: 1,
        place: op.to_owned(),
        key: key.unwrap_or_default().to_owned(),
        text: Value::Object(parts).to_string(),
    }
}

async fn one(at: &At, lines: Vec<Line>) -> Result<()> {
    let sent = at.sender()?.send(&lines).await;
    if let Some(error) = sent.error {
        return Err(error);
    }
    let items: Vec<&Value> = sent.items.iter().flatten().collect();
    let rejected = items.iter().filter(|item| item["status"] == "rejected").count();
    if at.json {
        say!("{:#}", json!({ "items": items, "token": sent.token.to_string() }));
    } else {
        for item in &items {
            say!("{}", show::item(item));
        }
        if rejected < items.len() {
            say!("token {}", sent.token);
        }
    }
    if rejected > 0 {
        bail!("{rejected} of {} operations refused", items.len());
    }
    Ok(())
}

/// A request that is answered by one JSON object.
async fn ask(at: &At, what: &str, body: Option<Value>) -> Result<Value> {
    let (client, path) = (at.client()?, at.path(what));
    let answered = match body {
        None => client.get(&path).await,
        Some(body) => client.post(&path, body.to_string().into()).await,
    };
    let answered = answered.map_err(|error| anyhow!("{}{}", failure::line(&error), send::HINT_AWAY))?;
    let answer: Value = serde_json::from_slice(answered.body())
        .map_err(|_| anyhow!("{} is no ingest: it answered {}", client.address(), answered.status()))?;
    if answered.status().is_success() {
        return Ok(answer);
    }
    Err(send::refused(answered.status().as_u16(), &answer["error"]))
}

async fn token(at: &At) -> Result<()> {
    let answer = ask(at, "token", None).await?;
    if at.json {
        say!("{answer:#}");
    } else {
        say!("{}", crate::show::plain(answer["token"].as_str().unwrap_or_default()));
    }
    Ok(())
}

async fn dead_letters(at: &At, last: u32) -> Result<()> {
    let answer = ask(at, &format!("dead-letters?last={last}"), None).await?;
    if at.json {
        say!("{answer:#}");
    } else {
        for line in show::dead_letters(&answer) {
            say!("{line}");
        }
    }
    Ok(())
}

async fn erase(at: &At, key: &str, order: Option<u64>) -> Result<()> {
    let mut body = json!({ "key": key });
    if let Some(order) = order {
        body["order"] = json!(order.to_string());
    }
    let answer = ask(at, "erase", Some(body)).await?;
    if at.json {
        say!("{answer:#}");
    } else {
        for line in show::erased(&answer) {
            say!("{line}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
