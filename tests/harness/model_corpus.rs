//! A small corpus whose every answer can be computed by brute force, to judge what the engine gathers.
//!
//! Documents have few distinct scores and sort values, so that ties are common, and a leaf that is cut considers a
//! prefix of a shard's documents: what `documents_searched` claims is exactly what the oracle looks at.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::{
    ids::{KeyHash, QueryId},
    rng::Dice,
    topk::SortKey,
};
use canopy_proto::{convert, v1};

/// A document.
#[derive(Debug, Clone)]
pub struct ModelDocument {
    /// Key hash.
    pub key: KeyHash,
    /// Score for the one query there is.
    pub score: f32,
    /// A sort value; `None`: missing.
    pub published: Option<i64>,
    /// A facet and collapse value; empty: none.
    pub host: String,
}

/// A shard.
#[derive(Debug, Clone)]
pub struct ModelShard {
    /// `main/3`.
    pub name: String,
    /// In the order in which a leaf looks at them.
    pub documents: Vec<ModelDocument>,
}

/// A version of a corpus.
#[derive(Debug, Clone)]
pub struct ModelCorpus {
    /// The version.
    pub version: u64,
    /// All shards.
    pub shards: Vec<ModelShard>,
}

impl ModelCorpus {
    /// `shards` shards of up to `most` documents each, the same for the same seed.
    pub fn generate(seed: u64, shards: usize, most: usize) -> Self {
        let dice = Dice::seeded(seed);
        let size = || dice.below(most as u64 + 1) as usize;
        Self::of((0..shards).map(|number| shard(&dice, number, size())).collect())
    }

    /// `shards` shards of `documents` documents each.
    pub fn even(seed: u64, shards: usize, documents: usize) -> Self {
        let dice = Dice::seeded(seed);
        Self::of((0..shards).map(|number| shard(&dice, number, documents)).collect())
    }

    fn of(shards: Vec<ModelShard>) -> Self {
        Self { version: 7, shards }
    }

    /// The shard of that name.
    pub fn shard(&self, name: &str) -> Option<&ModelShard> {
        self.shards.iter().find(|shard| shard.name == name)
    }

    /// Documents of all shards.
    pub fn documents(&self) -> u64 {
        self.shards.iter().map(|shard| shard.documents.len() as u64).sum()
    }

    /// A search of all shards for `k` hits, as the root would send it to the engine.
    pub fn request(&self, query: QueryId, k: u32) -> v1::SearchRequest {
        let shard = |shard: &ModelShard| v1::ShardRequest {
            shard: shard.name.clone(),
            k,
            documents: shard.documents.len() as u64,
            after: None,
        };
        let all = v1::query::Node::All(v1::MatchAll {});
        v1::SearchRequest {
            query_id: query.0.to_vec().into(),
            corpus: "web".into(),
            version: self.version,
            epoch: 1,
            statistics: Some(v1::Statistics::default()),
            shards: self.shards.iter().map(shard).collect(),
            query: Some(v1::Query { node: Some(all) }),
            total: v1::TotalMode::TotalExact as i32,
            ..Default::default()
        }
    }
}

fn shard(dice: &Dice, number: usize, documents: usize) -> ModelShard {
    let document = |_| {
        let key = KeyHash::from_parts(dice.next_u64(), dice.next_u64());
        let score = dice.below(40) as f32 / 8.0;
        let published = (dice.below(4) > 0).then(|| dice.below(9).cast_signed() - 4);
        let host = match dice.below(12) {
            0 => String::new(),
            n => format!("host-{n}"),
        };
        ModelDocument { key, score, published, host }
    };
    ModelShard { name: format!("main/{number}"), documents: (0..documents).map(document).collect() }
}

/// What a document looks like on the wire, for a request.
pub fn hit(request: &v1::SearchRequest, shard: u32, at: usize, document: &ModelDocument) -> v1::Hit {
    use v1::sort_value::Kind;
    let value = |by: &v1::SortBy| match by.field.as_str() {
        "_score" => Kind::F64(f64::from(document.score)),
        _ => document.published.map_or(Kind::Missing(true), Kind::I64),
    };
    let (key_high, key_low) = document.key.parts();
    v1::Hit {
        shard,
        key_high,
        key_low,
        score: document.score,
        sort: request.sort.iter().map(|by| v1::SortValue { kind: Some(value(by)) }).collect(),
        address: at as u64 + 1,
        overlay: false,
        collapse: if request.collapse.is_empty() { String::new() } else { document.host.clone() },
        stage: 0,
    }
}

/// The best `k` of `hits` in the request's order, by brute force.
pub fn best(request: &v1::SearchRequest, hits: Vec<v1::Hit>, k: usize) -> Vec<v1::Hit> {
    let order = convert::order(&request.sort);
    let mut keyed: Vec<(SortKey, v1::Hit)> =
        hits.into_iter().map(|hit| (convert::sort_key(&hit), hit)).collect();
    keyed.sort_by(|a, b| order.cmp(&a.0, &b.0).then(a.1.shard.cmp(&b.1.shard)));
    let mut values = BTreeSet::new();
    keyed.retain(|(_, hit)| hit.collapse.is_empty() || values.insert(hit.collapse.clone()));
    keyed.truncate(k);
    keyed.into_iter().map(|(_, hit)| hit).collect()
}

/// What a leaf says of one shard after it looked at the first `searched` documents.
pub fn answer(
    request: &v1::SearchRequest,
    index: u32,
    shard: &ModelShard,
    version: u64,
    searched: usize,
) -> (v1::ShardReply, Vec<v1::Hit>) {
    let considered = &shard.documents[..searched.min(shard.documents.len())];
    let whole = considered.len() == shard.documents.len();
    let hits = considered.iter().enumerate().map(|(at, document)| hit(request, index, at, document));
    let facets = request.facets.iter().enumerate().map(|(at, by)| counts(at as u32, by, considered));
    let reply = v1::ShardReply {
        shard: index,
        outcome: v1::Outcome::Answered as i32,
        cut: if whole { v1::Cut::None } else { v1::Cut::Deadline } as i32,
        version,
        documents_searched: considered.len() as u64,
        total: considered.len() as u64,
        total_is_lower_bound: !whole,
        facets: facets.collect(),
        ..Default::default()
    };
    let k = request.shards[index as usize].k as usize;
    (reply, best(request, hits.collect(), k))
}

fn counts(facet: u32, by: &v1::FacetBy, documents: &[ModelDocument]) -> v1::FacetCounts {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for document in documents.iter().filter(|document| !document.host.is_empty()) {
        *counts.entry(&document.host).or_default() += 1;
    }
    let mut sorted: Vec<(&str, u64)> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let sent = if by.exact { sorted.len() } else { (by.size as usize).min(sorted.len()) };
    v1::FacetCounts {
        facet,
        values: sorted[..sent].iter().map(|entry| entry.0.to_owned()).collect(),
        counts: sorted[..sent].iter().map(|entry| entry.1).collect(),
        omitted_max: sorted.get(sent).map_or(0, |entry| entry.1),
    }
}

/// The hits that must have been gathered, given how each shard ended.
pub fn expected(
    corpus: &ModelCorpus,
    request: &v1::SearchRequest,
    shards: &[v1::ShardReply],
) -> Vec<v1::Hit> {
    let k = request.shards.iter().map(|shard| shard.k).max().unwrap_or(0) as usize;
    let mut all = Vec::new();
    for (index, (asked, reply)) in request.shards.iter().zip(shards).enumerate() {
        let searched = match v1::Outcome::try_from(reply.outcome) {
            Ok(v1::Outcome::Answered) => reply.documents_searched as usize,
            _ => 0,
        };
        let Some(shard) = corpus.shard(&asked.shard) else { continue };
        let considered = shard.documents.iter().take(searched).enumerate();
        all.extend(considered.map(|(at, document)| hit(request, index as u32, at, document)));
    }
    best(request, all, k)
}
