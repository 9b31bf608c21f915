//! Structural checks of incoming messages, before any work or allocation by their numbers. The root checks what users
//! send; these are checked again at every node, because a leaf must survive a root that is wrong.

use canopy_common::error::Failure;

use crate::v1::{self, FetchRequest, Query, SearchRequest, query::Node};

/// Largest deadline: 60 s, in microseconds.
pub const MAX_REMAINING_US: u64 = 60_000_000;
/// Hits per shard and page. `offset + k` is asked of a shard, so this is the page bound plus the offset bound.
pub const MAX_K: u32 = 11_000;
/// Shards in one request.
pub const MAX_SHARDS: usize = 65_536;
/// Depth of the query tree; the decoder itself stops at 100 nested messages, two of which are one level.
pub const MAX_DEPTH: usize = 48;
/// Nodes and tokens of the query tree.
pub const MAX_NODES: usize = 4096;
/// Facets of one request.
pub const MAX_FACETS: usize = 16;
/// Items of one fetch.
pub const MAX_FETCH: usize = 1000;
/// Partitions whose offsets are wanted: as many as a log may have.
pub const MAX_OFFSETS: usize = 1024;
/// Length of a session key, bytes.
pub const MAX_SESSION: usize = 256;
/// Hops from the root.
pub const MAX_LEVEL: u32 = 8;

fn at_most(field: &str, value: usize, limit: usize) -> Result<(), Failure> {
    if value <= limit {
        return Ok(());
    }
    let message = format!("{field} is {value}; the limit is {limit}");
    Err(Failure::invalid(field, message).with_limit(limit as u64))
}

/// Checks a search request.
pub fn search(request: &SearchRequest) -> Result<(), Failure> {
    at_most("shards", request.shards.len(), MAX_SHARDS)?;
    at_most("facets", request.facets.len(), MAX_FACETS)?;
    at_most("sort", request.sort.len(), 8)?;
    at_most("session", request.session.len(), MAX_SESSION)?;
    at_most("wanted_offsets", request.wanted_offsets.len(), MAX_OFFSETS)?;
    at_most("level", request.level as usize, MAX_LEVEL as usize)?;
    for shard in &request.shards {
        at_most("k", shard.k as usize, MAX_K as usize)?;
    }
    distinct(&request.shards)?;
    for facet in &request.facets {
        at_most("facets.size", facet.size as usize, 10_000)?;
    }
    match &request.statistics {
        None => return Err(Failure::invalid("statistics", "the query carries no statistics")),
        Some(statistics) => {
            at_most("statistics.terms", statistics.terms.len(), MAX_NODES)?;
            at_most("statistics.fields", statistics.fields.len(), MAX_NODES)?;
        }
    }
    match &request.query {
        None => Err(Failure::invalid("query", "there is no query")),
        Some(query) => tree(query),
    }
}

/// A shard that is asked twice would be searched twice and its hits merged twice, and a message has room for 65,536 of
/// them. By sorting, not by hashing: whoever chooses the names could choose names that hash alike.
fn distinct(shards: &[v1::ShardRequest]) -> Result<(), Failure> {
    let mut names: Vec<&str> = shards.iter().map(|shard| shard.shard.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let name: String = pair[0].chars().take(80).collect();
            Err(Failure::invalid("shards", format!("shard {name:?} is asked twice; name each shard once")))
        }
    }
}

/// Checks a fetch request.
pub fn fetch(request: &FetchRequest) -> Result<(), Failure> {
    at_most("items", request.items.len(), MAX_FETCH)?;
    at_most("fields", request.fields.len(), 64)?;
    if let Some(snippet) = &request.snippet {
        at_most("snippet.max_chars", snippet.max_chars as usize, 2000)?;
    }
    request.query.as_ref().map_or(Ok(()), tree)
}

/// Checks the bounds of a query tree, without recursion.
pub fn tree(query: &Query) -> Result<(), Failure> {
    let mut nodes = 0;
    let mut open = vec![(query, 1_usize)];
    while let Some((query, depth)) = open.pop() {
        at_most("query depth", depth, MAX_DEPTH)?;
        nodes += weight(query);
        at_most("query terms", nodes, MAX_NODES)?;
        if let Some(Node::Bool(b)) = &query.node {
            let children = [&b.must, &b.should, &b.must_not, &b.filter];
            open.extend(children.into_iter().flatten().map(|child| (child, depth + 1)));
        }
    }
    Ok(())
}

fn weight(query: &Query) -> usize {
    match &query.node {
        Some(Node::Term(v1::TermQuery { tokens, .. }) | Node::Expanded(v1::ExpandedQuery { tokens, .. })) => {
            tokens.len().max(1)
        }
        Some(Node::Phrase(phrase)) => {
            phrase.alternatives.iter().map(|a| a.tokens.len()).sum::<usize>().max(1)
        }
        Some(Node::Keyword(keyword)) => keyword.values.len().max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> Query {
        let mut query = Query { node: Some(Node::All(v1::MatchAll {})) };
        for _ in 1..depth {
            let bool = v1::BoolQuery { must: vec![query], ..Default::default() };
            query = Query { node: Some(Node::Bool(bool)) };
        }
        query
    }

    #[test]
    fn depth_and_size_are_bounded_without_recursion() {
        assert!(tree(&nested(48)).is_ok());
        assert_eq!(tree(&nested(49)).unwrap_err().limit, Some(48));
        let many = v1::ExpandedQuery { tokens: vec![String::new(); 5000], ..Default::default() };
        assert!(tree(&Query { node: Some(Node::Expanded(many)) }).is_err());
    }

    #[test]
    fn a_shard_is_asked_once_and_the_most_shards_are_checked_in_a_moment() {
        let ask = |names: Vec<String>| SearchRequest {
            shards: names
                .into_iter()
                .map(|shard| v1::ShardRequest { shard, k: 10, ..Default::default() })
                .collect(),
            statistics: Some(v1::Statistics::default()),
            query: Some(nested(1)),
            ..Default::default()
        };
        let names = |count: usize| (0..count).map(|n| format!("main/{n}")).collect::<Vec<_>>();
        assert!(search(&ask(names(MAX_SHARDS))).is_ok());
        assert_eq!(search(&ask(names(MAX_SHARDS + 1))).unwrap_err().limit, Some(MAX_SHARDS as u64));
        let mut twice = names(MAX_SHARDS - 1);
        twice.push("main/7".to_owned());
        for request in [ask(twice), ask(vec!["main/7".to_owned(); 65_000])] {
            let begun = tokio::time::Instant::now();
            let failure = search(&request).unwrap_err();
            assert!(begun.elapsed() < std::time::Duration::from_millis(500), "{:?}", begun.elapsed());
            assert_eq!(failure.field.as_deref(), Some("shards"));
            assert!(failure.message.contains("\"main/7\" is asked twice"), "{failure}");
        }
    }

    #[test]
    fn statistics_hold_no_more_than_a_query_can_ask_for() {
        let with = |terms: usize| SearchRequest {
            statistics: Some(v1::Statistics { terms: vec![Default::default(); terms], ..Default::default() }),
            query: Some(nested(1)),
            ..Default::default()
        };
        assert!(search(&with(MAX_NODES)).is_ok());
        assert_eq!(search(&with(MAX_NODES + 1)).unwrap_err().field.as_deref(), Some("statistics.terms"));
    }

    #[test]
    fn a_huge_k_is_refused_by_name() {
        let request = SearchRequest {
            shards: vec![v1::ShardRequest { k: 1_000_000_000, ..Default::default() }],
            ..Default::default()
        };
        let failure = search(&request).unwrap_err();
        assert_eq!((failure.field.as_deref(), failure.limit), (Some("k"), Some(11_000)));
    }
}
