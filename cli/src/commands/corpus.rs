//! `canopy corpus create|list|set-schema`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use canopy_common::{bounded, ids::valid_name};
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use clap::{Subcommand, ValueEnum};

use crate::{say::say, store::StoreArgs};

/// What decides between two writes of a key.
#[derive(Clone, Copy, ValueEnum)]
pub enum OrderingArg {
    /// The log's order
    Log,
    /// The producer's own number
    Producer,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Create a corpus; its log partitions and ordering are fixed for ever. A store that is a directory is created with it
    #[command(after_help = "Example:  canopy corpus create web --store ./canopy-data")]
    Create {
        /// Name: a-z, 0-9, - and _
        name: String,
        /// Where it is
        #[command(flatten)]
        store: StoreArgs,
        /// Schema file; the default schema `web` when left out
        #[arg(long, value_name = "FILE")]
        schema: Option<PathBuf>,
        /// Log partitions
        #[arg(long, default_value_t = 16)]
        partitions: u32,
        /// What decides between two writes of a key
        #[arg(long, value_enum, default_value = "log")]
        ordering: OrderingArg,
    },
    /// List the corpora of a store
    #[command(after_help = "Example:  canopy corpus list --store ./canopy-data")]
    List {
        /// Where it is
        #[command(flatten)]
        store: StoreArgs,
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace the schema that the next build uses
    #[command(after_help = "Example:  canopy corpus set-schema web --schema web.toml")]
    SetSchema {
        /// Name
        name: String,
        /// Where it is
        #[command(flatten)]
        store: StoreArgs,
        /// Schema file
        #[arg(long, value_name = "FILE")]
        schema: PathBuf,
    },
}

/// Reads a schema file.
pub fn read_schema(path: &Path) -> Result<Schema> {
    let text = bounded::text(path, bounded::MOST_SETTINGS)
        .with_context(|| format!("{} can't be read", path.display()))?;
    Schema::from_toml(&text).with_context(|| path.display().to_string())
}

/// Runs it.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Create { name, store, schema, partitions, ordering } => {
            if !valid_name(&name) {
                bail!("{name:?} is not a corpus name; hint: 1 to 64 of a-z, 0-9, - and _, such as web");
            }
            let schema = schema.as_deref().map_or_else(|| Ok(Schema::web()), read_schema)?;
            let ordering = match ordering {
                OrderingArg::Log => Ordering::Log,
                OrderingArg::Producer => Ordering::Producer,
            };
            let corpus = Corpus { name, schema, partitions, ordering };
            VersionStore::connect(&store.config()?, true)?.create_corpus(&corpus).await?;
            say!("created corpus {}, schema {} ({})", corpus.name, corpus.schema.name, corpus.schema.id());
        }
        Command::List { store, json } => list(&store, json).await?,
        Command::SetSchema { name, store, schema } => {
            let schema = read_schema(&schema)?;
            let id = schema.id();
            store.open_to_make(&name)?.set_schema(&name, schema).await?;
            say!("{name}: the next build uses schema {id}");
        }
    }
    Ok(())
}

async fn list(store: &StoreArgs, json: bool) -> Result<()> {
    let store = store.open()?;
    let mut lines = Vec::new();
    for corpus in store.corpora().await? {
        let versions = store.versions(&corpus.name).await?;
        lines.push((corpus, versions));
    }
    if json {
        let list: Vec<_> = lines
            .iter()
            .map(|(corpus, versions)| {
                serde_json::json!({ "name": corpus.name, "schema": corpus.schema.name, "schema_id": corpus.schema.id(),
                    "partitions": corpus.partitions, "ordering": corpus.ordering,
                    "versions": versions.iter().map(|v| v.0.to_string()).collect::<Vec<_>>() })
            })
            .collect();
        say!("{:#}", serde_json::Value::from(list));
        return Ok(());
    }
    if lines.is_empty() {
        say!("no corpus yet; hint: canopy corpus create web");
    }
    for (corpus, versions) in lines {
        let newest = versions.last().map_or_else(
            || "no version yet".to_owned(),
            |newest| format!("versions {}, newest {newest}", versions.len()),
        );
        let ordering = match corpus.ordering {
            Ordering::Log => "log",
            Ordering::Producer => "producer",
        };
        say!(
            "{:20} schema {:12} partitions {:4} ordering {ordering:8} {newest}",
            corpus.name,
            corpus.schema.name,
            corpus.partitions
        );
    }
    Ok(())
}
