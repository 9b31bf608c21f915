//! What is kept, for how long, and that every way to a version gives the same answers.

use canopy_proto::v1::{BoolQuery, Query, SearchRequest, TermQuery, TermStatistics, query::Node};

use super::*;
use crate::fixture::{Gate, collect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_version_stay_until_its_last_query_has_ended() {
    let mut built = Built::new(&pages(30), 1).await;
    let old = built.manifest.clone();
    let cache = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let (waits, real) = (gate.clone(), fixture::real());
    let held: SearchShard = Box::new(move |view, request, shard, stop| {
        if request.query_id[..] == [9; 16] {
            waits.pass(shard);
        }
        real(view, request, shard, stop)
    });
    let mut leaf = Following::searching(built.store.clone(), copying(cache.path()), held);
    leaf.want(&[old.version], 1);
    leaf.serves(old.version, 1).await;
    let request = SearchRequest { query_id: vec![9; 16].into(), ..built.request("fox") };
    let stream = leaf.node.search(context(9, LONG), request);
    let asked = tokio::spawn(outcomes(stream, 1));
    gate.arrival().await;
    for count in [40, 50] {
        built.next(&pages(count)).await;
        leaf.want(&[built.manifest.version], 1);
        leaf.serves(built.manifest.version, 1).await;
    }
    until("the first has retired", || leaf.lines(old.version).is_empty()).await;
    let second = Version(old.version.0 + 1);
    until("nobody asks of the second", || !kept(cache.path(), second).exists()).await;
    assert!(kept(cache.path(), old.version).exists(), "a query still reads it");
    gate.open(1);
    assert_eq!(found(&asked.await.unwrap()), (vec!["answered"], 30));
    // Its lease is longer than its answer: the shown documents are still to be fetched.
    assert!(kept(cache.path(), old.version).exists());
    let held = leaf.parts.shards.leases.len();
    assert_eq!(held, 2, "until the lease ends");
    assert!(kept(cache.path(), built.manifest.version).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_process_left_is_removed_and_what_is_wanted_is_used_again() {
    let built = Built::new(&pages(30), 2).await;
    let (cache, version) = (tempfile::tempdir().unwrap(), built.manifest.version);
    let mut first = Following::new(built.store.clone(), copying(cache.path()));
    first.want(&[version], 2);
    first.serves(version, 2).await;
    drop(first);
    let old = kept(cache.path(), Version(77)).join("shards/main-0000");
    let shard_gone = kept(cache.path(), version).join("shards/main-0009");
    for directory in [&old, &shard_gone] {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("half.part"), "half").unwrap();
    }
    // Nothing can be fetched: all that is served was there.
    let shards =
        built.store.local().unwrap().join(VersionStore::version_path(CORPUS, version)).join("shards");
    std::fs::rename(&shards, shards.with_extension("away")).unwrap();
    let mut second = Following::new(built.store.clone(), copying(cache.path()));
    second.want(&[version], 2);
    second.serves(version, 2).await;
    let other = kept(cache.path(), Version(77));
    until("leftovers are gone", || !other.exists() && !shard_gone.exists()).await;
    assert_eq!(found(&second.ask(&built).await), (vec!["answered"; 2], 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lies_here_stays_while_nobody_knows_which_version_is_the_newest() {
    let built = Built::new(&pages(30), 1).await;
    let (cache, version) = (tempfile::tempdir().unwrap(), built.manifest.version);
    let mut first = Following::new(built.store.clone(), copying(cache.path()));
    first.want_newest();
    first.is(State::Serving).await;
    drop(first);
    let directory = built.store.version_dir(CORPUS, version).unwrap();
    std::fs::rename(&directory, directory.with_extension("away")).unwrap();
    let mut second = Following::new(built.store.clone(), copying(cache.path()));
    second.want_newest();
    second.is(State::Failed).await;
    // It comes back without its files: only what lies here can serve.
    std::fs::rename(directory.with_extension("away"), &directory).unwrap();
    std::fs::remove_dir_all(directory.join("shards")).unwrap();
    second.is(State::Serving).await;
    assert_eq!(found(&second.ask(&built).await), (vec!["answered"], 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_damaged_under_a_leaf_are_fetched_again() {
    let built = Built::new(&pages(2000), 2).await;
    let (cache, version) = (tempfile::tempdir().unwrap(), built.manifest.version);
    let mut leaf = Following::new(built.store.clone(), copying(cache.path()));
    leaf.want(&[version], 2);
    leaf.serves(version, 2).await;
    for file in &built.manifest.shards[0].files {
        let path = kept(cache.path(), version).join(&file.path);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1).unwrap();
    }
    let (words, _) = found(&leaf.ask(&built).await);
    assert_eq!(words, ["failed", "answered"], "the caller asks another replica");
    assert_eq!(leaf.lines(version)[0].state, State::Quarantined);
    leaf.serves(version, 2).await;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"; 2], 2000));
    for file in &built.manifest.shards[0].files {
        let path = kept(cache.path(), version).join(&file.path);
        assert_eq!(std::fs::metadata(path).unwrap().len(), file.bytes);
    }
}

/// Many queries over the words of [`pages`].
fn questions(built: &Built) -> Vec<SearchRequest> {
    let days = (0..300).map(|day: u32| day.to_string());
    let words: Vec<String> =
        ["fox", "wolf", "den", "red", "grey"].into_iter().map(str::to_owned).chain(days).collect();
    let term = |word: &String| Query {
        node: Some(Node::Term(TermQuery { field: "text".into(), tokens: vec![word.clone()], boost: 1.0 })),
    };
    let one = |number: usize| {
        let picked =
            [&words[number % words.len()], &words[(number * 7 + 3) % words.len()], &words[number % 5]];
        let should = picked.into_iter().map(term).collect();
        let mut request = built.request("fox");
        let statistics = request.statistics.as_mut().unwrap();
        statistics.terms = picked
            .into_iter()
            .map(|token| TermStatistics { field: "text".into(), token: token.clone(), documents: 3 })
            .collect();
        request.query = Some(Query { node: Some(Node::Bool(BoolQuery { should, ..Default::default() })) });
        request
    };
    (0..1000).map(one).collect()
}

/// The best hits of all of them, to the bit.
async fn digest(leaf: &Following, built: &Built) -> Vec<(u32, u64, u64)> {
    let mut all = Vec::new();
    for request in questions(built) {
        let replies = collect(leaf.node.search(context(1, LONG), request)).await;
        let hits = replies.iter().flat_map(|reply| &reply.hits);
        // Scores are above zero: their bits are ordered as they are. How many come depends on how shards share messages.
        let mut hits: Vec<_> =
            hits.map(|hit| (u32::MAX - hit.score.to_bits(), hit.key_high, hit.key_low)).collect();
        hits.sort_unstable();
        assert!(!hits.is_empty());
        all.extend(hits.into_iter().take(10));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_a_swap_and_a_rollback_give_the_same_answers() {
    let mut first = Built::new(&pages(300), 2).await;
    let old = first.manifest.clone();
    let config = || LeafConfig { retain: canopy_common::config::Time::ms(600_000), ..fixture::config(1, 16) };
    let mut leaf = Following::new(first.store.clone(), config());
    leaf.want(&[old.version], 2);
    leaf.serves(old.version, 2).await;
    let started = digest(&leaf, &first).await;
    first.next(&pages(320)).await;
    let new = first.manifest.clone();
    leaf.want(&[new.version], 2);
    leaf.serves(new.version, 2).await;
    let swapped = digest(&leaf, &first).await;
    leaf.want(&[old.version], 2);
    leaf.serves(old.version, 2).await;
    first.manifest = old.clone();
    assert!(digest(&leaf, &first).await == started, "rolled back");
    let mut restarted = Following::new(first.store.clone(), config());
    restarted.want(&[new.version], 2);
    restarted.serves(new.version, 2).await;
    first.manifest = new;
    assert!(digest(&restarted, &first).await == swapped, "started");
    assert!(started != swapped);
}

#[tokio::test]
async fn an_hour_without_news_and_a_jump_of_time_change_nothing() {
    let built = Built::new(&pages(30), 2).await;
    let mut leaf = Following::new(built.store.clone(), fixture::config(1, 16));
    leaf.want(&[built.manifest.version], 2);
    leaf.serves(built.manifest.version, 2).await;
    let before = found(&leaf.ask(&built).await);
    tokio::time::pause();
    for _ in 0..60 {
        tokio::time::advance(Duration::from_mins(1)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    assert!(leaf.lines(built.manifest.version).iter().all(|line| line.state == State::Serving));
    assert_eq!(found(&leaf.ask(&built).await), before);
    // And what comes then is followed.
    leaf.want(&[], 0);
    until("it retires", || {
        leaf.lines(built.manifest.version).iter().all(|line| line.state == State::Retiring)
    })
    .await;
}
