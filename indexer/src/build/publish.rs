//! Puts what was made into the store and makes it visible: files, then the manifest, last. Between the two every file
//! is read back from the store and compared with its length and BLAKE3.

use canopy_common::ids::{ShardId, Version};
use canopy_format::{
    analysis::Analyzer,
    manifest::{FORMAT, FileEntry, Manifest, ShardEntry, StatisticsEntry},
    statistics,
    store::DamagedFile,
};

use super::{
    make::Made,
    plan::Plan,
    progress::{Amount, Stage},
    request::BuildRequest,
    shard::Written,
};
use crate::error::{Error, Result};

/// Stores files and manifest of `version`.
pub(crate) async fn publish(
    request: &BuildRequest,
    plan: &Plan,
    version: Version,
    made: &mut Made,
) -> Result<Manifest> {
    made.timing.begin(Stage::Verify, Amount { documents: 0, bytes: bytes_of(made)? });
    let (store, corpus) = (&request.store, &request.corpus);
    let file = store.put_file(corpus, version, statistics::FILE, &made.statistics_file).await?;
    let statistics = StatisticsEntry { file, ..made.statistics.clone() };
    let mut shards = vec![];
    for (number, written) in made.shards.iter().enumerate() {
        request.cancel.check()?;
        shards.push(put_shard(request, plan, version, number as u32, written).await?);
    }
    let manifest = manifest(request, plan, version, made, statistics, shards)?;
    let progress = |bytes| request.progress.advance(Stage::Verify, Amount { documents: 0, bytes });
    let damaged = store.verify(&manifest, &progress).await?;
    if let Some(DamagedFile { file, reason }) = damaged.first() {
        let reason = format!("read back, {reason}; check the disk and build again");
        return Err(Error::Damaged { what: file.path.clone(), reason });
    }
    request.cancel.check()?;
    let json = manifest.to_json();
    let signature = request.sign.as_ref().map(|key| key.sign(&json));
    store.publish_signed(&json, signature.as_ref()).await?;
    made.timing.end(Stage::Verify);
    Ok(manifest)
}

fn bytes_of(made: &Made) -> Result<u64> {
    let size =
        |path: &std::path::Path| std::fs::metadata(path).map(|file| file.len()).map_err(Error::io(path));
    let mut bytes = size(&made.statistics_file)?;
    for shard in &made.shards {
        for file in &shard.files {
            bytes += size(&shard.directory.join(file))?;
        }
    }
    Ok(bytes)
}

async fn put_shard(
    request: &BuildRequest,
    plan: &Plan,
    version: Version,
    number: u32,
    written: &Written,
) -> Result<ShardEntry> {
    let shard = ShardId::new(&plan.layout.group, number);
    let directory = Manifest::shard_dir(&shard);
    let mut files = vec![];
    for name in &written.files {
        let (path, from) = (format!("{directory}/{name}"), written.directory.join(name));
        files.push(request.store.put_file(&request.corpus, version, &path, &from).await?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(ShardEntry {
        shard,
        documents: written.documents,
        bytes: files.iter().map(|file| file.bytes).sum(),
        resident_bytes: files.iter().map(resident).sum(),
        files,
        tokens: written.counts.tokens.clone(),
    })
}

/// Memory that a file keeps resident under load, bytes: dictionaries, columns and postings whole, positions (phrases
/// only) a quarter, stored documents (shown hits only) an eighth.
fn resident(file: &FileEntry) -> u64 {
    match file.path.rsplit('.').next() {
        Some("pos") => file.bytes / 4,
        Some("store") => file.bytes / 8,
        _ => file.bytes,
    }
}

fn manifest(
    request: &BuildRequest,
    plan: &Plan,
    version: Version,
    made: &Made,
    statistics: StatisticsEntry,
    shards: Vec<ShardEntry>,
) -> Result<Manifest> {
    let mut languages = std::collections::BTreeMap::new();
    for (language, count) in made.shards.iter().flat_map(|shard| &shard.languages) {
        *languages.entry(language.clone()).or_insert(0) += count;
    }
    let created = jiff::Timestamp::from_microsecond(request.clock.now_us());
    let created = created.map_err(|error| Error::Invalid { field: "clock", reason: error.to_string() })?;
    Ok(Manifest {
        format: FORMAT,
        corpus: request.corpus.clone(),
        version,
        parent: plan.parent.map(|parent| parent.version),
        created: created.to_string(),
        builder: concat!("canopy ", env!("CARGO_PKG_VERSION")).to_owned(),
        schema: plan.schema.clone(),
        schema_id: plan.schema.id(),
        analysis_id: Analyzer::id().to_owned(),
        layouts: vec![plan.layout.clone()],
        cut: request.cut.clone(),
        log: request.log.clone(),
        whole: plan.index_schema.rest.is_some(),
        statistics,
        shards,
        languages,
        counts: made.counts.clone(),
        warmup: plan.warmup.clone(),
    })
}
