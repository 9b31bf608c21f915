//! From documents to a version.

use std::path::Path;

use canopy_format::{analysis::Analyzer, document::Document, schema::Schema};

use crate::{
    error::{Error, Result},
    index_schema::{IndexDocument, IndexSchema, Place, TokenCounts},
};

/// Writes one small shard into an empty directory, in memory, without a store around it: documents sorted by key, the
/// last of equal keys wins. For tests of what opens shards; a corpus is built by the pipeline.
pub fn shard(dir: &Path, schema: &Schema, documents: Vec<Document>) -> Result<TokenCounts> {
    let index_schema = IndexSchema::new(schema)?;
    let analyzer = Analyzer::new();
    let by_key: std::collections::BTreeMap<_, _> =
        documents.into_iter().map(|document| (document.key_hash(), document)).collect();
    let directory = tantivy::directory::MmapDirectory::open(dir)
        .map_err(|error| Error::engine("open shard directory")(error.into()))?;
    let mut writer = index_schema
        .builder()
        .single_segment_index_writer::<IndexDocument>(directory, 64 << 20)
        .map_err(Error::engine("create shard"))?;
    let mut counts = TokenCounts::default();
    for document in by_key.values() {
        let document = index_schema.document(document, &analyzer, Place::default());
        counts.merge(&document.counts);
        writer.add_document(document).map_err(Error::engine("add document"))?;
    }
    writer.finalize().map_err(Error::engine("finish shard"))?;
    Ok(counts)
}
