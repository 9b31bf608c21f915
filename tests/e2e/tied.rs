//! Tied requests from client to leaf: the root sends both copies, real leaves settle between themselves over sockets who
//! searches, and no answer lacks anything.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_leaf::fault::FaultConfig;
use canopy_tests::{
    api::path,
    cluster::{Cluster, Shape},
    wait::wait_for,
};
use futures::{StreamExt, stream};

use crate::world::{corpus_of, with_world};

const PATIENCE: Duration = Duration::from_mins(1);

async fn sum(cluster: &Cluster, name: &str) -> f64 {
    cluster.admin("leaf-0").metric(name).await + cluster.admin("leaf-1").metric(name).await
}

fn tied(event: &str) -> String {
    format!("canopy_leaf_tied_total{{event=\"{event}\"}}")
}

#[test]
fn a_tied_branch_is_searched_by_the_leaf_that_begins_first() {
    with_world(|world| async {
        let name = corpus_of(1);
        let mut config = Shape::flat(2, 2).config(&[(&name, 1), (&corpus_of(2), 2)]);
        config.root.operator_parameters = true;
        // The probe asks queries of its own; one is enough here.
        config.root.probe_interval = Time::ms(60_000);
        config.leaf.threads = 1;
        // The crowd waits in line at both leaves, on a loaded machine for long.
        config.leaf.shed_after = Time::ms(30_000);
        config.leaf.allow_faults = true;
        config.leaf.fault = FaultConfig { delay: Time::ms(100), ..FaultConfig::default() };
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        let parameters = [("q", "canopy"), ("timeout_ms", "30000"), ("hedge", "tied"), ("snippet", "false")];
        let asked = path(&name, &parameters);
        // The root has to learn how long a search takes before it ties any.
        wait_for("a tie", PATIENCE, || async {
            let crowd = stream::iter((0..4).map(|_| cluster.root().get(&asked))).buffer_unordered(4);
            crowd.for_each(async |answer| answer.ok().adds_up()).await;
            (sum(&cluster, &tied("claimed")).await > 0.0).then_some(())
        })
        .await;
        let (before, lost) = (sum(&cluster, "canopy_leaf_service_seconds_count").await, async || {
            sum(&cluster, &tied("dropped")).await + sum(&cluster, &tied("stopped")).await
        });
        let (lost_before, dropped_before) = (lost().await, sum(&cluster, &tied("dropped")).await);
        let crowd: Vec<_> =
            stream::iter((0..12).map(|_| cluster.root().get(&asked))).buffer_unordered(12).collect().await;
        for answer in crowd {
            let answer = answer.ok();
            answer.adds_up();
            assert!(answer.degraded().is_empty(), "{}", answer.json);
        }
        wait_for("a copy that gave way", PATIENCE, || async { (lost().await > lost_before).then_some(()) })
            .await;
        let run = sum(&cluster, "canopy_leaf_service_seconds_count").await - before;
        let dropped = sum(&cluster, &tied("dropped")).await - dropped_before;
        assert!(run >= 12.0 && run + dropped <= 24.0, "{run} searches for 12 queries with two copies each");
        // On a loaded machine a twin may be told too late.
        let (untold, claimed) =
            (sum(&cluster, "canopy_leaf_tied_untold_total").await, sum(&cluster, &tied("claimed")).await);
        assert!(untold <= claimed / 2.0, "{untold} of {claimed}");
        cluster.stop().await;
    });
}
