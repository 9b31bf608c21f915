//! Tests of `layout`: what its module comment promises.

use proptest::prelude::*;

use super::*;

fn moved(before: &Layout, after: &Layout) -> usize {
    before.table.iter().zip(&after.table).filter(|(before, after)| before != after).count()
}

fn assert_balanced(layout: &Layout) {
    layout.check().unwrap();
    let slots = layout.slots();
    let (min, max) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
    assert!(max - min <= 1, "{} shards: {min} to {max} slots", layout.shards);
    assert_eq!(slots.iter().sum::<u32>(), u32::from(SLOTS));
}

/// Fewest moves that reach floor/ceil: every slot above its shard's best target must go.
fn fewest(before: &Layout, shards: u32) -> usize {
    let mut counts = before.slots();
    counts.resize(shards as usize, 0);
    counts.sort_by_key(|count| std::cmp::Reverse(*count));
    let (floor, more) = (u32::from(SLOTS) / shards, u32::from(SLOTS) % shards);
    let kept: u32 =
        counts.iter().enumerate().map(|(i, count)| (*count).min(floor + u32::from((i as u32) < more))).sum();
    usize::from(SLOTS) - kept as usize
}

#[test]
fn slots_and_first_tables_are_pinned_for_ever() {
    assert_eq!(["", "a", "https://example.org/", "https://example.org/é"].map(slot), [1218, 3615, 2889, 151]);
    let digest = |shards| {
        let table: Vec<u8> = Layout::first("main", shards)
            .unwrap()
            .table
            .iter()
            .flat_map(|shard| shard.to_le_bytes())
            .collect();
        format!("{:016x}", xxh3_64(&table))
    };
    assert_eq!(
        [1, 4, 200, 1024].map(digest),
        ["620797930ab0991a", "6768a5e48f4b4b9d", "81ac34affdd54fe4", "53c8d3836c7c6004"].map(str::to_owned)
    );
}

#[test]
fn growth_by_a_quarter_moves_a_fifth() {
    let before = Layout::first("main", 200).unwrap();
    let after = before.resize(250).unwrap();
    assert_balanced(&before);
    assert_balanced(&after);
    let share = moved(&before, &after) as f64 / f64::from(SLOTS);
    assert!(share <= 0.201, "{share}");
    let back = after.resize(200).unwrap();
    assert_balanced(&back);
    assert!(moved(&after, &back) as f64 / f64::from(SLOTS) <= 0.201);
}

/// Two hundred steps up and down, none of them chosen: each moves its share, to one slot in a hundred, and balance is never lost.
/// A shard gets whole slots, so a step of n shards can be off by n slots: the steps are at most 40 shards of 1024.
#[test]
fn two_hundred_random_steps_move_their_share_and_stay_balanced() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut layout = Layout::first("main", 64).unwrap();
    let (mut grown, mut shrunk) = (0, 0);
    for step in 0..200 {
        let by = 1 + draw(40) as u32;
        let up = layout.shards == 1 || (draw(2) == 0 && layout.shards + by <= MAX_SHARDS);
        let shards = if up { layout.shards + by } else { layout.shards.saturating_sub(by).max(1) };
        let next = layout.resize(shards).unwrap();
        assert_balanced(&next);
        let most = layout.shards.max(shards);
        let ideal = f64::from(layout.shards.abs_diff(shards)) / f64::from(most);
        let share = moved(&layout, &next) as f64 / f64::from(SLOTS);
        assert!(
            (share - ideal).abs() <= 0.01,
            "step {step}, {} to {shards}: {share} moved, {ideal} is ideal",
            layout.shards
        );
        *(if up { &mut grown } else { &mut shrunk }) += 1;
        layout = next;
    }
    assert!(grown > 50 && shrunk > 50, "{grown} {shrunk}");
}

#[test]
fn every_power_of_two_is_balanced() {
    for shards in (0..=10).map(|power| 1 << power) {
        assert_balanced(&Layout::first("main", shards).unwrap());
    }
}

#[test]
fn the_ring_moves_few_slots_to_balance() {
    let ring = Ring::new(64);
    let layout = Layout::first("main", 64).unwrap();
    let off = (0..SLOTS).filter(|slot| ring.nearest(*slot) != layout.table[usize::from(*slot)]).count();
    assert!(off < usize::from(SLOTS) / 5, "{off}");
}

#[test]
fn keys_go_where_the_table_says() {
    let layout = Layout::first("main", 7).unwrap();
    let mut documents = [0_u32; 7];
    for i in 0..70_000 {
        let key = format!("https://example.org/{i}");
        let (shard, hash) = layout.of(&key);
        assert_eq!(u32::from(layout.table[usize::from(slot(&key))]), shard.number);
        assert_eq!(hash, KeyHash::of(&key));
        documents[shard.number as usize] += 1;
    }
    assert!(documents.iter().all(|count| (9_000..11_000).contains(count)), "{documents:?}");
}

#[test]
fn bad_layouts_are_refused() {
    for shards in [0, 1025, u32::MAX] {
        assert!(Layout::first("main", shards).unwrap_err().to_string().contains("1 to 1024"));
        assert!(Layout::first("main", 3).unwrap().resize(shards).is_err());
    }
    assert!(Layout::first("Main Group", 3).is_err());
    let good = Layout::first("main", 3).unwrap();
    let broken = |change: fn(&mut Layout)| {
        let mut layout = good.clone();
        change(&mut layout);
        assert!(layout.resize(4).is_err());
        layout.check().unwrap_err().to_string()
    };
    assert!(broken(|layout| layout.table.truncate(4095)).contains("4095 slots"));
    assert!(broken(|layout| layout.table[7] = 3).contains("names shard 3 of 3"));
    assert!(
        broken(|layout| layout.table.iter_mut().for_each(|shard| *shard %= 2)).contains("shard 2 no slot")
    );
    assert!(broken(|layout| layout.group = "../x".into()).contains("group"));
    assert!(broken(|layout| layout.shards = 0).contains("1 to 1024"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn any_chain_of_sizes_stays_balanced_and_moves_the_fewest(
        sizes in proptest::collection::vec(1_u32..=1024, 2..=3)
    ) {
        let mut layout = Layout::first("main", sizes[0]).unwrap();
        assert_balanced(&layout);
        for shards in &sizes[1..] {
            let next = layout.resize(*shards).unwrap();
            assert_balanced(&next);
            prop_assert_eq!(moved(&layout, &next), fewest(&layout, *shards));
            prop_assert_eq!(&next, &layout.resize(*shards).unwrap());
            layout = next;
        }
    }
}
