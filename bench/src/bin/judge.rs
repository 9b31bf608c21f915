//! Answer quality: builds each judged collection with the product's own pipeline, serves it as a tree and asks every
//! judged query over HTTP. Prints one line per collection.
//!
//! A collection is a folder with `docs.jsonl.gz` (`{"id","title","body","lang"?}`), `queries.tsv` and `qrels.tsv`.
//!
//! `cargo run --profile dist -p canopy-bench --bin judge -- DIR/scifact DIR/cranfield`

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use canopy_bench::{
    judge::{Measures, judgements, measure},
    served::Served,
};
use canopy_cli::http::encode;
use clap::Parser;

/// Arguments.
#[derive(Parser)]
struct Args {
    /// Folders of judged collections
    collections: Vec<PathBuf>,
    /// Further API parameters for every query, NAME=VALUE
    #[arg(long)]
    param: Vec<String>,
    /// Shards
    #[arg(long, default_value_t = 4)]
    shards: u32,
    /// Queries asked of one collection at most
    #[arg(long, default_value_t = usize::MAX)]
    queries: usize,
    /// Hits asked per query
    #[arg(long, default_value_t = 1000)]
    k: u32,
    /// Corpus to search instead of docs.jsonl.gz: JSONL with `url`; qrels then name URLs
    #[arg(long)]
    corpus: Option<PathBuf>,
}

fn to_pages(collection: &Path, name: &str, into: &Path) -> Result<()> {
    let file = std::fs::File::open(collection.join("docs.jsonl.gz")).context("docs.jsonl.gz")?;
    let mut out = BufWriter::new(std::fs::File::create(into)?);
    for line in BufReader::new(flate2::read::MultiGzDecoder::new(file)).lines() {
        let mut page: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line?)?;
        let id = match page.remove("id") {
            Some(serde_json::Value::String(id)) => id,
            Some(id) => id.to_string(),
            None => anyhow::bail!("a document of {name} has no id"),
        };
        page.retain(|key, _| ["title", "body", "lang"].contains(&key.as_str()));
        page.insert("url".into(), format!("https://{name}.test/{id}").into());
        writeln!(out, "{}", serde_json::Value::Object(page))?;
    }
    out.flush()?;
    Ok(())
}

async fn judge(args: &Args, collection: &Path) -> Result<Measures> {
    let name = collection.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dir = tempfile::tempdir()?;
    let (input, prefix) = if let Some(corpus) = &args.corpus {
        (corpus.clone(), String::new())
    } else {
        let input = dir.path().join("pages.jsonl");
        to_pages(collection, &name, &input)?;
        (input, format!("https://{name}.test/"))
    };
    let served = Served::build(dir.path(), &[input], args.shards).await?;
    let judged = judgements(&std::fs::read_to_string(collection.join("qrels.tsv"))?);
    let mut run = BTreeMap::new();
    let extra = args.param.iter().fold(String::new(), |extra, param| extra + "&" + param);
    for line in std::fs::read_to_string(collection.join("queries.tsv"))?.lines().take(args.queries) {
        let Some((id, text)) = line.split_once('\t') else { continue };
        if text.trim().is_empty() {
            run.insert(id.to_owned(), Vec::new()); // asks for nothing, finds nothing
            continue;
        }
        let path = format!(
            "/v1/web/search?q={}&k={}&snippet=false&total=none&fields=url&completion=all&timeout_ms=30000{extra}",
            encode(text),
            args.k
        );
        let answer = served.get(&path).await.with_context(|| format!("query {id}"))?;
        let hits = answer["hits"].as_array().context("hits")?;
        let list = hits
            .iter()
            .filter_map(|hit| hit["key"].as_str())
            .map(|key| key.strip_prefix(&prefix).unwrap_or(key).to_owned())
            .collect();
        run.insert(id.to_owned(), list);
    }
    served.stop(Duration::from_secs(5)).await;
    let judged = judged.into_iter().filter(|(query, _)| run.contains_key(query)).collect();
    Ok(measure(&judged, &run))
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    println!("collection\tqueries\tnDCG@10\tMAP\tMRR@10\tsuccess@10");
    for collection in &args.collections {
        let m = judge(&args, collection).await.with_context(|| collection.display().to_string())?;
        println!(
            "{}\t{}\t{:.4}\t{:.4}\t{:.4}\t{:.4}",
            collection.file_name().unwrap_or_default().to_string_lossy(),
            m.queries,
            m.ndcg10,
            m.map,
            m.mrr10,
            m.success10
        );
    }
    Ok(())
}
