//! A search that is cancelled stops within its bound, counted in steps, wherever the cancel meets it. Wall time would
//! say more of the machine than of the code.

use std::sync::atomic::Ordering;

use super::*;

/// Steps that the loops of one query may still ask for, all together, after the first of them was told to stop: each
/// clause once or twice on the way out.
const ON_THE_WAY_OUT: u32 = 64;

#[test]
fn a_cancelled_search_stops_within_its_bound_wherever_it_is() {
    let dice = Dice::seeded(29);
    let rows = testing::rows(&dice, 2500, VOCABULARY);
    let view = testing::shard(&rows, 2);
    let rows = testing::in_order(&view, &rows);
    let statistics = random::statistics(&dice, &rows, VOCABULARY, 1.0);
    let (mut stopped, mut most) = (0, 0);
    for round in 0..60 {
        let query =
            if round % 3 == 0 { random::flat(&dice, VOCABULARY) } else { random::any(&dice, VOCABULARY, 2) };
        let mut request = request(query, &statistics, 10);
        request.total = total(&dice);
        for small in [PRUNED, WALKED] {
            let (stop, all) = Stop::counted(u32::MAX);
            search_by(&view, &request, 0, &stop, small);
            let looks = all.looks.load(Ordering::Relaxed);
            // Every one of the first looks, then samples.
            let cancels = (1..=looks.min(8)).chain((0..6).map(|_| 1 + dice.below(u64::from(looks)) as u32));
            for at in cancels.filter(|at| *at <= looks) {
                let (stop, counted) = Stop::counted(at);
                let result = search_by(&view, &request, 0, &stop, small);
                let after = counted.after.load(Ordering::Relaxed);
                assert!(after <= ON_THE_WAY_OUT, "{after} steps after look {at} of {looks}: {request:?}");
                assert_eq!(result.failure, None);
                assert!(result.reply.documents_searched <= view.documents());
                stopped += u32::from(result.reply.cut != v1::Cut::None as i32);
                most = most.max(after);
            }
        }
    }
    assert!(stopped > 300, "{stopped} searches were cut; at most {most} steps after");
}
