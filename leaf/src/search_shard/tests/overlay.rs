//! A view with tombstones and an overlay equals a base that was built of the final documents, and the oracle: hits,
//! scores to the bit, orders, totals, facets; in however many parts the changes came.

use super::*;
use crate::testing::overlay::{At, Change, Overlaid, changes, overlaid};

/// Everything that may not depend on where documents are.
fn same(a: &ShardResult, b: &ShardResult) {
    let shown = |result: &ShardResult| {
        let hits = result.hits.iter();
        let hits = hits.map(|hit| v1::Hit { address: 0, overlay: false, ..hit.clone() });
        (seen(result), hits.collect::<Vec<_>>(), result.reply.facets.clone())
    };
    assert_eq!(shown(a), shown(b));
}

fn accounts(result: &ShardResult, overlaid: &Overlaid) {
    let newer = overlaid.rows.iter().zip(&overlaid.at).filter(|(_, at)| **at != At::Base);
    let newer: BTreeSet<u128> = newer.map(|(row, _)| row.hash().0).collect();
    assert_eq!(result.reply.documents_overlay, newer.len() as u64);
    assert_eq!(overlaid.view.overlay.documents, newer.len() as u64);
    for hit in &result.hits {
        let key = KeyHash::from_parts(hit.key_high, hit.key_low);
        assert_eq!(hit.overlay, newer.contains(&key.0));
        let address = overlaid.view.unpack(hit.address).expect("address");
        assert_eq!(overlaid.view.find(key).expect("find"), Some(address), "one hit per key: the newest");
        assert!(!overlaid.view.hides(address));
    }
}

#[test]
fn flat_queries_over_an_overlay_equal_a_rebuilt_base_on_both_paths() {
    for seed in [101, 102, 103] {
        println!("seed {seed}");
        let dice = Dice::seeded(seed);
        let rows = testing::rows(&dice, 2500, VOCABULARY);
        let base = testing::shard(&rows, 1 + seed as usize % 2);
        let history = changes(&dice, rows.len(), [40, 300, 1500][seed as usize % 3], VOCABULARY);
        let views = [1, 3, 7].map(|parts| overlaid(&base, &rows, &history, parts));
        let rebuilt = testing::shard(&views[0].rows, 1);
        for round in 0..100 {
            let stretch = [1.0, 0.55, 0.8, 1.3, 1.9][round % 5];
            let statistics = random::statistics(&dice, &rows, VOCABULARY, stretch);
            let k = [1, 3, 10, 10, 100][dice.below(5) as usize];
            let mut request = request(random::flat(&dice, VOCABULARY), &statistics, k);
            request.total = total(&dice);
            let prior_weight = [0.0, 0.0, 0.7, 5.0][dice.below(4) as usize];
            request.stages = Some(v1::Stages { prior_weight, ..Default::default() });
            let oracle = Oracle::new(&views[0].rows, &statistics, prior_weight);
            let expected = oracle.answer(&request, &BTreeSet::new());
            let built = run_all(&rebuilt, &request, WALKED);
            check(&built, &request, &expected);
            for overlaid in &views {
                for small in [WALKED, PRUNED, SMALL] {
                    let result = run_all(&overlaid.view, &request, small);
                    check(&result, &request, &expected);
                    same(&result, &built);
                    accounts(&result, overlaid);
                }
            }
        }
    }
}

#[test]
fn every_shape_over_an_overlay_equals_a_rebuilt_base() {
    for seed in [111, 112] {
        println!("seed {seed}");
        let dice = Dice::seeded(seed);
        let rows = testing::rows(&dice, 600, 60);
        let base = testing::shard(&rows, 1 + seed as usize % 2 * 2);
        let history = changes(&dice, rows.len(), 350, 60);
        let views = [1, 3, 7].map(|parts| overlaid(&base, &rows, &history, parts));
        let rebuilt = testing::shard(&views[0].rows, 1);
        let statistics = random::statistics(&dice, &rows, 60, 1.1);
        let oracle = Oracle::new(&views[0].rows, &statistics, 0.3);
        for _ in 0..300 {
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
                let whole = v1::SearchRequest { shards: whole(), ..request.clone() };
                request.shards[0].after = cursor(&dice, &run_all(&rebuilt, &whole, PRUNED), &request);
            }
            let mut expected = oracle.answer(&request, &BTreeSet::new());
            if request.shards[0].k == 0 {
                expected.hits.clear();
            }
            let built = run_all(&rebuilt, &request, PRUNED);
            for overlaid in &views {
                let result = run_all(&overlaid.view, &request, PRUNED);
                check(&result, &request, &expected);
                same(&result, &built);
                accounts(&result, overlaid);
            }
        }
    }
}

/// Nearly all documents with a word are hidden: the bounded total must not count them, and the page must not miss those
/// that are left.
#[test]
fn a_word_whose_documents_are_mostly_hidden_is_counted_right() {
    let rows: Vec<Row> = (0..4000).map(|n| Row::of(&format!("{n}"), "text", "common word")).collect();
    let base = testing::shard(&rows, 1);
    let statistics = random::statistics(&Dice::seeded(3), &rows, 1, 1.0);
    let word = |word: &str| random::term("text", &[word.to_owned()], 1.0);
    for left in [0, 5, 999, 1000, 1001, 3000] {
        let tombstones: RoaringBitmap = (left..4000).collect();
        let view = base.with_tombstones(tombstones);
        for query in [word("common"), random::should(vec![word("common"), word("absent")])] {
            for mode in [v1::TotalMode::TotalBounded, v1::TotalMode::TotalExact] {
                let mut request = request(query.clone(), &statistics, 10);
                request.total = mode as i32;
                for small in [PRUNED, WALKED] {
                    let result = run_all(&view, &request, small);
                    check_total(mode, &result.reply, left.into());
                    assert_eq!(result.hits.len(), left.min(10) as usize);
                }
            }
        }
    }
}

/// However a search over an overlay is cut: no base document counts before the whole overlay does, and hits have their
/// whole scores.
#[test]
fn a_cut_search_accounts_for_the_overlay_before_the_base() {
    let seed = 121;
    println!("seed {seed}");
    let dice = Dice::seeded(seed);
    let rows = testing::rows(&dice, 1500, VOCABULARY);
    let base = testing::shard(&rows, 2);
    let history = changes(&dice, rows.len(), 500, VOCABULARY);
    let overlaid = overlaid(&base, &rows, &history, 3);
    let statistics = random::statistics(&dice, &rows, VOCABULARY, 1.0);
    let live = overlaid.view.overlay.documents;
    let mut cut = 0;
    for round in 0..80 {
        let query =
            if round % 2 == 0 { random::flat(&dice, VOCABULARY) } else { random::any(&dice, VOCABULARY, 2) };
        let mut request = request(query, &statistics, 20);
        request.total = total(&dice);
        let whole = v1::SearchRequest { shards: self::whole(), ..request.clone() };
        let mut wide = whole.clone();
        wide.shards[0].k = 3000;
        let all: BTreeSet<(u128, u32)> = seen(&run_all(&overlaid.view, &wide, WALKED)).into_iter().collect();
        for small in [PRUNED, WALKED] {
            for at in [1, 2, 3, 4, 6, 9, 14] {
                let (stop, _) = Stop::counted(at);
                let result = search_by(&overlaid.view, &request, 0, &stop, small);
                assert_eq!(result.failure, None);
                let reply = &result.reply;
                if reply.cut == v1::Cut::Deadline as i32 {
                    cut += 1;
                    assert!(reply.total_is_lower_bound);
                }
                assert!(reply.documents_overlay <= live && reply.documents_searched <= 1500);
                assert!(reply.documents_searched == 0 || reply.documents_overlay == live);
                assert!(seen(&result).iter().all(|hit| all.contains(hit)));
            }
        }
    }
    assert!(cut > 100, "{cut} searches were cut");
}

/// Facets of more values than travel: the list and the bound are those of a rebuilt base, with values that only the
/// overlay has, that only the base has, and that all hidden documents had.
#[test]
fn facets_of_many_values_are_those_of_a_rebuilt_base() {
    let seed = 141;
    println!("seed {seed}");
    let dice = Dice::seeded(seed);
    let page = |n: u64, host: String| {
        let mut row = Row::of(&format!("{n}"), "text", "word");
        row.words.insert("host", vec![host]);
        row
    };
    let rows: Vec<Row> = (0..3000).map(|n| page(n, format!("h{}", n * n / 4000))).collect();
    let history: Vec<Change> = (0..900)
        .map(|_| match dice.below(4) {
            0 => Change::Delete(dice.below(3000).to_string()),
            1 => Change::Put(page(3000 + dice.below(400), format!("new{}", dice.below(300)))),
            _ => Change::Put(page(dice.below(3000), format!("h{}", dice.below(2500)))),
        })
        .collect();
    let base = testing::shard(&rows, 1);
    let statistics = random::statistics(&dice, &rows, 1, 1.0);
    let all = random::node(v1::query::Node::All(v1::MatchAll {}));
    let mut request = request(all, &statistics, 0);
    let facet = |exact| v1::FacetBy { field: "host".into(), size: 3, exact };
    request.facets = vec![facet(false), facet(true)];
    for parts in [1, 3, 7] {
        let overlaid = overlaid(&base, &rows, &history, parts);
        let built = run_all(&testing::shard(&overlaid.rows, 1), &request, PRUNED);
        assert!(built.reply.facets[1].values.len() > 1100 && built.reply.facets[0].omitted_max > 0);
        same(&run_all(&overlaid.view, &request, PRUNED), &built);
    }
}
