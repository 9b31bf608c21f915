//! The service's turns over a store that is slow.

use std::sync::mpsc;

use canopy_common::{clock, clock::Manual, rng::Dice, telemetry::Telemetry};
use canopy_proto::topology::NodeReport;
use futures::{StreamExt, stream};

use super::*;
use crate::service::store::{Documents, Store};

/// Each write waits until it is let through.
struct Slow(mpsc::Receiver<()>);

impl Store for Slow {
    fn read(&mut self) -> Result<Documents> {
        Ok(Documents::new())
    }

    fn write(&mut self, _: &Documents, _: &Documents, _: &[String]) -> Result<()> {
        let _let_through = self.0.recv();
        Ok(())
    }

    fn audit(&mut self, _: usize) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn service() -> Service {
    let net = canopy_common::net::NetIo::tcp();
    let telemetry = Telemetry::default();
    let deps = Deps { net, clock: Arc::new(Manual::default()), dice: Dice::seeded(1), telemetry };
    let grpc = Bound { address: ([127, 0, 0, 1], 1).into(), incoming: stream::pending().boxed() };
    let (config, rpc) = (TopologyConfig::default(), RpcConfig::default());
    let serve = TopologyServe {
        node: "topology".into(),
        config,
        rpc,
        grpc,
        admin: None,
        version_store: Arc::new(|| None),
    };
    Service::new(&serve, &deps, Drain::new(), hearing::queue().0).unwrap()
}

/// Waits without moving the clock. Fails instead of hanging, by the machine's clock.
async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = clock::System.now_us();
    while !done() {
        assert!(clock::System.now_us() - begun < 60_000_000, "it never comes that {what}");
        tokio::task::yield_now().await;
    }
}

async fn hear(service: &Service, zone: &str) {
    let report = NodeReport {
        node: "leaf-1".into(),
        role: "leaf".into(),
        address: "h:1".into(),
        zone: zone.into(),
        ..NodeReport::default()
    };
    let words = vec![Word::check(&report).unwrap()];
    let heard = service.change(move |control, now| Ok(control.hear_all(words, now))).await.unwrap().0;
    assert!(heard.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_store_of_versions_that_comes_later_is_told_of_when_it_is_there() {
    let (service, drain) = (Arc::new(service()), Drain::new());
    let there = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = there.clone();
    let store: LookForStore = Arc::new(move || {
        let there = seen.load(std::sync::atomic::Ordering::SeqCst);
        (!there).then(|| "there is no store x".to_owned())
    });
    let looking = tokio::spawn(look(service.clone(), store, drain.clone()));
    let said = || service.status()["no_version_store"].clone();
    until("the store is missed", || said() == "there is no store x").await;
    there.store(true, std::sync::atomic::Ordering::SeqCst);
    tokio::time::advance(LOOK).await;
    until("it is told of", || said().is_null()).await;
    drain.start();
    tokio::time::timeout(LOOK * 9, looking).await.expect("it looks on").unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_away_because_the_store_is_slow() {
    let (let_through, writes) = mpsc::channel();
    let service = Arc::new(service());
    let_through.send(()).unwrap();
    service.take_up(TopologyStore::new(Slow(writes)), || None).await.unwrap();
    let_through.send(()).unwrap();
    hear(&service, "a").await;
    let here = || service.state.lock().control.is_here(&"leaf-1".into());
    assert!(here());
    // A word is being stored, and time wants to go by: it waits for its turn.
    let storing = tokio::spawn({
        let service = service.clone();
        async move { hear(&service, "b").await }
    });
    until("a word is stored", || service.store.try_lock().is_err()).await;
    tokio::time::advance(TICK).await;
    let passing = service.pass_time(TICK, Instant::now());
    let mut passing = std::pin::pin!(passing);
    assert!(futures::poll!(passing.as_mut()).is_pending());
    // The store takes longer than a lease; whatever the leaf says meanwhile waits too.
    tokio::time::advance(LEASE * 2).await;
    drop(let_through);
    passing.await;
    storing.await.unwrap();
    assert!(here(), "it was not heard of because nobody listened");
    // And one that says nothing while the service listens is away.
    tokio::time::advance(LEASE + TICK).await;
    service.pass_time(TICK, Instant::now()).await;
    assert!(!here());
}
