//! What a fleet of 20,000 leaves costs the service: reports that say the same, changes that come together, and one change on its
//! way to every watcher. Printed, not judged: machines differ (`--nocapture` shows it). What is judged is that reports are cheap.

use std::sync::Arc;

use futures::{StreamExt, stream};

use super::*;
use crate::{
    routing::{Routing, delta::RoutingDelta},
    service::{
        desired::NodeRecord,
        store::{FileStore, TopologyStore},
        updates::Updates,
    },
};

const SHARDS: usize = 200;
const REPLICAS: usize = 100;
const LEAVES: usize = SHARDS * REPLICAS;

fn leaf(number: usize) -> NodeReport {
    let held = holds(1, &format!("main/{}", number % SHARDS));
    NodeReport {
        address: format!("leaf-{number:05}.example:7101"),
        ..said(
            &format!("leaf-{number:05}"),
            Role::Leaf,
            vec![Held { bytes: 1 << 30, memory: 1 << 29, ..held }],
        )
    }
}

/// A tree of that size in which version 1 serves.
fn fleet(now: Instant) -> Control {
    let id = |number: usize| NodeId::from(format!("leaf-{number:05}").as_str());
    let mut desired = Desired::default();
    for number in 0..LEAVES {
        desired.nodes.insert(id(number), NodeRecord::new(Role::Leaf, &leaf(number).address));
    }
    let placed = (0..SHARDS).map(|shard| {
        let nodes = (0..REPLICAS).map(|row| id(row * SHARDS + shard)).collect();
        (ShardId::new("main", shard as u32), nodes)
    });
    let state = crate::rollout::State { live: Some(Version(1)), ..Default::default() };
    desired.corpora.insert("web".into(), state);
    let mut control = Control::new(desired, EPOCH, now);
    control.apply("web", Event::Placed(placed.collect()));
    let words = (0..LEAVES).map(|number| Word::check(&leaf(number)).unwrap()).collect();
    control.hear_all(words, now);
    control
}

fn time<T>(what: &str, times: u32, mut run: impl FnMut() -> T) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        std::hint::black_box(run());
    }
    let each = began.elapsed() / times;
    println!("{what}: {each:?}");
    each
}

#[test]
fn a_fleet_that_says_the_same_every_second_costs_next_to_nothing() {
    let now = Instant::now();
    let mut control = fleet(now);
    let snapshot = control.snapshot().clone();
    let held: usize =
        snapshot.corpora["web"].versions[&Version(1)].held.values().map(|nodes| nodes.len()).sum();
    assert_eq!(held, LEAVES);
    let reports: Vec<NodeReport> = (0..LEAVES).map(leaf).collect();
    let all = time("20,000 reports that change nothing", 3, || {
        let renew = |report| control.renew(&Word::check(report).unwrap(), now).is_some();
        assert!(reports.iter().all(renew));
    });
    assert!(Arc::ptr_eq(&snapshot, control.snapshot()));
    time("one look at the health of all", 3, || control.clone().look_when_due(now + Duration::from_secs(9)));
    // What each of them would cost if it were taken over like a change.
    let dir = tempfile::tempdir().unwrap();
    let mut store = TopologyStore::new(FileStore::open(dir.path().join("t").to_str().unwrap()).unwrap());
    store.save(control.desired(), &[]).unwrap();
    let one = time("one report, taken over and compared with the store", 3, || {
        let mut next = control.clone();
        next.hear(Word::check(&reports[7]).unwrap(), now).unwrap();
        store.save(next.desired(), &[]).unwrap();
    });
    assert!(all < one * LEAVES as u32 / 20, "a report costs less than a twentieth of a change");
    // A row gets a second version: its words come in one batch.
    let mut next = control.clone();
    let row: Vec<NodeReport> =
        (0..SHARDS).map(|number| NodeReport { zone: "moved".into(), ..leaf(number) }).collect();
    time("200 leaves that change at once, with the store", 1, || {
        let words = row.iter().map(|report| Word::check(report).unwrap()).collect();
        assert!(next.hear_all(words, now).iter().all(Result::is_ok));
        store.save(next.desired(), &[]).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_reaches_every_watcher() {
    let first = fleet(Instant::now()).snapshot().clone();
    let mut lost = (*first).clone();
    lost.epoch = Epoch(first.epoch.0 + 1);
    lost.nodes.remove(&NodeId::from("leaf-00007"));
    println!("whole: {} bytes", first.to_json().len());
    println!("one leaf lost: {} bytes", RoutingDelta::between(&first, &lost).to_json().len());
    let (routing, made) = (Routing::from(first.clone()), Arc::new(Updates::default()));
    let (arrived, mut all) = tokio::sync::mpsc::channel(1024);
    // A watcher as the service serves one, up to the bytes of its message; the network is left out.
    for _ in 0..LEAVES {
        let (mut following, made, arrived) = (routing.follow(), made.clone(), arrived.clone());
        tokio::spawn(async move {
            let first = following.next().await;
            let updates = stream::unfold((following, first), |(mut following, last)| async move {
                let next = following.next().await;
                Some(((last, next.clone()), (following, next)))
            });
            let mut updates = std::pin::pin!(updates);
            let _ready = arrived.send(0).await;
            while let Some((last, next)) = updates.next().await {
                let message = prost_encoded(&made.update(Some(&last), &next));
                let _counted = arrived.send(message).await;
            }
        });
    }
    for _ in 0..LEAVES {
        all.recv().await;
    }
    let began = Instant::now();
    routing.publish(lost);
    let mut bytes = 0;
    for _ in 0..LEAVES {
        bytes += all.recv().await.unwrap();
    }
    println!("one change to 20,000 watchers: {:?}, {bytes} bytes of messages", began.elapsed());
    assert!(bytes > 0);
}

/// Length of a message on the wire, after it was encoded.
fn prost_encoded(update: &canopy_proto::topology::RoutingUpdate) -> usize {
    use prost::Message;
    update.encode_to_vec().len()
}
