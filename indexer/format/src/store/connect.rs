//! How a store is reached: a directory of this machine, or S3 by its settings.
//!
//! The failure this prevents: a store that is away and holds whoever asks it for minutes. Every request has a time limit and a
//! bounded number of tries; what can't be reached is an error that says so. Keys are read from files or settings and go into
//! the client only: never into an error, a log or the store's own URL.

use std::{path::Path, sync::Arc};

use canopy_common::bounded;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder, local::LocalFileSystem,
    path::Path as ObjectPath, prefix::PrefixStore,
};

use super::{VersionStore, address::Address, config::StoreConfig};
use crate::{
    error::{Error, Result},
    signature::Trusted,
};

/// Largest file of a key, bytes.
const MAX_KEY: u64 = 16 << 10;

impl VersionStore {
    /// Opens a store by its address, everything else by default; see [`VersionStore::connect`].
    pub fn open(url: &str, create: bool) -> Result<Self> {
        Self::connect(&StoreConfig::at(url), create)
    }

    /// Opens a directory path, `file:///dir` or `s3://bucket/prefix`. A directory is created when `create`, else it must exist; S3 is
    /// asked nothing yet, and its bucket must exist.
    pub fn connect(config: &StoreConfig, create: bool) -> Result<Self> {
        let trusted = Trusted::read(&config.verify_keys)?;
        let store = match Address::parse(&config.url)? {
            Address::Directory(path) => directory(&config.url, &path, create)?,
            Address::S3 { bucket, prefix } => Self::remote(s3(config, &bucket, &prefix)?),
        };
        Ok(store.trusting(trusted))
    }
}

impl StoreConfig {
    /// What is wrong with the files of this machine that it names: key, reason.
    pub fn files(&self) -> Vec<(String, String)> {
        let trusted = self.verify_keys.iter().map(|line| Trusted::read(std::slice::from_ref(line)).err());
        let access = key("store.access_key_file", &self.access_key_file, "").err();
        let secret = key("store.secret_key_file", &self.secret_key_file, "").err();
        let wrong = trusted.chain([access, secret]).flatten().map(|error| match error {
            Error::Invalid { field, reason } => (field.to_owned(), reason),
            other => ("store".to_owned(), other.to_string()),
        });
        wrong.collect()
    }
}

fn directory(url: &str, path: &Path, create: bool) -> Result<VersionStore> {
    if create {
        std::fs::create_dir_all(path).map_err(|source| Error::io(path, source))?;
    }
    let path = path.canonicalize().map_err(|source| Error::io(path, source))?;
    if !path.is_dir() {
        return Err(Error::Invalid { field: "store", reason: format!("{url} is not a directory") });
    }
    let objects = LocalFileSystem::new_with_prefix(&path)?.with_fsync(true);
    let directory = Some(path.clone());
    Ok(VersionStore { local: Some(path), directory, ..VersionStore::remote(Arc::new(objects)) })
}

fn s3(config: &StoreConfig, bucket: &str, prefix: &str) -> Result<Arc<dyn ObjectStore>> {
    // TLS needs one provider for the process; whoever was first has chosen the same.
    let _chosen_already = rustls::crypto::ring::default_provider().install_default();
    let options = ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_connect_timeout(config.connect_timeout.0)
        .with_timeout(config.timeout.0);
    let tries = config.retries;
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: tries as usize,
        retry_timeout: config.timeout.0 * (tries + 1),
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(&config.region)
        .with_client_options(options)
        .with_retry(retry);
    if !config.endpoint.is_empty() {
        builder = builder.with_endpoint(config.endpoint.trim_end_matches('/'));
    }
    let access = key("store.access_key_file", &config.access_key_file, config.access_key.reveal())?;
    let secret = key("store.secret_key_file", &config.secret_key_file, config.secret_key.reveal())?;
    if !access.is_empty() {
        builder = builder.with_access_key_id(access).with_secret_access_key(secret);
        if !config.session_token.is_empty() {
            builder = builder.with_token(config.session_token.reveal());
        }
    }
    let bucket = builder.build()?;
    Ok(if prefix.is_empty() {
        Arc::new(bucket)
    } else {
        Arc::new(PrefixStore::new(bucket, ObjectPath::from(prefix)))
    })
}

/// The key of a file, else the one that is given.
fn key(field: &'static str, file: &str, given: &str) -> Result<String> {
    if file.is_empty() {
        return Ok(given.to_owned());
    }
    let path = Path::new(file);
    let unread = |source| Error::Invalid { field, reason: format!("{file} can't be read: {source}") };
    let text = bounded::text(path, MAX_KEY).map_err(unread)?;
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(Error::Invalid { field, reason: format!("{file} holds no key: one word is expected") });
    }
    Ok(text.to_owned())
}
