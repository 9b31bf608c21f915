//! Whole trees over a store in S3: built here, published there, fetched by every leaf.

use std::{path::Path, sync::Arc, time::Duration};

use canopy_cli::config::Config;
use canopy_common::deadline::Deadline;
use canopy_format::{
    analysis::Analyzer,
    manifest::Manifest,
    schema::Schema,
    signature::SigningKey,
    store::{StoreConfig, VersionStore},
};
use canopy_indexer::publish::{self, PublishRequest};
use canopy_root::{http::params, language::Reader};
use canopy_tests::{
    api::Api,
    cluster::{Cluster, Shape},
    corpus::{self, Page},
    oracle::{Asked, Oracle},
    publish::Shelf,
    s3::S3,
    wait::wait_for,
};
use serde_json::Value;

const SHARDS: u32 = 4;

/// A version built here and published there.
struct Published {
    shelf: Shelf,
    pages: Vec<Page>,
    manifest: Manifest,
    server: S3,
}

/// A tree whose nodes keep what they fetch below `cache`.
fn kept_in(cache: &Path) -> Config {
    let mut config = Shape::flat(2, 2).config(&[("web", SHARDS)]);
    config.leaf.cache_dir = cache.join("leaf").display().to_string();
    config.root.cache_dir = cache.join("root").display().to_string();
    config
}

impl Published {
    async fn new() -> Self {
        let (shelf, server) = (Shelf::new(), S3::start().await);
        let pages = corpus::generate(7, 300);
        let manifest = shelf.publish("web", &Schema::web(), SHARDS, &pages).await;
        let published = Self { shelf, pages, manifest, server };
        published.publish(None).await;
        published
    }

    async fn publish(&self, sign: Option<Arc<SigningKey>>) {
        let to = VersionStore::connect(&self.server.config(PREFIX), false).expect("a store");
        let request = PublishRequest { sign, ..PublishRequest::new(self.shelf.store.clone(), to, "web") };
        publish::run(&request).await.expect("a copy");
    }

    fn store(&self) -> VersionStore {
        VersionStore::connect(&self.server.config(PREFIX), false).expect("a store")
    }

    /// Fails unless a tree gives the answers of the oracle.
    async fn answers(&self, root: &Api) {
        let oracle = Oracle::new(&Schema::web(), &self.pages);
        let state = self.shelf.state("web").await;
        let reader = Reader { analyzer: Analyzer::new(), max_expansions: 128 };
        let words = self.pages.iter().filter_map(|page| page.title.as_ref()?.split_whitespace().next());
        let mut found = 0;
        for word in words.filter(|word| word.chars().all(char::is_alphanumeric)).take(20) {
            let question = vec![("q".to_owned(), word.to_owned())];
            let request = params::from_pairs("web", question).expect("sound parameters");
            let deadline = Deadline::after(Duration::from_mins(1));
            let query = reader.read(&request, &state, deadline, 0).await.expect("a query").query;
            let expected = oracle.answer(&Asked { query, ..Asked::default() });
            let asked = [("q", word), ("timeout_ms", "60000"), ("completion", "all")];
            let answered = root.search("web", &asked).await.ok();
            answered.adds_up();
            assert!(answered.json["coverage"]["complete"] == true, "{word}: {:#}", answered.json["coverage"]);
            assert_eq!(answered.places(), expected.hits.into_iter().take(10).collect::<Vec<_>>(), "{word}");
            assert_eq!(answered.documents().0, oracle.documents());
            found += answered.hits().count();
        }
        assert!(found > 0);
    }
}

const PREFIX: &str = "trees";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn what_is_fetched_once_serves_again_with_the_store_there_and_away() {
    runtime().block_on(async {
        let mut published = Published::new().await;
        let cache = tempfile::tempdir().expect("a directory");
        let config = kept_in(cache.path());
        let tree = Cluster::start(&published.store(), &config).await;
        published.answers(tree.root()).await;
        tree.stop().await;
        let reads = published.server.shard_reads();
        assert!(reads > 0);

        let tree = Cluster::start(&published.store(), &config).await;
        published.answers(tree.root()).await;
        tree.stop().await;
        assert_eq!(published.server.shard_reads(), reads, "nothing is fetched twice");

        published.server.go_away().await;
        let tree = Cluster::start(&published.store(), &config).await;
        published.answers(tree.root()).await;
        tree.stop().await;
        // A node without a cache does not make do: it waits, and comes when the store does.
        let empty = tempfile::tempdir().expect("a directory");
        let tree = Cluster::start_unready(&published.store(), &kept_in(empty.path())).await;
        let leaf = tree.admin("leaf-0");
        wait_for("the leaf to say that the store is away", Duration::from_mins(1), || async {
            let status = leaf.get("/status").await.ok().json;
            status.to_string().contains("store: ").then_some(())
        })
        .await;
        published.server.come_back().await;
        // A leaf says that it is ready as soon as every shard was brought or not, and tries again what was not.
        for node in ["leaf-0", "leaf-1"] {
            let page = tree.admin(node);
            wait_for("every shard to serve", Duration::from_mins(2), || async {
                let status = page.try_get("/status").await?.json;
                let lines = status["shards"].as_array()?;
                let serving = lines.iter().filter(|line| line["state"] == "serving").count();
                (serving == SHARDS as usize).then_some(())
            })
            .await;
        }
        let root = tree.root().clone();
        wait_for("the root to be ready", Duration::from_mins(1), || async {
            (root.try_get("/healthz/ready").await?.status == 200).then_some(())
        })
        .await;
        published.answers(tree.root()).await;
        tree.stop().await;
    });
}

#[test]
fn a_file_that_is_damaged_in_the_store_sets_its_shard_aside_with_a_reason() {
    runtime().block_on(async {
        let published = Published::new().await;
        let version = VersionStore::version_path("web", published.manifest.version);
        let file = published.manifest.shards[1].files.iter().max_by_key(|file| file.bytes).expect("a file");
        let path = published.server.directory(PREFIX).join(version).join(&file.path);
        let mut bytes = std::fs::read(&path).expect("the object");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("damage");
        let cache = tempfile::tempdir().expect("a directory");
        let tree = Cluster::start_unready(&published.store(), &kept_in(cache.path())).await;
        let leaf = tree.admin("leaf-0");
        let lines = wait_for("the damage to be found", Duration::from_mins(1), || async {
            let status = leaf.get("/status").await.ok().json;
            let lines = status["shards"].as_array().cloned().unwrap_or_default();
            let settled = |line: &Value| line["state"] == "serving" || line["state"] == "failed";
            (lines.len() == SHARDS as usize && lines.iter().all(settled)).then_some(lines)
        })
        .await;
        let failed: Vec<&Value> = lines.iter().filter(|line| line["state"] == "failed").collect();
        assert_eq!(failed.len(), 1, "{lines:?}");
        assert_eq!(failed[0]["shard"], "main/1");
        assert!(failed[0]["last_error"].as_str().is_some_and(|why| why.contains("BLAKE3")), "{lines:?}");
        tree.stop().await;
    });
}

#[test]
fn nodes_with_keys_pass_over_what_nobody_signed_aloud() {
    runtime().block_on(async {
        let key = Arc::new(SigningKey::from_seed(&[9; 32]).expect("a key"));
        let (shelf, server) = (Shelf::new(), S3::start().await);
        let pages = corpus::generate(7, 300);
        let manifest = shelf.publish("web", &Schema::web(), SHARDS, &pages).await;
        let published = Published { shelf, pages, manifest, server };
        published.publish(Some(key.clone())).await;
        // The next version is of somebody who has no key.
        let records: Vec<Value> = corpus::generate(8, 200).iter().map(Page::record).collect();
        let input = corpus::write(&published.shelf.dir().join("next.jsonl"), &records);
        published.shelf.build("web", SHARDS, vec![input]).await;
        published.publish(None).await;
        let config =
            StoreConfig { verify_keys: vec![key.public().to_base64()], ..published.server.config(PREFIX) };
        let store = VersionStore::connect(&config, false).expect("a store");
        let cache = tempfile::tempdir().expect("a directory");
        let reads = published.server.shard_reads();
        let tree = Cluster::start(&store, &kept_in(cache.path())).await;
        let answered = tree.root().search("web", &[("q", "river"), ("timeout_ms", "60000")]).await.ok();
        assert_eq!(answered.json["version"]["wanted"], 1);
        for node in ["leaf-0", "root-0"] {
            let status = tree.admin(node).get("/status").await.ok().json.to_string();
            assert!(status.contains("is not trusted") && status.contains("not signed"), "{node}: {status}");
        }
        tree.stop().await;
        assert!(published.server.shard_reads() > reads);
        // Nodes that trust somebody else serve nothing, and bring nothing.
        let other = SigningKey::from_seed(&[10; 32]).expect("a key").public().to_base64();
        let store = VersionStore::connect(&StoreConfig { verify_keys: vec![other], ..config }, false);
        let (store, empty) = (store.expect("a store"), tempfile::tempdir().expect("a directory"));
        let reads = published.server.shard_reads();
        let tree = Cluster::start_unready(&store, &kept_in(empty.path())).await;
        let leaf = tree.admin("leaf-0");
        wait_for("the leaf to refuse", Duration::from_mins(1), || async {
            let status = leaf.get("/status").await.ok().json.to_string();
            status.contains("is not trusted").then_some(())
        })
        .await;
        tree.stop().await;
        assert_eq!(published.server.shard_reads(), reads, "nothing was brought");
    });
}
