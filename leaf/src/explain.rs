//! Why a document has its score: the parts of the canonical score in the order in which they are added. The sum of the
//! parts, rounded once, is the score of the hit to the bit, because the parts come out of the same walk.

use canopy_proto::v1;
use serde_json::{Value, json};
use tantivy::DocAddress;

use crate::{
    error::{Error, Result},
    query::{
        Numbers, compile,
        matcher::{self, Context},
    },
    rescore::{prior, round},
    stop::{Stop, Ticker},
    view::ShardView,
};

/// Explains the score of a document under a query: `{score, parts: […]}`. `None`: the document does not match, or time
/// was up.
pub fn explain(
    view: &ShardView,
    query: &v1::Query,
    statistics: &v1::Statistics,
    prior_weight: f32,
    address: DocAddress,
    stop: &Stop,
) -> Result<Option<Value>> {
    let plan = compile(&view.base.schema, &Numbers::new(statistics), query)?;
    let segment = view.segment(address.segment_ord);
    let segment = segment.ok_or_else(|| Error::invalid("address", "the address is of another version"))?;
    let ticker = Ticker::new(stop);
    let context = Context::new(&plan, segment, &ticker, true).in_overlay(view.is_overlay(address));
    let Some(mut walk) = matcher::open(context.in_parts(), &plan.root)? else {
        return Ok(None);
    };
    let at = if walk.doc() < address.doc_id { walk.seek(address.doc_id) } else { walk.doc() };
    if at != address.doc_id {
        return Ok(None);
    }
    let mut parts = Vec::new();
    walk.explain(&mut parts);
    if ticker.stopped() {
        return Ok(None);
    }
    let prior = prior(segment, address.doc_id, prior_weight.into());
    let score = round(parts.iter().fold(0.0, |sum, part| sum + part.value) + prior);
    let mut parts: Vec<Value> = parts.into_iter().map(|part| part.what).collect();
    if prior_weight > 0.0 {
        let rank = segment.rank(address.doc_id);
        parts.push(json!({ "kind": "prior", "static_rank": rank, "weight": prior_weight, "score": prior }));
    }
    // In as many digits as the hit shows: a double of the same number would print more.
    let score: f64 = score.to_string().parse().unwrap_or_else(|_| score.into());
    Ok(Some(json!({ "score": score, "parts": parts })))
}
