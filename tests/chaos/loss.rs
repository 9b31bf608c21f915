//! A replica dies, comes back, and another leaves on request, under load: no query notices.

use std::time::Duration;

use canopy_tests::{
    api::Answered,
    cluster::Shape,
    process::{Fleet, Signal},
};

use crate::{
    load::{Load, pass},
    stage::{self, SHARDS},
};

const ASKED: [(&str, &str); 4] =
    [("q", "river garden"), ("k", "10"), ("timeout_ms", "10000"), ("completion", "all")];

fn judge(what: &str, answers: Vec<Option<Answered>>, whole: &Answered) {
    let (mut retries, count) = (0, answers.len());
    for answered in answers {
        let answered = answered.unwrap_or_else(|| panic!("{what}: a connection to the root failed")).ok();
        answered.adds_up();
        assert_eq!(answered.degraded(), [""; 0], "{what}: {}", answered.json);
        assert_eq!(answered.places(), whole.places(), "{what}");
        retries += answered.json["tail"]["retries"].as_u64().unwrap_or(0);
    }
    println!("{what}: {count} queries, 0 failed, {retries} retries");
    assert!(count >= 20, "{what}: only {count} queries");
}

#[test]
fn a_killed_and_a_leaving_replica_cost_no_query() {
    stage::run(|stage| async move {
        let mut fleet =
            Fleet::start(&stage.store(), &Shape::two_levels(4, 2), &[("web", SHARDS)], |_| ()).await;
        let root = fleet.root();
        let whole = root.search("web", &ASKED).await.ok();
        let start = || Load::start(root.clone(), Duration::from_millis(15), &ASKED);

        let load = start();
        pass(Duration::from_millis(400)).await;
        fleet.signal("leaf-1", Signal::Kill);
        pass(Duration::from_millis(800)).await;
        judge("a leaf killed", load.finish().await, &whole);
        fleet.ended("leaf-1").await;

        let load = start();
        fleet.spawn("leaf-1", &[]);
        fleet.wait_ready("leaf-1").await;
        pass(Duration::from_millis(400)).await;
        judge("the leaf started again", load.finish().await, &whole);

        let load = start();
        pass(Duration::from_millis(300)).await;
        fleet.signal("leaf-2", Signal::Terminate);
        let left = fleet.ended("leaf-2").await;
        pass(Duration::from_millis(300)).await;
        judge("a leaf asked to leave", load.finish().await, &whole);
        assert!(left.success(), "{left:?}: {}", fleet.log("leaf-2"));

        let load = start();
        pass(Duration::from_millis(300)).await;
        fleet.signal("aggregator-0", Signal::Kill);
        pass(Duration::from_millis(600)).await;
        judge("an aggregator killed", load.finish().await, &whole);
    });
}
