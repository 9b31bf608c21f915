//! Searches against an oracle: every shape, both paths, several segments, hidden documents; to the bit.

use std::{collections::BTreeSet, sync::atomic::AtomicBool, time::Duration};

use canopy_common::{deadline::Deadline, error::ErrorClass, ids::KeyHash, rng::Dice};
use roaring::RoaringBitmap;

use super::{path::Small, *};
use crate::testing::{self, Row};

mod cancel;
mod freshness;
mod oracle;
mod overlay;
mod random;

use oracle::{Expected, Oracle};

const VOCABULARY: u64 = 120;
/// Forces the pruned path where it is possible at all.
const PRUNED: Small = Small { union: 0, pair: 0, many: 0 };
/// Forces the exhaustive path.
const WALKED: Small = Small { union: u64::MAX, pair: u64::MAX, many: u64::MAX };

fn request(query: v1::Query, statistics: &v1::Statistics, k: u32) -> v1::SearchRequest {
    v1::SearchRequest {
        shards: vec![v1::ShardRequest { k, ..Default::default() }],
        query: Some(query),
        statistics: Some(statistics.clone()),
        ..Default::default()
    }
}

fn run_all(view: &ShardView, request: &v1::SearchRequest, small: Small) -> ShardResult {
    let result = search_by(view, request, 0, &Stop::never(), small);
    assert_eq!(result.failure, None);
    assert_eq!(result.reply.outcome, v1::Outcome::Answered as i32);
    assert_eq!((result.reply.cut, result.reply.documents_searched), (0, view.documents()));
    result
}

fn seen(result: &ShardResult) -> Vec<(u128, u32)> {
    let hits = result.hits.iter();
    hits.map(|hit| (KeyHash::from_parts(hit.key_high, hit.key_low).0, hit.score.to_bits())).collect()
}

fn check_total(mode: v1::TotalMode, reply: &v1::ShardReply, total: u64) {
    match mode {
        v1::TotalMode::TotalExact => assert_eq!((reply.total, reply.total_is_lower_bound), (total, false)),
        v1::TotalMode::TotalNone => assert_eq!((reply.total, reply.total_is_lower_bound), (0, true)),
        v1::TotalMode::TotalBounded if reply.total_is_lower_bound => {
            assert!(reply.total == BOUND && total >= BOUND, "{} of {total}", reply.total);
        }
        v1::TotalMode::TotalBounded => assert_eq!(reply.total, total),
    }
}

fn check(result: &ShardResult, request: &v1::SearchRequest, expected: &Expected) {
    let of = v1::SearchRequest { statistics: None, ..request.clone() };
    let full = result.hits.iter().map(|hit| {
        let values = hit.sort.iter().map(convert::sort_value).collect::<Vec<_>>();
        let key = KeyHash::from_parts(hit.key_high, hit.key_low);
        (key.0, hit.score.to_bits(), values, hit.collapse.clone())
    });
    assert_eq!(full.clone().zip(&expected.hits).find(|(a, b)| a != *b), None, "{of:?}");
    assert_eq!(full.len(), expected.hits.len(), "{of:?}");
    check_total(request.total(), &result.reply, expected.total);
    for (facet, counts) in result.reply.facets.iter().zip(&expected.facets) {
        let got: std::collections::BTreeMap<String, u64> =
            facet.values.iter().cloned().zip(facet.counts.iter().copied()).collect();
        assert_eq!((&got, facet.omitted_max), (counts, 0), "{of:?}");
    }
}

fn hide(dice: &Dice, view: &ShardView) -> (ShardView, BTreeSet<usize>) {
    let share = [0, 0, 5, 50][dice.below(4) as usize];
    let hidden: BTreeSet<usize> =
        (0..view.documents() as usize).filter(|_| dice.below(100) < share).collect();
    let tombstones: RoaringBitmap = hidden.iter().map(|at| *at as u32).collect();
    (view.with_tombstones(tombstones), hidden)
}

fn total(dice: &Dice) -> i32 {
    dice.below(3) as i32
}

/// Terms, flat unions and intersections: the engine's path, the walk and the oracle agree.
#[test]
fn flat_queries_equal_the_oracle_on_both_paths() {
    let dice = Dice::seeded(7);
    let rows = testing::rows(&dice, 2500, VOCABULARY);
    for segments in [1, 3] {
        let base = testing::shard(&rows, segments);
        assert_eq!(base.base.segments.len(), segments);
        let rows = testing::in_order(&base, &rows);
        for round in 0..200 {
            let stretch = [1.0, 0.55, 0.8, 1.3, 1.9][round % 5];
            let statistics = random::statistics(&dice, &rows, VOCABULARY, stretch);
            let (view, hidden) =
                if round % 25 < 5 { hide(&dice, &base) } else { (base.clone(), BTreeSet::new()) };
            let k = [1, 3, 10, 10, 100][dice.below(5) as usize];
            let mut request = request(random::flat(&dice, VOCABULARY), &statistics, k);
            request.total = total(&dice);
            let prior_weight = [0.0, 0.0, 0.7, 5.0][dice.below(4) as usize];
            request.stages = Some(v1::Stages { prior_weight, ..Default::default() });
            let oracle = Oracle::new(&rows, &statistics, prior_weight);
            let expected = oracle.answer(&request, &hidden);
            check(&run_all(&view, &request, WALKED), &request, &expected);
            check(&run_all(&view, &request, PRUNED), &request, &expected);
            check(&run_all(&view, &request, SMALL), &request, &expected);
        }
    }
}

/// Every shape of query, order, cursor, facets and collapse.
#[test]
fn every_shape_equals_the_oracle() {
    let dice = Dice::seeded(11);
    let rows = testing::rows(&dice, 700, 60);
    for segments in [1, 4] {
        let base = testing::shard(&rows, segments);
        let rows = testing::in_order(&base, &rows);
        let statistics = random::statistics(&dice, &rows, 60, 1.1);
        let oracle = Oracle::new(&rows, &statistics, 0.3);
        for round in 0..800 {
            let (view, hidden) =
                if round % 50 < 5 { hide(&dice, &base) } else { (base.clone(), BTreeSet::new()) };
            let query = random::any(&dice, 60, 3);
            let mut request = request(query, &statistics, [0, 1, 5, 20, 1000][dice.below(5) as usize]);
            request.total = total(&dice);
            request.stages = Some(v1::Stages { prior_weight: 0.3, ..Default::default() });
            if dice.below(3) == 0 {
                request.sort = sort(&dice);
            }
            if dice.below(4) == 0 {
                request.facets = facets(&dice);
            }
            if dice.below(5) == 0 {
                request.collapse = ["host", "topic"][dice.below(2) as usize].into();
            }
            if dice.below(4) == 0 {
                let all = run_all(&view, &v1::SearchRequest { shards: whole(), ..request.clone() }, PRUNED);
                request.shards[0].after = cursor(&dice, &all, &request);
            }
            let mut expected = oracle.answer(&request, &hidden);
            // Sorted by a field, the score is computed all the same.
            let walked = run_all(&view, &request, PRUNED);
            if request.shards[0].k == 0 {
                expected.hits.clear();
            }
            check(&walked, &request, &expected);
        }
    }
}

fn whole() -> Vec<v1::ShardRequest> {
    vec![v1::ShardRequest { k: 1000, ..Default::default() }]
}

fn sort(dice: &Dice) -> Vec<v1::SortBy> {
    let one = |_| {
        let field = match dice.below(10) {
            0 => "_score",
            9 => "static_rank",
            n => random::VALUES[n as usize - 1],
        };
        v1::SortBy { field: field.into(), descending: dice.below(2) == 0 }
    };
    (0..=dice.below(3)).map(one).collect()
}

fn facets(dice: &Dice) -> Vec<v1::FacetBy> {
    let one = |_| {
        let field = ["host", "topic", "price", "size", "flag", "attributes.color"][dice.below(6) as usize];
        v1::FacetBy { field: field.into(), size: 1 + dice.below(5) as u32, exact: dice.below(2) == 0 }
    };
    (0..=dice.below(3)).map(one).collect()
}

/// A place: that of a hit, sometimes with a value that no document has.
fn cursor(dice: &Dice, all: &ShardResult, request: &v1::SearchRequest) -> Option<v1::After> {
    let hit = all.hits.get(dice.below(all.hits.len() as u64) as usize)?;
    let mut after =
        v1::After { sort: hit.sort.clone(), score: hit.score, key_high: hit.key_high, key_low: hit.key_low };
    if dice.below(3) == 0 {
        for (value, by) in after.sort.iter_mut().zip(&request.sort) {
            use v1::sort_value::Kind;
            let kind = match by.field.as_str() {
                "host" => Kind::Text(format!("h{}x", dice.below(40))),
                "price" => Kind::I64(dice.below(300) as i64 - 150),
                _ => continue,
            };
            value.kind = Some(kind);
        }
    }
    Some(after)
}

/// All documents score alike, and there are far more of them than k: the list is the k smallest key hashes.
#[test]
fn ties_are_broken_by_key_hash_on_both_paths() {
    let rows: Vec<Row> = (0..9000).map(|n| Row::of(&format!("key {n}"), "text", "same words here")).collect();
    let mut keys: Vec<u128> = rows.iter().map(|row| row.hash().0).collect();
    keys.sort_unstable();
    let statistics = random::statistics(&Dice::seeded(1), &rows, 1, 1.0);
    let words =
        |words: &[&str]| words.iter().map(|w| random::term("text", &[(*w).into()], 1.0)).collect::<Vec<_>>();
    for segments in [1, 2] {
        let view = testing::shard(&rows, segments);
        for query in [
            random::should(words(&["same"])),
            random::should(words(&["same", "here", "absent"])),
            random::must(words(&["same", "words", "here"])),
        ] {
            for k in [1, 10, 3000, 11_000] {
                let request = request(query.clone(), &statistics, k);
                for small in [PRUNED, WALKED] {
                    let got: Vec<u128> =
                        seen(&run_all(&view, &request, small)).iter().map(|hit| hit.0).collect();
                    assert_eq!(got, keys[..got.len()]);
                    assert_eq!(got.len(), keys.len().min(k as usize));
                }
            }
        }
    }
}

/// A shard alone and the same documents in several shards give the same list.
#[test]
fn one_shard_and_four_give_the_same_list() {
    let dice = Dice::seeded(23);
    let rows = testing::rows(&dice, 3000, VOCABULARY);
    let statistics = random::statistics(&dice, &rows, VOCABULARY, 1.0);
    let one = testing::shard(&rows, 1);
    let parts: Vec<Vec<Row>> = (0..4).map(|n| rows.iter().skip(n).step_by(4).cloned().collect()).collect();
    let four: Vec<ShardView> = parts.iter().map(|rows| testing::shard(rows, 1)).collect();
    for _ in 0..200 {
        let request = request(random::flat(&dice, VOCABULARY), &statistics, 10);
        let mut merged: Vec<(u128, u32)> =
            four.iter().flat_map(|view| seen(&run_all(view, &request, PRUNED))).collect();
        merged.sort_by(|a, b| f32::from_bits(b.1).total_cmp(&f32::from_bits(a.1)).then(a.0.cmp(&b.0)));
        merged.truncate(10);
        assert_eq!(seen(&run_all(&one, &request, PRUNED)), merged);
    }
}

/// The explanation adds up to the score of the hit, to the bit.
#[test]
fn explanations_add_up_to_the_score() {
    let dice = Dice::seeded(5);
    let rows = testing::rows(&dice, 600, 60);
    let view = testing::shard(&rows, 2);
    let statistics = random::statistics(&dice, &rows, 60, 1.2);
    for _ in 0..300 {
        let mut request = request(random::any(&dice, 60, 3), &statistics, 3);
        request.stages = Some(v1::Stages { prior_weight: 0.25, ..Default::default() });
        for hit in run_all(&view, &request, PRUNED).hits {
            let address = view.unpack(hit.address).expect("address");
            assert_eq!(view.key_at(address), Some(KeyHash::from_parts(hit.key_high, hit.key_low)));
            let query = request.query.as_ref().expect("query");
            let explained = crate::explain::explain(&view, query, &statistics, 0.25, address, &Stop::never())
                .expect("explain");
            let explained = explained.expect("matches");
            let parts = explained["parts"].as_array().expect("parts");
            let sum: f64 = parts.iter().fold(0.0, |sum, part| sum + part["score"].as_f64().expect("score"));
            assert_eq!((sum as f32).to_bits(), hit.score.to_bits(), "{explained}");
            assert_eq!(explained["score"].as_f64().expect("score") as f32, hit.score);
        }
    }
}

#[test]
fn a_passed_deadline_or_a_cancel_claims_nothing() {
    let rows = testing::rows(&Dice::seeded(3), 500, 20);
    let view = testing::shard(&rows, 2);
    let statistics = random::statistics(&Dice::seeded(4), &rows, 20, 1.0);
    let expired = Stop::new(Deadline::after(Duration::ZERO), AtomicBool::new(false).into());
    let far = Deadline::after(Duration::from_mins(10));
    let cancelled = Stop::new(far, AtomicBool::new(true).into());
    let all = random::node(v1::query::Node::All(v1::MatchAll {}));
    let word = random::term("text", &["w0".into()], 1.0);
    for stop in [expired, cancelled] {
        for query in [&all, &word, &random::must(vec![word.clone(), word.clone()])] {
            for small in [PRUNED, WALKED] {
                let result = search_by(&view, &request(query.clone(), &statistics, 5), 0, &stop, small);
                let reply = &result.reply;
                assert_eq!(
                    (reply.outcome, reply.cut),
                    (v1::Outcome::Answered as i32, v1::Cut::Deadline as i32)
                );
                assert_eq!((reply.documents_searched, result.hits.len()), (0, 0));
                assert!(reply.total_is_lower_bound);
            }
        }
    }
}

/// How long this thread has had a core: what others do on the machine does not count.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call that fills the structure.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(told, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Two common words that never stand together: one step of an engine's phrase scorer would scan all postings.
#[test]
fn a_hopeless_phrase_stops_at_the_deadline() {
    let text = "a x b y ".repeat(40);
    let rows: Vec<Row> = (0..3000).map(|n| Row::of(&format!("{n}"), "text", &text)).collect();
    let view = testing::shard(&rows, 1);
    let statistics = random::statistics(&Dice::seeded(2), &rows, 1, 1.0);
    let form = v1::PhraseTokens { tokens: vec!["a".into(), "b".into()], positions: vec![0, 1] };
    let phrase = v1::PhraseQuery { field: "text".into(), alternatives: vec![form], slop: 0, boost: 1.0 };
    let request = request(random::node(v1::query::Node::Phrase(phrase)), &statistics, 10);
    let begun = worked();
    assert!(run_all(&view, &request, PRUNED).hits.is_empty());
    let whole = worked().saturating_sub(begun);
    let stop = Stop::new(Deadline::after(Duration::from_millis(1)), AtomicBool::new(false).into());
    let begun = worked();
    let result = search(&view, &request, 0, &stop);
    let took = worked().saturating_sub(begun);
    assert_eq!(result.reply.cut, v1::Cut::Deadline as i32);
    assert!(result.reply.documents_searched < view.documents());
    assert!(took < whole / 2, "{took:?}, the whole takes {whole:?}");
}

/// What was considered before the stop is exactly what the hits come from.
#[test]
fn a_stopped_search_answers_for_a_prefix_of_the_documents() {
    let dice = Dice::seeded(31);
    let rows = testing::rows(&dice, 3000, 60);
    let view = testing::shard(&rows, 2);
    let rows = testing::in_order(&view, &rows);
    let statistics = random::statistics(&dice, &rows, 60, 1.0);
    let mut partial = 0;
    for round in 0..200_u32 {
        let query = random::any(&dice, 60, 2);
        let request = request(query.clone(), &statistics, 10);
        let stop = Stop::new(
            Deadline::after(Duration::from_micros(u64::from(round) * 20)),
            AtomicBool::new(false).into(),
        );
        let result = search_by(&view, &request, 0, &stop, WALKED);
        let searched = result.reply.documents_searched as usize;
        partial += usize::from(searched > 0 && searched < rows.len());
        let oracle = Oracle::new(&rows[..searched], &statistics, 0.0);
        let expected = oracle.answer(&request, &BTreeSet::new());
        assert_eq!(
            seen(&result),
            expected.hits.iter().map(|hit| (hit.0, hit.1)).collect::<Vec<_>>(),
            "{query:?}"
        );
        assert_eq!(result.reply.cut == v1::Cut::Deadline as i32, searched < rows.len());
    }
    assert!(partial > 0, "no search was stopped on its way");
}

#[test]
fn bad_input_names_the_field() {
    let rows = testing::rows(&Dice::seeded(3), 10, 5);
    let view = testing::shard(&rows, 1);
    let statistics = random::statistics(&Dice::seeded(4), &rows, 5, 1.0);
    let word = |field: &str| random::term(field, &["w0".into()], 1.0);
    let good = request(word("text"), &statistics, 5);
    let with = |change: &dyn Fn(&mut v1::SearchRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let keyword = |field: &str, kind| {
        let values = vec![random::value(kind)];
        random::node(v1::query::Node::Keyword(v1::KeywordQuery { field: field.into(), values }))
    };
    use v1::value::Kind::{F64, I64, Text};
    let cases = [
        ("nowhere", with(&|r| r.query = Some(word("nowhere")))),
        ("host", with(&|r| r.query = Some(word("host")))),
        ("body", with(&|r| r.query = Some(word("body")))),
        ("boost", with(&|r| r.query = Some(random::term("text", &[], -1.0)))),
        ("boost", with(&|r| r.query = Some(random::term("text", &[], f32::NAN)))),
        ("price", with(&|r| r.query = Some(keyword("price", Text("cheap".into()))))),
        ("ratio", with(&|r| r.query = Some(keyword("ratio", F64(f64::NAN))))),
        ("published", with(&|r| r.query = Some(keyword("published", I64(3))))),
        ("attributes", with(&|r| r.query = Some(keyword("attributes", I64(3))))),
        ("title", with(&|r| r.query = Some(keyword("title", I64(3))))),
        ("static_rank", with(&|r| r.query = Some(keyword("static_rank", F64(0.5))))),
        ("title", with(&|r| r.sort = vec![v1::SortBy { field: "title".into(), descending: true }])),
        ("ratio", with(&|r| r.facets = vec![v1::FacetBy { field: "ratio".into(), ..Default::default() }])),
        ("price", with(&|r| r.collapse = "price".into())),
        ("k", with(&|r| r.shards[0].k = 11_001)),
        (
            "stages.prior_weight",
            with(&|r| r.stages = Some(v1::Stages { prior_weight: -1.0, ..Default::default() })),
        ),
        (
            "after",
            with(&|r| {
                r.shards[0].after = Some(v1::After { sort: vec![Default::default()], ..Default::default() });
            }),
        ),
        ("query", with(&|r| r.query = None)),
        ("query", with(&|r| r.query = Some(v1::Query { node: None }))),
        ("statistics", with(&|r| r.statistics = Some(v1::Statistics::default()))),
        ("statistics", with(&|r| r.statistics = None)),
    ];
    for (field, request) in cases {
        let failure = search(&view, &request, 0, &Stop::never()).failure.expect(field);
        assert_eq!(
            (failure.class, failure.field.as_deref()),
            (ErrorClass::InvalidArgument, Some(field)),
            "{failure}"
        );
    }
    let mut deep = word("text");
    for _ in 0..70 {
        deep = random::must(vec![deep, word("title")]);
    }
    let failure = search(&view, &request(deep, &statistics, 5), 0, &Stop::never()).failure.expect("too deep");
    assert_eq!(failure.limit, Some(validate::MAX_DEPTH as u64));
}

/// Facets of many values: the list is the top of the counts, and the bound tells how large an omitted one can be.
#[test]
fn omitted_facet_values_are_bounded() {
    let rows: Vec<Row> = (0..4000_u32)
        .map(|n| {
            let mut row = Row::of(&format!("{n}"), "text", "word");
            row.words.insert("host", vec![format!("h{}", (f64::from(n).sqrt() * 30.0) as u32)]);
            row
        })
        .collect();
    let statistics = random::statistics(&Dice::seeded(4), &rows, 1, 1.0);
    let view = testing::shard(&rows, 1);
    let all = random::node(v1::query::Node::All(v1::MatchAll {}));
    let mut request = request(all, &statistics, 0);
    let facet = |exact| v1::FacetBy { field: "host".into(), size: 3, exact };
    request.facets = vec![facet(false), facet(true)];
    let reply = run_all(&view, &request, PRUNED).reply;
    let [top, exact] = reply.facets.as_slice() else { panic!("two facets") };
    assert_eq!((top.values.len(), exact.omitted_max), (1000, 0));
    assert_eq!(exact.counts.iter().sum::<u64>(), 4000);
    assert!(exact.values.len() > 1000);
    assert_eq!(top.values[..], exact.values[..1000]);
    assert_eq!(top.omitted_max, exact.counts[1000]);
    assert!(top.counts.is_sorted_by(|a, b| a >= b));
}

/// A union of hundreds of words is walked, not handed to the engine, and too many are refused by name.
#[test]
fn a_thousand_words_are_a_flat_union_and_five_thousand_are_refused() {
    let dice = Dice::seeded(41);
    let rows = testing::rows(&dice, 400, 1500);
    let view = testing::shard(&rows, 2);
    let statistics = random::statistics(&dice, &rows, 1500, 1.0);
    let words = |count: u64| {
        random::should((0..count).map(|n| random::term("text", &[testing::word(n)], 0.0)).collect())
    };
    let many = request(words(1024), &statistics, 20);
    let oracle = Oracle::new(&rows, &statistics, 0.0);
    let expected = oracle.answer(&many, &BTreeSet::new());
    check(&run_all(&view, &many, PRUNED), &many, &expected);
    let failure = search(&view, &request(words(5000), &statistics, 20), 0, &Stop::never()).failure;
    assert_eq!(failure.and_then(|failure| failure.limit), Some(validate::MAX_NODES as u64));
}

/// Documents that consist of one word many times: their stored length is rounded down, which is where the engine's
/// ceiling of a term is too low; and words nearly everywhere, where its idf has no digits left.
#[test]
fn one_word_documents_and_words_everywhere_are_not_missed() {
    let dice = Dice::seeded(43);
    let repeated = |n: u64| format!("{} ", testing::word(n % 3)).repeat(1 + dice.below(90) as usize);
    let mut rows: Vec<Row> =
        (0..3000_u64).map(|n| Row::of(&format!("short {n}"), "title", &testing::word(n % 4))).collect();
    rows.extend((0..500_u64).map(|n| Row::of(&format!("long {n}"), "title", &repeated(n))));
    let view = testing::shard(&rows, 1);
    let mut statistics = random::statistics(&dice, &rows, 8, 1.0);
    for everywhere in [false, true] {
        if everywhere {
            statistics.documents = 100_000_000;
            statistics.fields.iter_mut().for_each(|field| field.tokens = 600_000_000);
            statistics.terms.iter_mut().for_each(|term| term.documents = 99_999_990 + dice.below(10));
        }
        for round in 0..60 {
            let words: Vec<v1::Query> = (0..=round % 3)
                .map(|_| random::term("title", &[testing::word(dice.below(4))], 0.0))
                .collect();
            let query = if round % 2 == 0 { random::should(words) } else { random::must(words) };
            let request = request(query, &statistics, 1 + round);
            let walked = seen(&run_all(&view, &request, WALKED));
            assert_eq!(seen(&run_all(&view, &request, PRUNED)), walked, "{:?}", request.query);
        }
    }
}
