//! One fetched document: find it, read its stored source, cut out what was asked for.

use std::sync::Arc;

use canopy_common::{
    error::Failure,
    ids::{KeyHash, Version},
};
use canopy_format::schema::{Kind, Schema};
use canopy_proto::v1::{FetchItem, FetchedDocument};
use tantivy::DocAddress;

use super::{
    Fetch,
    source::{self, Source},
};
use crate::{error::Result, explain, node::Parts, shards::Serving, view::ShardView};

/// The field that snippets are cut from, when the schema has it.
pub const BODY: &str = "body";
/// The field shown as title.
pub const TITLE: &str = "title";

/// An item that stays empty.
pub fn empty(reason: impl Into<String>) -> FetchedDocument {
    FetchedDocument { filled: false, reason: reason.into(), ..Default::default() }
}

/// Fetches one item; never fails, an item that can't be filled says why.
pub fn fill(parts: &Arc<Parts>, fetch: &Fetch, item: &FetchItem) -> FetchedDocument {
    let Place { serving, view, address } = match find(parts, fetch, item) {
        Ok(Ok(found)) => found,
        Ok(Err(gone)) => return empty(gone),
        Err(failure) => return empty(failure.message),
    };
    let read = read(fetch, &view, address).map_err(Failure::from);
    match parts.shards.judge(&serving, read.as_ref().err()) {
        Some(failure) => empty(failure.message),
        None => read.unwrap_or_else(|failure| empty(failure.message)),
    }
}

/// Where an item is.
struct Place {
    serving: Arc<Serving>,
    view: Arc<ShardView>,
    address: DocAddress,
}

const NONE: &str = "the version has no document with this key";
const DELETED: &str = "the document was deleted since it was found";

/// The view and place of an item. A base document that is still live is read where it was found, when that is this node;
/// anything else is looked up by its key, which finds the newest. The inner error says why there is nothing.
fn find(
    parts: &Arc<Parts>,
    fetch: &Fetch,
    item: &FetchItem,
) -> std::result::Result<std::result::Result<Place, &'static str>, Failure> {
    let key = KeyHash::from_parts(item.key_high, item.key_low);
    let version = Version(fetch.request.version);
    let own = *item.node == *parts.shards.node.0;
    let leased = if own { parts.shards.leases.find(item.lease) } else { None };
    let leased = leased.filter(|serving| {
        *serving.corpus == *fetch.request.corpus
            && serving.version == version
            && serving.shard.to_string() == item.shard
    });
    if let Some(serving) = &leased {
        let view = serving.view();
        let found = view.unpack(item.address).filter(|address| !view.is_overlay(*address));
        if let Some(address) = found.filter(|at| view.key_at(*at) == Some(key) && !view.hides(*at)) {
            return Ok(Ok(Place { serving: serving.clone(), view, address }));
        }
    }
    let why = leased.as_ref().map_or(NONE, |serving| gone(&serving.view(), item, key));
    let snapshot = parts.shards.directory.snapshot();
    // One that is served is newer than one that is only held for its leases.
    let served = parts.shards.find(&snapshot, &fetch.request.corpus, version, &item.shard);
    let serving = served.or_else(|failure| leased.ok_or(failure))?;
    let view = serving.view();
    let address = view.find(key).map_err(Failure::from);
    match parts.shards.judge(&serving, address.as_ref().err()) {
        Some(failure) => Err(failure),
        None => Ok(address?.map(|address| Place { serving, view, address }).ok_or(why)),
    }
}

/// Why a view has nothing at a key: a base document is where it was, also when it is hidden; one of the overlay may be anywhere.
fn gone(view: &ShardView, item: &FetchItem, key: KeyHash) -> &'static str {
    match view.unpack(item.address).filter(|address| !view.is_overlay(*address)) {
        Some(address) if view.key_at(address) != Some(key) => NONE,
        _ => DELETED,
    }
}

fn read(fetch: &Fetch, view: &ShardView, address: DocAddress) -> Result<FetchedDocument> {
    let bytes = source::read(view, address)?;
    let source = Source::parse(view, &bytes)?;
    let schema = &view.base.schema.schema;
    let mut document = FetchedDocument {
        filled: true,
        key: source.first(&schema.key),
        title: source.first(TITLE),
        fields_json: source.select(&fetch.request.fields),
        reason: unknown_fields(schema, &fetch.request.fields),
        ..Default::default()
    };
    if let Some(snippets) = &fetch.snippets {
        let language = source.first("lang");
        let language = if language.is_empty() { schema.default_language.clone() } else { language };
        let stop = || fetch.stop.now();
        let text = snippet_text(schema, &source);
        let snippet = snippets.make(&fetch.terms, &text, &language, &stop);
        document.snippet = snippet.html;
        document.snippet_text = snippet.text;
        document.ranges = snippet.ranges;
    }
    let explained = fetch.request.explain.then_some(()).and(fetch.request.query.as_ref());
    if let (Some(query), Some(statistics)) = (explained, &fetch.request.statistics) {
        let prior = fetch.request.stages.as_ref().map_or(0.0, |stages| stages.prior_weight);
        match explain::explain(view, query, statistics, prior, address, &fetch.stop)? {
            Some(value) => document.explain_json = value.to_string(),
            None => "it could not be explained in time, or does not match".clone_into(&mut document.reason),
        }
    }
    Ok(document)
}

/// The text that snippets are cut from: the body; in a schema without one, all searched text but the title.
fn snippet_text(schema: &Schema, source: &Source) -> String {
    if schema.field(BODY).is_some_and(|field| field.kind == Kind::Text) {
        return source.text(BODY);
    }
    let texts = schema.searched().filter(|field| field.show && field.name != TITLE);
    let texts: Vec<String> =
        texts.map(|field| source.text(&field.name)).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

/// Names the asked fields that the schema does not show. They are left out; the root refuses them before it asks.
fn unknown_fields(schema: &Schema, names: &[String]) -> String {
    let unknown = names.iter().filter(|name| schema.field(name).is_none_or(|field| !field.show));
    let unknown: Vec<String> = unknown.map(|name| name.chars().take(80).collect()).collect();
    if unknown.is_empty() {
        String::new()
    } else {
        format!("this version shows no field {}", unknown.join(", "))
    }
}
