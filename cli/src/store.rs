//! The store of a command: by `--store`, with what `[store]` of a configuration file and the environment say of how to reach it.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use canopy_format::{
    error::Error as StoreError,
    store::{StoreConfig, VersionStore},
};

use crate::config::Loaded;

/// Which store.
#[derive(clap::Args, Clone)]
pub struct StoreArgs {
    /// Directory, file:// URL or s3://bucket/prefix of the store; that of --store-config, else canopy-data, when left out
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Configuration file whose [store] says how to reach it and whose versions are taken; CANOPY__STORE__… and AWS_… variables
    /// hold without it
    #[arg(long, value_name = "FILE")]
    store_config: Option<PathBuf>,
}

impl StoreArgs {
    /// Of a URL.
    pub fn at(url: &str) -> Self {
        Self { store: Some(url.to_owned()), store_config: None }
    }

    /// The same, with what a configuration file of the tree says where none was named for the store.
    pub fn or_by(&self, file: Option<&Path>) -> Self {
        let named = self.store_config.clone().or_else(|| file.map(Path::to_owned));
        Self { store_config: named, ..self.clone() }
    }

    /// Reached as a configuration file says.
    #[cfg(test)]
    pub fn by(self, file: &Path) -> Self {
        Self { store_config: Some(file.to_owned()), ..self }
    }

    /// Its settings.
    pub fn config(&self) -> Result<StoreConfig> {
        settings(self.store.as_deref(), self.store_config.as_deref())
    }

    /// A store that must exist.
    pub fn open(&self) -> Result<VersionStore> {
        open(&self.config()?)
    }

    /// The same, for a command that makes something in it: whoever makes the first thing may have no store yet.
    pub fn open_to_make(&self, corpus: &str) -> Result<VersionStore> {
        let config = self.config()?;
        let url = &config.url;
        open(&config).map_err(|error| match error.downcast_ref::<NoStore>() {
            Some(_) => {
                anyhow!("{error}; hint: a new one is made by `canopy corpus create {corpus} --store {url}`")
            }
            None => error,
        })
    }
}

/// Settings of a store by its URL, the others by a file and the environment.
pub fn settings(url: Option<&str>, file: Option<&Path>) -> Result<StoreConfig> {
    let set: Vec<String> = url.into_iter().map(|url| format!("store.url={url:?}")).collect();
    Ok(Loaded::read(file, &set).checked()?.store)
}

/// A store that should be there, and is not. To make one in its place would hide a mount that is gone.
#[derive(Debug)]
struct NoStore {
    url: String,
    /// The whole path: a relative one is of the directory that the process was started in.
    path: PathBuf,
}

impl std::fmt::Display for NoStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, path } = self;
        write!(f, "there is no store {url}: no directory {}; is it mounted?", path.display())
    }
}

impl std::error::Error for NoStore {}

/// A store that must exist.
pub fn open(config: &StoreConfig) -> Result<VersionStore> {
    VersionStore::connect(config, false).map_err(|error| match error {
        StoreError::Io { path, source } if source.kind() == ErrorKind::NotFound => {
            let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
            NoStore { url: config.url.clone(), path }.into()
        }
        other => other.into(),
    })
}

/// What is to be known of a corpus before it is placed: that it has no version yet, or that the store could not be asked; `None`:
/// it has one. Errors: the store of the configuration file has no such corpus, and which it has.
pub async fn knows(file: Option<&Path>, corpus: &str) -> Result<Option<String>> {
    let unasked = |why: &str| Ok(Some(format!("whether {corpus} is in the store was not checked: {why}")));
    let Some(file) = file else { return unasked("no configuration file names the store; -c FILE does") };
    let config = settings(None, Some(file))?;
    let store = match open(&config) {
        Ok(store) => store,
        Err(error) => return unasked(&crate::failure::line(&error)),
    };
    match store.versions(corpus).await {
        Ok(versions) if versions.is_empty() => {
            Ok(Some(format!("{corpus} has no version yet: it answers once one is built and rolled out")))
        }
        Ok(_) => Ok(None),
        Err(StoreError::NoCorpus(_)) => {
            let known = store.corpora().await?;
            let names: Vec<&str> = known.iter().map(|corpus| corpus.name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let url = &config.url;
            Err(anyhow!(
                "there is no corpus {corpus:?} in the store {url}; it has: {has}; hint: `canopy corpus create {corpus} --store {url}` \
                 makes one"
            ))
        }
        Err(error) => unasked(&error.to_string()),
    }
}

/// Why there is no store of versions here; `None`: there is one, or it is not on this machine. Asks the file system, which
/// may take its time.
pub fn lacks(config: &StoreConfig) -> Option<String> {
    if config.url.starts_with("s3:") {
        return None;
    }
    open(config).err().map(|error| crate::failure::line(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::line;

    #[test]
    fn a_store_that_is_missing_is_named_with_the_way_out() {
        let error = open(&StoreConfig::at("/nowhere/at/all")).err().unwrap();
        let said = line(&error);
        assert_eq!(said, "there is no store /nowhere/at/all: no directory /nowhere/at/all; is it mounted?");
        // A path of its own directory is told in full, and one is made only by who makes something.
        for url in ["no/such", "file:///no/such"] {
            let error = line(&open(&StoreConfig::at(url)).err().unwrap());
            assert!(
                error.contains("no directory /") && error.ends_with("/no/such; is it mounted?"),
                "{error}"
            );
        }
        let to_make = line(&StoreArgs::at("/nowhere/at/all").open_to_make("news").err().unwrap());
        assert!(to_make.starts_with(&said), "{to_make}");
        assert!(to_make.contains("`canopy corpus create news --store /nowhere/at/all`"), "{to_make}");
    }

    #[tokio::test]
    async fn a_corpus_that_the_store_does_not_have_is_refused_and_one_without_a_version_is_told_of() {
        use canopy_format::{
            schema::Schema,
            store::{Corpus, Ordering},
        };
        let directory = tempfile::tempdir().unwrap();
        let (file, url) = (directory.path().join("c.toml"), directory.path().join("versions"));
        std::fs::write(&file, format!("[store]\nurl = {:?}", url.display().to_string())).unwrap();
        let unasked = knows(Some(&file), "web").await.unwrap().unwrap();
        assert!(unasked.contains("was not checked: there is no store"), "{unasked}");
        assert!(knows(None, "web").await.unwrap().unwrap().contains("was not checked"));
        let store = VersionStore::open(&url.display().to_string(), true).unwrap();
        let (name, schema) = ("web".to_owned(), Schema::web());
        store.create_corpus(&Corpus { name, schema, partitions: 4, ordering: Ordering::Log }).await.unwrap();
        assert!(knows(Some(&file), "web").await.unwrap().unwrap().contains("no version yet"));
        let error = knows(Some(&file), "wbe").await.unwrap_err().to_string();
        assert!(error.contains("no corpus \"wbe\"") && error.contains("it has: web"), "{error}");
    }

    #[test]
    fn a_store_that_comes_later_is_lacked_until_then() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::at(&directory.path().join("later").to_string_lossy());
        assert!(lacks(&config).unwrap().contains("there is no store"));
        std::fs::create_dir(directory.path().join("later")).unwrap();
        assert_eq!(lacks(&config), None);
    }

    #[test]
    fn a_url_goes_before_the_file_and_the_rest_of_the_file_holds() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.toml");
        let text =
            "[store]\nurl = 's3://bucket'\nendpoint = 'https://here'\naccess_key = 'a'\nsecret_key = 'hush'";
        std::fs::write(&file, text).unwrap();
        let found = settings(Some("s3://other/x y"), Some(&file));
        assert!(found.unwrap_err().to_string().contains("store.url"));
        let found = settings(Some("s3://other/x"), Some(&file)).unwrap();
        assert_eq!(
            (&*found.url, &*found.endpoint, found.secret_key.reveal()),
            ("s3://other/x", "https://here", "hush")
        );
        assert!(!format!("{found:?}").contains("hush"));
    }
}
