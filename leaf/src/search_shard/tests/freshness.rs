//! What each freshness sees, what offsets are reached, and words that only the overlay has.

use super::*;
use crate::testing::overlay::{At, Change, changes, overlaid};

fn keys(result: &ShardResult) -> BTreeSet<u128> {
    seen(result).into_iter().map(|hit| hit.0).collect()
}

#[test]
fn indexed_skips_what_is_not_optimised_and_what_was_replaced_shows_under_none() {
    let seed = 131;
    println!("seed {seed}");
    let dice = Dice::seeded(seed);
    let rows = testing::rows(&dice, 400, 60);
    let base = testing::shard(&rows, 2);
    let history = changes(&dice, rows.len(), 200, 60);
    let mut overlaid = overlaid(&base, &rows, &history, 4);
    let mut overlay = crate::view::Overlay::clone(&overlaid.view.overlay);
    for (at, part) in overlay.parts.iter_mut().enumerate() {
        part.optimised = at < 2;
    }
    overlaid.view.overlay = overlay.into();
    let statistics = random::statistics(&dice, &rows, 60, 1.0);
    let all = random::node(v1::query::Node::All(v1::MatchAll {}));
    let word = random::term("text", &[testing::word(0)], 1.0);
    for query in [all, word] {
        for freshness in [v1::Freshness::Realtime, v1::Freshness::Indexed, v1::Freshness::Base] {
            let mut request = request(query.clone(), &statistics, 2000);
            request.freshness = freshness as i32;
            request.total = v1::TotalMode::TotalExact as i32;
            let oracle = Oracle::new(&overlaid.rows, &statistics, 0.0);
            let sees = |at: At| match (at, freshness) {
                (At::Base, _) | (_, v1::Freshness::Realtime) => true,
                (At::Part(part), v1::Freshness::Indexed) => part < 2,
                (At::Part(_), v1::Freshness::Base) => false,
            };
            let places = overlaid.at.iter().enumerate();
            let hidden: BTreeSet<usize> =
                places.filter(|(_, at)| !sees(**at)).map(|(place, _)| place).collect();
            let expected = oracle.answer(&request, &hidden);
            for small in [PRUNED, WALKED] {
                let result = run_all(&overlaid.view, &request, small);
                check(&result, &request, &expected);
                let newer = overlaid.at.iter().filter(|at| **at != At::Base && sees(**at)).count();
                assert_eq!(result.reply.documents_overlay, newer as u64);
            }
        }
    }
}

#[test]
fn a_key_is_found_where_its_newest_document_is() {
    let rows = [Row::of("a", "text", "old"), Row::of("b", "text", "old"), Row::of("c", "text", "old")];
    let base = testing::shard(&rows, 1);
    let history = [
        Change::Put(Row::of("a", "text", "newer")),
        Change::Put(Row::of("d", "text", "newer")),
        Change::Put(Row::of("a", "text", "newest")),
        Change::Delete("b".into()),
        Change::Delete("d".into()),
    ];
    for parts in [1, 2, 5] {
        let view = overlaid(&base, &rows, &history, parts).view;
        let find = |key: &str| view.find(KeyHash::of(key)).expect("find");
        let newest = find("a").expect("a");
        assert!(view.is_overlay(newest) && !view.hides(newest));
        assert_eq!(view.key_at(newest), Some(KeyHash::of("a")));
        assert_eq!((find("b"), find("d"), find("nothing")), (None, None, None));
        assert!(!view.is_overlay(find("c").expect("c")));
        let out = ShardView::pack(base.base.segments.len() as u32 + 9, 0);
        assert_eq!(view.unpack(out), None, "no such segment");
    }
}

/// A prefix finds words that came with the overlay; a word that the statistics do not know counts as in one document.
#[test]
fn words_that_only_the_overlay_has_are_found() {
    let rows = [Row::of("a", "text", "asynchronous call"), Row::of("b", "text", "call")];
    let base = testing::shard(&rows, 1);
    let statistics = random::statistics(&Dice::seeded(1), &rows, 1, 1.0);
    let history = [
        Change::Put(Row::of("n", "text", "asynchron call")),
        Change::Put(Row::of("o", "text", "zebra")),
        Change::Put(Row::of("p", "text", "asynx asyny")),
        Change::Delete("p".into()),
    ];
    let hash = |key: &str| KeyHash::of(key).0;
    for parts in [1, 2, 3] {
        let view = overlaid(&base, &rows, &history, parts).view;
        for (tokens, prefix, expected) in [
            (vec!["asynchronous"], "asyn*", vec!["a", "n"]),
            (vec!["asynchronous"], "Asyn*", vec!["a", "n"]),
            (vec!["asynchronous"], "as?n*", vec!["a"]),
            (vec!["asynchronous"], "asyn", vec!["a"]),
            (vec![], "zeb*", vec!["o"]),
        ] {
            let expanded = v1::ExpandedQuery {
                field: "text".into(),
                tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
                prefix: prefix.into(),
                ..Default::default()
            };
            let query = random::node(v1::query::Node::Expanded(expanded));
            let result = run_all(&view, &request(query, &statistics, 10), PRUNED);
            assert_eq!(keys(&result), expected.into_iter().map(hash).collect(), "{prefix}");
        }
        let word = random::term("text", &["zebra".to_owned()], 1.0);
        for small in [PRUNED, WALKED] {
            let result = run_all(&view, &request(word.clone(), &statistics, 10), small);
            assert_eq!(keys(&result), [hash("o")].into());
            assert!(result.hits.iter().all(|hit| hit.overlay && hit.score > 0.0));
        }
    }
}

#[test]
fn a_shard_says_whether_it_reached_what_is_wanted() {
    let rows = [Row::of("a", "text", "word")];
    let base = testing::shard(&rows, 1);
    let statistics = random::statistics(&Dice::seeded(1), &rows, 1, 1.0);
    let view = overlaid(&base, &rows, &[Change::Put(Row::of("b", "text", "word"))], 1).view;
    let word = random::term("text", &["word".to_owned()], 1.0);
    let stale = |view: &ShardView, wanted: &[(u32, u64)]| {
        let mut request = request(word.clone(), &statistics, 10);
        let wanted = wanted.iter();
        request.wanted_offsets =
            wanted.map(|&(partition, offset)| v1::PartitionOffset { partition, offset }).collect();
        let reply = run_all(view, &request, SMALL).reply;
        (reply.stale, reply.offsets.iter().map(|at| (at.partition, at.offset)).collect::<Vec<_>>())
    };
    assert_eq!(stale(&view, &[]), (false, vec![(0, 1)]));
    assert_eq!(stale(&view, &[(0, 1)]), (false, vec![(0, 1)]));
    assert_eq!(stale(&view, &[(0, 2)]), (true, vec![(0, 1)]));
    assert_eq!(stale(&view, &[(1, 1)]), (false, vec![(0, 1)]), "a partition that the shard has no slot in");
    assert_eq!(stale(&base, &[(0, 1)]), (true, vec![]));
    view.lag.set_stale(true);
    assert!(stale(&view, &[]).0);
}
