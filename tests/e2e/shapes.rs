//! The same answers for any shape: however many shards there are and whatever tree is above them, the list of (key,
//! score) is the same to the bit, and is the one that looking at every document gives.

use std::sync::Arc;

use canopy_common::deadline::Deadline;
use canopy_format::{analysis::Analyzer, schema::Schema};
use canopy_root::{http::params, language::Reader, query, versions::CorpusState};
use canopy_tests::{
    api::{Answered, Api},
    form::by_form,
    oracle::{Asked, Expected},
};
use serde_json::{Value, json};

use crate::{
    questions::{self, Question},
    world::{PRIOR_WEIGHT, World, corpus_of, shard_counts, with_world},
};

/// Reads a question as the root does, into what the oracle takes.
async fn read(question: &Question, state: &Arc<CorpusState>) -> (Asked, usize, usize) {
    let request = params::from_pairs("web", question.clone()).expect("sound parameters");
    let reader = Reader { analyzer: Analyzer::new(), max_expansions: 128 };
    let deadline = Deadline::after(std::time::Duration::from_mins(1));
    let parsed = reader.read(&request, state, deadline, 0).await.expect("a query");
    let schema = Schema::web();
    let asked = Asked {
        query: parsed.query,
        sort: query::sort::parse(&request.sort, &schema).expect("a sort"),
        facets: query::facets::parse(&request.facets, 10, &schema).expect("facets"),
        collapse: request.collapse.clone(),
        prior_weight: if request.profile == "ranked" { PRIOR_WEIGHT } else { 0.0 },
    };
    (asked, request.offset as usize, request.k.unwrap_or(10) as usize)
}

/// Asks a tree; everything whose time or place may differ is left out of the account that trees are compared by.
async fn answer(api: &Api, shards: u32, question: &Question) -> (Answered, Value) {
    let mut parameters: Vec<(&str, &str)> =
        question.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    parameters.extend([("completion", "all"), ("timeout_ms", "60000"), ("snippet", "false")]);
    let answered = api.search(&corpus_of(shards), &parameters).await.ok();
    let mut seen = answered.json.clone();
    for hit in seen["hits"].as_array_mut().into_iter().flatten() {
        hit.as_object_mut().map(|hit| hit.remove("shard"));
    }
    let kept = ["hits", "total", "facets", "warnings", "degraded"];
    let seen = kept.iter().map(|name| ((*name).to_owned(), seen[name].take())).collect();
    (answered, seen)
}

/// Fails unless the answer is the oracle's.
fn judge(question: &Question, answered: &Answered, expected: &Expected, offset: usize, k: usize) {
    let page: Vec<_> = expected.hits.iter().skip(offset).take(k).cloned().collect();
    assert_eq!(answered.places(), page, "{question:?}");
    answered.adds_up();
    assert_eq!(answered.degraded(), [""; 0], "{question:?}");
    let (total, all) = (&answered.json["total"], expected.total);
    let asked =
        question.iter().find(|(name, _)| name == "total").map_or("bounded", |(_, value)| value.as_str());
    let exact = json!({ "value": all, "relation": "eq", "lower_bound": false });
    match asked {
        "none" => assert!(total["value"].as_u64().is_some_and(|value| value <= all), "{question:?}: {total}"),
        "bounded" if all > 1000 => {
            assert_eq!(total["relation"], "gte", "{question:?}");
            assert!(
                total["value"].as_u64().is_some_and(|value| (1000..=all).contains(&value)),
                "{question:?}"
            );
        }
        _ => assert_eq!(*total, exact, "{question:?}"),
    }
    for (field, counts) in &expected.facets {
        let values = answered.json["facets"][field]["values"].as_array().expect("a facet");
        let shown: Vec<(String, u64)> = values
            .iter()
            .map(|value| {
                assert_eq!(value["error_bound"], 0, "{question:?}: {field}");
                (value["value"].as_str().unwrap_or_default().to_owned(), value["count"].as_u64().unwrap_or(0))
            })
            .collect();
        assert_eq!(shown, counts[..shown.len().min(counts.len())], "{question:?}: {field}");
        assert!(!shown.is_empty() || counts.is_empty(), "{question:?}: {field}");
    }
}

async fn compare(world: &World, question: &Question) -> usize {
    let state = world.shelf.state(&corpus_of(1)).await;
    let (asked, offset, k) = read(question, &state).await;
    let expected = world.oracle.answer(&asked);
    let mut first: Option<Value> = None;
    for shards in shard_counts() {
        for tree in [&world.flat, &world.deep] {
            let (answered, seen) = answer(tree.root(), *shards, question).await;
            judge(question, &answered, &expected, offset, k);
            let first = first.get_or_insert_with(|| seen.clone());
            assert_eq!(*first, seen, "{question:?} over {shards} shards");
        }
    }
    expected.hits.len()
}

#[test]
fn every_shape_gives_the_answer_of_the_oracle() {
    with_world(|world| async {
        let questions = questions::ask(11, by_form(150, 1000, 1000), &world.pages);
        let mut found = 0;
        for question in &questions {
            found += usize::from(compare(world, question).await > 0);
        }
        // Questions are drawn from the pages: most of them must find something, or nothing was tested.
        assert!(found * 10 > questions.len() * 7, "only {found} of {} found something", questions.len());
    });
}

#[test]
fn the_statistics_of_a_version_are_those_of_its_documents() {
    with_world(|world| async {
        let state = world.shelf.state(&corpus_of(8)).await;
        let statistics = &state.statistics;
        assert_eq!(statistics.documents(), world.oracle.documents());
        for field in ["text", "title", "anchors"] {
            assert_eq!(statistics.tokens()[field], world.oracle.tokens(field), "{field}");
            for token in world.oracle.vocabulary(field) {
                let known = statistics.document_frequency(field, token);
                assert_eq!(known, Some(world.oracle.frequency(field, token)), "{field}:{token}");
            }
        }
        let one = world.shelf.state(&corpus_of(1)).await;
        assert_eq!(one.manifest.statistics.id, state.manifest.statistics.id);
    });
}
