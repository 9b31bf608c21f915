//! Opens a finished shard as a leaf would and asks it something, before anybody else sees it: documents and order as
//! counted, a key found, a term answered with the frequency that its dictionary says, a source read.

use std::path::Path;

use canopy_common::ids::KeyHash;
use tantivy::{
    DocAddress, Searcher, Term,
    collector::{Count, DocSetCollector},
    query::TermQuery,
    schema::{IndexRecordOption, Value},
};

use crate::{
    error::{Error, Result},
    index_schema::IndexSchema,
    read_back,
};

/// Checks the shard in `directory`, called `name` in errors.
pub(crate) fn shard(directory: &Path, schema: &IndexSchema, documents: u64, name: &str) -> Result<()> {
    let index = read_back::index(directory, name)?;
    if index.schema() != schema.engine {
        return Err(damaged(name, "its fields are not those of the schema".into()));
    }
    let searcher = read_back::reader(&index, name)?.searcher();
    if searcher.num_docs() != documents {
        return Err(damaged(name, format!("it holds {} documents, not {documents}", searcher.num_docs())));
    }
    for segment in 0..searcher.segment_readers().len() {
        ask(&searcher, segment as u32, schema, name)?;
    }
    Ok(())
}

fn ask(searcher: &Searcher, segment: u32, schema: &IndexSchema, name: &str) -> Result<()> {
    let reader = searcher.segment_reader(segment);
    let column = |field| reader.fast_fields().u64(field).map_err(Error::engine(name));
    let (high, low) = (column("_key_high")?, column("_key_low")?);
    let key = |document| Some(KeyHash::from_parts(high.first(document)?, low.first(document)?));
    for document in [0, reader.max_doc() / 2, reader.max_doc().saturating_sub(1)] {
        let Some(key) = key(document) else { continue };
        if count(searcher, schema.key_term(key), name)? != 1 {
            return Err(damaged(
                name,
                format!("the key of its document {document} does not lead to one document"),
            ));
        }
        let stored: tantivy::TantivyDocument =
            searcher.doc(DocAddress::new(segment, document)).map_err(Error::engine(name))?;
        let source = stored.get_first(schema.source).and_then(|value| value.as_bytes());
        let source = source.map(serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>);
        if !matches!(source, Some(Ok(_))) {
            return Err(damaged(name, format!("the source of its document {document} can't be read")));
        }
    }
    if searcher.segment_readers().len() == 1 {
        check_terms(searcher, reader, schema, name)?;
    }
    Ok(())
}

/// The term in the middle of the search field's dictionary matches as many documents as the dictionary says.
fn check_terms(
    searcher: &Searcher,
    reader: &tantivy::SegmentReader,
    schema: &IndexSchema,
    name: &str,
) -> Result<()> {
    let inverted = reader.inverted_index(schema.search).map_err(Error::engine(name))?;
    let dictionary = inverted.terms();
    let mut bytes = vec![];
    let found = dictionary.ord_to_term(dictionary.num_terms() as u64 / 2, &mut bytes);
    if !found.map_err(Error::io(name))? {
        return Ok(()); // no text at all
    }
    let text = String::from_utf8(bytes).map_err(|_| damaged(name, "a term is not UTF-8".into()))?;
    let term = Term::from_field_text(schema.search, &text);
    let expected = inverted.doc_freq(&term).map_err(Error::io(name))? as usize;
    let matched = count(searcher, term, name)?;
    if matched != expected || matched == 0 {
        let reason = format!("{text:?} matches {matched} documents, its dictionary says {expected}");
        return Err(damaged(name, reason));
    }
    Ok(())
}

fn count(searcher: &Searcher, term: Term, name: &str) -> Result<usize> {
    let query = TermQuery::new(term, IndexRecordOption::Basic);
    searcher.search(&query, &Count).map_err(Error::engine(name))
}

fn damaged(name: &str, reason: String) -> Error {
    Error::Damaged { what: name.to_owned(), reason }
}

/// The key of the document with this hash, if the shard has it.
pub(crate) fn key_of(
    directory: &Path,
    schema: &IndexSchema,
    key: KeyHash,
    name: &str,
) -> Result<Option<String>> {
    let index = read_back::index(directory, name)?;
    let searcher = read_back::reader(&index, name)?.searcher();
    let query = TermQuery::new(schema.key_term(key), IndexRecordOption::Basic);
    let found = searcher.search(&query, &DocSetCollector).map_err(Error::engine(name))?;
    let Some(address) = found.into_iter().next() else { return Ok(None) };
    let stored: tantivy::TantivyDocument = searcher.doc(address).map_err(Error::engine(name))?;
    let source = stored.get_first(schema.source).and_then(|value| value.as_bytes()).unwrap_or_default();
    let source: serde_json::Value = serde_json::from_slice(source).unwrap_or_default();
    let key = source.get(&schema.schema.key).and_then(serde_json::Value::as_str);
    Ok(Some(key.map_or_else(|| format!("a document of {name}"), str::to_owned)))
}
