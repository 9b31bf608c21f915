//! The chart of `lab fleet`: the same documents and queries cut into fewer and into more shards. Few shards are slow because
//! each is large, many because the slowest of many decides; between them is a best number, and leaves cost what they cost.

use canopy_topology::fleet::{Demand, Fleet, plan};

use crate::{
    chart::{self, Panel, Series},
    error::Result,
};

/// Documents of a shard, over those that are asked for: from so many times as many to so many times fewer.
const REACH: f64 = 16.0;
/// Points on either side.
const POINTS: i32 = 8;

/// Plans of the same demand with other sizes of a shard, by number of shards.
fn plans(demand: &Demand) -> Vec<Fleet> {
    let sized = |at: i32| {
        let times = REACH.powf(f64::from(at) / f64::from(POINTS));
        let documents_per_shard = ((demand.documents_per_shard as f64 * times) as u64).max(1);
        plan(&Demand { documents_per_shard, ..demand.clone() }).ok()
    };
    let mut plans: Vec<Fleet> = (-POINTS..=POINTS).filter_map(sized).collect();
    plans.sort_by_key(|fleet| fleet.shards);
    plans.dedup_by_key(|fleet| fleet.shards);
    plans
}

/// The SVG.
pub fn svg(demand: &Demand) -> Result<String> {
    let plans = plans(demand);
    let line = |name: &str, colour, value: fn(&Fleet) -> f64| {
        let points = plans.iter().map(|fleet| (fleet.shards as f64, value(fleet))).collect();
        Series { name: name.to_owned(), points, colour, thin: false }
    };
    let panel = |title: String, y: &str, series| Panel {
        title,
        x: "shards".to_owned(),
        y: y.to_owned(),
        ratio_y: true,
        ratio_x: true,
        series,
    };
    let times = vec![
        line("asked once", 0, |fleet| fleet.unhedged_ms),
        line("with a hedge at the leaf's p95", 1, |fleet| fleet.hedged_ms),
        line("mean of a leaf", 2, |fleet| fleet.leaf_mean_ms),
    ];
    let leaves = vec![line("", 0, |fleet| fleet.leaves as f64)];
    let quantile = (demand.quantile * 1e7).round() / 1e5;
    chart::svg(&[vec![
        panel(format!("p{quantile} of the root"), "ms", times),
        panel("leaves, at the same rate of a replica".to_owned(), "leaves", leaves),
    ]])
}

#[cfg(test)]
mod tests {
    use canopy_topology::fleet::LeafLatency;

    use super::*;

    #[test]
    fn fewer_and_more_shards_are_planned_around_the_one_that_is_asked_for() {
        let leaf =
            LeafLatency { base_ms: 2.0, ms_per_million: 0.15, sigma: 0.5, hiccups: 0.005, hiccup_ms: 200.0 };
        let demand = Demand {
            documents: 8_000_000_000,
            documents_per_shard: 40_000_000,
            queries_per_second: 150_000.0,
            queries_per_replica: 2_500.0,
            headroom: 0.3,
            fan_out: 60,
            leaf,
            quantile: 0.99,
        };
        let shards: Vec<u64> = plans(&demand).iter().map(|fleet| fleet.shards).collect();
        assert!(shards.is_sorted() && shards.contains(&200), "{shards:?}");
        assert!(shards.first() < Some(&15) && shards.last() > Some(&3_000), "{shards:?}");
        assert!(svg(&demand).unwrap().contains("p99 of the root"));
        // One document can't be cut.
        assert_eq!(plans(&Demand { documents: 1, ..demand }).len(), 1);
    }
}
