//! Tests of `request`: what its module comment promises.

use std::time::Duration;

use super::*;
use crate::{config::Profile, fixture::corpus};
use canopy_common::config::{Size, Time};

fn ask(change: impl FnOnce(&mut QueryRequest)) -> Result<Wanted, Error> {
    ask_with(&RootConfig::default(), change)
}

fn ask_with(config: &RootConfig, change: impl FnOnce(&mut QueryRequest)) -> Result<Wanted, Error> {
    let mut request = QueryRequest { corpus: "web".into(), q: "rust".into(), ..Default::default() };
    change(&mut request);
    Wanted::check(&request, &corpus(4, 10), config)
}

fn field(result: Result<Wanted, Error>) -> String {
    result.unwrap_err().failure().field.unwrap_or_default()
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let wanted = ask(|_| ()).unwrap();
    assert_eq!((wanted.k, wanted.offset, wanted.timeout), (10, 0, Duration::from_millis(350)));
    assert_eq!((wanted.snippet, wanted.explain, wanted.trace), (true, false, false));
    assert_eq!(wanted.total, v1::TotalMode::TotalBounded);
    assert_eq!(wanted.completion.mode, v1::completion::Mode::Adaptive as i32);
    assert_eq!(wanted.fields, ["host", "lang", "topic", "published", "static_rank", "attributes"]);
    let config = RootConfig { default_timeout: Time::ms(1000), ..RootConfig::default() };
    assert_eq!(ask_with(&config, |r| r.timeout_ms = 0).unwrap().timeout, Duration::from_secs(1));
}

#[test]
fn tightened_limits_hold() {
    let config = RootConfig { max_k: 50, max_offset: 100, ..RootConfig::default() };
    assert_eq!(field(ask_with(&config, |r| r.k = Some(51))), "k");
    assert_eq!(field(ask_with(&config, |r| r.offset = 91)), "offset");
    assert!(ask_with(&config, |r| r.offset = 90).is_ok());
    let small = RootConfig { max_k: 5, ..RootConfig::default() };
    assert_eq!(ask_with(&small, |_| ()).unwrap().k, 5);
}

#[test]
fn an_answer_that_would_be_too_large_is_refused_before_any_work() {
    let config = RootConfig { max_answer: Size(64 << 10), ..RootConfig::default() };
    let error = ask_with(&config, |r| r.k = Some(1000)).unwrap_err().failure();
    assert_eq!(error.field.as_deref(), Some("k"));
    let limit = error.limit.unwrap() as u32;
    assert!(limit < 1000 && ask_with(&config, |r| r.k = Some(limit)).is_ok());
    assert!(ask_with(&config, |r| (r.k, r.snippet) = (Some(limit + 1), Some(false))).is_ok());
    let text = ask(|r| r.fields = "body".into()).unwrap();
    assert_eq!(corpus(4, 10).average_bytes("body"), 700);
    assert!(text.bytes_per_hit(&corpus(4, 10), &config) > 700);
}

#[test]
fn profiles_are_those_of_the_configuration() {
    let mut config = RootConfig::default();
    config.profiles.insert("fresh".into(), Profile { prior_weight: 2.5 });
    let wanted = ask_with(&config, |r| r.profile = "fresh".into()).unwrap();
    assert_eq!((wanted.stages.profile.as_str(), wanted.stages.prior_weight), ("fresh", 2.5));
    let error = ask_with(&config, |r| r.profile = "stale".into()).unwrap_err();
    assert!(error.to_string().contains("default, fresh"), "{error}");
}

#[test]
fn long_words_and_lists_are_refused() {
    assert_eq!(field(ask(|r| r.session = "x".repeat(257))), "session");
    assert_eq!(field(ask(|r| r.min_should_match = 5000)), "min_should_match");
    assert_eq!(field(ask(|r| r.filter = vec!["lang:en".repeat(1000); 3])), "filter");
    assert_eq!(field(ask(|r| r.query_json = "x".repeat(70_000))), "query_json");
    assert_eq!(field(ask(|r| r.min_coverage = f64::NAN)), "min_coverage");
}

#[test]
fn the_fingerprint_knows_what_decides_the_order() {
    let base = ask(|_| ()).unwrap().fingerprint;
    let same: [fn(&mut QueryRequest); 4] =
        [|r| r.k = Some(50), |r| r.explain = true, |r| r.facets = "lang".into(), |r| r.timeout_ms = 9];
    for change in same {
        assert_eq!(ask(change).unwrap().fingerprint, base);
    }
    let same: [fn(&mut QueryRequest); 2] =
        [|r| r.freshness = "realtime".into(), |r| r.min_offset = "5f:0.7".into()];
    for change in same {
        assert_eq!(ask(change).unwrap().fingerprint, base);
    }
    let other: [fn(&mut QueryRequest); 7] = [
        |r| r.freshness = "base".into(),
        |r| r.freshness = "indexed".into(),
        |r| r.q = "tree".into(),
        |r| r.filter = vec!["lang:en".into()],
        |r| r.sort = "host".into(),
        |r| r.min_should_match = 1,
        |r| r.lang = "de".into(),
    ];
    let mut seen = vec![base];
    for change in other {
        let print = ask(change).unwrap().fingerprint;
        assert!(!seen.contains(&print));
        seen.push(print);
    }
}

#[test]
fn a_search_that_waits_for_offsets_waits_for_all_shards() {
    let all = v1::completion::Mode::All as i32;
    let waiting = ask(|r| r.min_offset = "5f:0.7,1.0".into()).unwrap();
    assert_eq!(waiting.completion.mode, all);
    assert_eq!(waiting.offsets, [v1::PartitionOffset { partition: 0, offset: 7 }]);
    let asked = ask(|r| (r.min_offset, r.completion) = ("5f:0.7".into(), "adaptive".into())).unwrap();
    assert_eq!(asked.completion.mode, v1::completion::Mode::Adaptive as i32);
    let there = ask(|r| r.min_offset = "5f:0.0".into()).unwrap();
    assert_eq!((there.completion.mode == all, there.offsets.len()), (false, 0), "nothing to wait for");
    assert_eq!(field(ask(|r| r.min_offset = "x".into())), "min_offset");
    assert_eq!(field(ask(|r| r.min_offset = "5".repeat(40_000))), "min_offset");
}
