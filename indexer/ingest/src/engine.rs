//! Which engine keeps the logs, and where what belongs to a corpus is. A trait, so that tests have a log of their own.
//!
//! A password goes into the client's address only, and from there into no message of ours.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use canopy_format::store::Corpus;
use canopy_log::{Shared, embedded, jetstream};
use futures::{FutureExt, future::BoxFuture};

use crate::{config::IngestConfig, error::Result, feed::blocking};

/// Opens logs.
pub trait Engine: Send + Sync + 'static {
    /// The log of a corpus; made when there is none. Only one handle to a log is open at a time.
    fn open(&self, corpus: &Corpus) -> BoxFuture<'_, Result<Shared>>;
}

/// Logs in this process, below a directory.
pub struct Embedded {
    directory: PathBuf,
    reserve: u64,
    most: u64,
}

impl Embedded {
    /// By the configuration.
    pub fn new(config: &IngestConfig) -> Self {
        let directory = PathBuf::from(&config.directory);
        Self { directory, reserve: config.reserve.0, most: config.max_log.0 }
    }
}

impl Engine for Embedded {
    fn open(&self, corpus: &Corpus) -> BoxFuture<'_, Result<Shared>> {
        let (name, partitions) = (corpus.name.clone(), corpus.partitions);
        async move {
            let directory = directory_of(&self.directory, &name).join("log");
            let made = embedded::Config {
                reserve_bytes: self.reserve,
                max_bytes: self.most,
                ..embedded::Config::new(directory, partitions)
            };
            let open = move || -> Result<Shared> { Ok(Arc::new(embedded::Embedded::open(made)?)) };
            blocking(open).await
        }
        .boxed()
    }
}

/// Logs on a NATS cluster.
pub struct JetStream {
    url: String,
    replicas: u32,
    reserve: u64,
    most: u64,
}

impl JetStream {
    /// By the configuration.
    pub fn new(config: &IngestConfig) -> Self {
        let url = with_user(&config.nats_url, &config.nats_user, config.nats_password.reveal());
        Self { url, replicas: config.nats_replicas, reserve: config.reserve.0, most: config.max_log.0 }
    }
}

impl Engine for JetStream {
    fn open(&self, corpus: &Corpus) -> BoxFuture<'_, Result<Shared>> {
        let made = jetstream::Config {
            replicas: self.replicas as usize,
            max_bytes: self.most,
            reserve_bytes: if self.most == 0 { 0 } else { self.reserve },
            ..jetstream::Config::new(self.url.clone(), corpus.name.clone(), corpus.partitions)
        };
        async move { Ok(Arc::new(jetstream::JetStream::open(made).await?) as Shared) }.boxed()
    }
}

/// The addresses with user and password in them.
fn with_user(urls: &str, user: &str, password: &str) -> String {
    if user.is_empty() {
        return urls.to_owned();
    }
    let encoded = |text: &str| -> String {
        let byte = |byte: u8| {
            if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
        };
        text.bytes().map(byte).collect()
    };
    let who = format!("{}:{}@", encoded(user), encoded(password));
    let one = |url: &str| match url.trim().split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{who}{host}"),
        None => format!("nats://{who}{}", url.trim()),
    };
    urls.split(',').map(one).collect::<Vec<_>>().join(",")
}

/// Where what belongs to a corpus is; its name was checked by the store.
pub fn directory_of(directory: &Path, corpus: &str) -> PathBuf {
    directory.join(corpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_stand_in_every_address() {
        let urls = "nats://a:4222, b:4222";
        assert_eq!(with_user(urls, "", ""), urls);
        let expected = "nats://u:p%40%2F@a:4222,nats://u:p%40%2F@b:4222";
        assert_eq!(with_user(urls, "u", "p@/"), expected);
    }
}
