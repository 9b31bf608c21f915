//! `canopy corpus create|list|set-schema|delete`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use canopy_common::{bounded, ids::valid_name};
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_proto::topology::show_request::What;
use clap::{Subcommand, ValueEnum};

use crate::{config::Loaded, control::Service, say::say, show, store::StoreArgs};

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
    /// Delete a corpus with all its versions; refused while a tree has it placed
    #[command(after_help = "Example:  canopy corpus delete old -c canopy.toml --yes")]
    Delete(DeleteArgs),
}

/// `canopy corpus delete`.
#[derive(clap::Args)]
pub struct DeleteArgs {
    /// Name
    name: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    service: Service,
    /// No tree serves from this store
    #[arg(long, conflicts_with_all = ["config", "addresses"])]
    without_service: bool,
    /// Delete it; without, only what would be deleted is said
    #[arg(long)]
    yes: bool,
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
        Command::Delete(args) => delete(args).await?,
    }
    Ok(())
}

/// Versions that leaves map are kept by the system until they let go; still, a tree that has it placed would look for it again.
async fn delete(args: DeleteArgs) -> Result<()> {
    let DeleteArgs { name, store, service, without_service, yes } = args;
    let store = store.or_by(service.config()).open()?;
    if !without_service {
        let file = service.config().map(|file| Loaded::read(Some(file), &[]).checked()).transpose()?;
        let fixed = file.filter(|file| file.topology.services().is_empty());
        let placed = if let Some(file) = &fixed {
            file.topology.placements.iter().any(|placement| placement.corpus == name)
        } else {
            let status = service.client()?.show(What::Status, 0).await?;
            !status["corpora"][&name].is_null()
        };
        if placed {
            let hint = if fixed.is_some() {
                "take its placements out of the file and restart the tree"
            } else {
                "`canopy topology unplace` takes back what answers nothing yet"
            };
            bail!("corpus {name:?} is placed: a tree serves it or will; hint: {hint}");
        }
    }
    let versions = store.versions(&name).await?.len();
    if !yes {
        bail!("this deletes corpus {name:?} with {versions} versions for good; hint: --yes");
    }
    let bytes = store.remove_corpus(&name).await?;
    say!(
        "deleted corpus {name}: {versions} versions, {}; its log is still in the directory of the ingest",
        show::bytes(bytes)
    );
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    async fn command(words: &[&str]) -> Result<()> {
        run(Line::try_parse_from(["corpus"].iter().chain(words))?.command).await
    }

    #[tokio::test]
    async fn a_corpus_is_deleted_only_when_nobody_has_it_placed_and_somebody_said_yes() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store").display().to_string();
        let file = directory.path().join("c.toml");
        let node = "[[topology.nodes]]\nid = 'l'\nrole = 'leaf'\naddress = 'h:1'\n";
        let text = format!(
            "[store]\nurl = {store:?}\n{node}[[topology.placements]]\ncorpus = 'web'\nshards = ['main/0']\nreplicas = ['l']\n"
        );
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        for name in ["web", "old"] {
            command(&["create", name, "--store", &store]).await.unwrap();
        }
        let placed = command(&["delete", "web", "-c", &file, "--yes"]).await.unwrap_err().to_string();
        assert!(placed.contains("is placed"), "{placed}");
        let asked = command(&["delete", "old", "-c", &file]).await.unwrap_err().to_string();
        assert!(asked.contains("--yes"), "{asked}");
        command(&["delete", "old", "-c", &file, "--yes"]).await.unwrap();
        let names = VersionStore::open(&store, false).unwrap().corpora().await.unwrap();
        assert_eq!(names.iter().map(|corpus| corpus.name.as_str()).collect::<Vec<_>>(), ["web"]);
        let gone = command(&["delete", "old", "--store", &store, "--without-service", "--yes"]).await;
        assert!(gone.is_err());
        command(&["create", "old", "--store", &store]).await.unwrap();
    }
}
