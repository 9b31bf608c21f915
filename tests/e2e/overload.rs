//! More than a tree can do, and callers that leave: what waits too long is never run, what is too much is refused in the
//! contract's words while the rest is answered, and a thousand clients that leave at any moment break nothing. Bounds on
//! time are generous; what is exact is counted.

use std::time::Duration;

use canopy_common::{config::Time, error::ErrorClass, rng::Dice, rpc::status::from_status};
use canopy_leaf::fault::FaultConfig;
use canopy_proto::v1::{QueryRequest, search_client::SearchClient};
use canopy_tests::{
    api::{Api, path},
    cluster::{Cluster, Shape},
    wait::wait_for,
};
use futures::{StreamExt, stream};
use tokio::{task::JoinSet, time::Instant};
use tonic::{Code, transport::Channel};

use crate::world::{World, corpus_of, with_world};

const EVERY: (&str, &str) = ("query_json", r#"{"match_all":{}}"#);
const PATIENCE: Duration = Duration::from_secs(30);

/// One root over one leaf of one thread, every search of which is held up so long.
async fn slow(world: &World, delay: Time, queue: u32) -> Cluster {
    let mut config = Shape::flat(1, 1).config(&[(&corpus_of(1), 1)]);
    // The probe asks a query of its own; one is enough here.
    config.root.probe_interval = Time::ms(60_000);
    config.leaf.threads = 1;
    config.leaf.queue = queue;
    config.leaf.allow_faults = true;
    config.leaf.fault = FaultConfig { delay, ..FaultConfig::default() };
    Cluster::start(&world.shelf.store, &config).await
}

/// Searches of a shard that a thread began.
async fn searches(leaf: &Api) -> f64 {
    leaf.metric("canopy_leaf_service_seconds_count").await
}

async fn metric(leaf: &Api, name: &str, at_least: f64) -> f64 {
    wait_for(name, PATIENCE, || async {
        let value = leaf.metric(name).await;
        (value >= at_least).then_some(value)
    })
    .await
}

#[test]
fn what_waits_past_its_deadline_is_never_run_and_counted() {
    with_world(|world| async {
        let cluster = slow(world, Time::ms(700), 16).await;
        let (root, leaf, name) = (cluster.root().clone(), cluster.admin("leaf-0"), corpus_of(1));
        let expired = async || leaf.metric("canopy_leaf_deadline_in_queue_total").await;
        let first = path(&name, &[EVERY, ("timeout_ms", "20000"), ("snippet", "false")]);
        // On a loaded machine the late one may come to the leaf after its deadline, or when the thread is free already.
        wait_for("a search that waits past its deadline", PATIENCE, || async {
            let (before, expired_before) = (searches(&leaf).await, expired().await);
            let (root, first) = (root.clone(), first.clone());
            let first = tokio::spawn(async move { root.get(&first).await });
            metric(&leaf, "canopy_leaf_in_flight_shards", 1.0).await;
            let asked = [EVERY, ("timeout_ms", "200"), ("completion", "all")];
            let late = cluster.root().search(&name, &asked).await;
            late.adds_up();
            let first = first.await.expect("no panic").ok();
            assert!(first.degraded().is_empty(), "{}", first.json);
            wait_for("an idle leaf", PATIENCE, || async {
                (leaf.metric("canopy_leaf_in_flight_shards").await == 0.0).then_some(())
            })
            .await;
            let waited = expired().await > expired_before;
            assert!(!waited || late.status == 504, "{}", late.json);
            assert!(!waited || searches(&leaf).await - before == 1.0, "the late one never ran");
            waited.then_some(())
        })
        .await;
        cluster.stop().await;
    });
}

#[test]
fn an_excess_is_refused_in_the_contracts_words_and_no_work_is_wasted() {
    with_world(|world| async {
        // So slow that a crowd has come before many of it are through, on any machine.
        let cluster = slow(world, Time::ms(200), 4).await;
        let (name, leaf) = (corpus_of(1), cluster.admin("leaf-0"));
        let address = format!("http://{}", cluster.node("root-0").address);
        let channel = Channel::from_shared(address).expect("an address").connect().await.expect("connected");
        let (mut answered, mut refused, before) = (0_u32, 0_u32, searches(&leaf).await);
        for _ in 0..3 {
            let ask = |_| {
                let mut client = SearchClient::new(channel.clone());
                let request = QueryRequest {
                    corpus: name.clone(),
                    q: "canopy".into(),
                    timeout_ms: 20_000,
                    total: "none".into(),
                    snippet: Some(false),
                    ..Default::default()
                };
                async move { client.search(request).await }
            };
            let replies: Vec<_> = stream::iter((0..60).map(ask)).buffer_unordered(60).collect().await;
            for reply in replies {
                match reply {
                    Ok(_) => answered += 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                        assert_eq!(from_status(&status).class, ErrorClass::Overloaded);
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused >= 60 && answered >= 9, "{answered} answered, {refused} refused of 180");
        let run = searches(&leaf).await - before;
        assert_eq!(run, f64::from(answered), "every search that ran was an answer");
        assert!(leaf.metric("canopy_leaf_refused_total").await >= 1.0);
        // And over HTTP, with a hint of when to come again.
        let asked = path(&name, &[("q", "canopy"), ("timeout_ms", "20000")]);
        let crowd = (0..60).map(|_| cluster.root().get(&asked));
        let crowd: Vec<_> = stream::iter(crowd).buffer_unordered(60).collect().await;
        let refusals: Vec<_> = crowd.iter().filter(|answer| answer.status != 200).collect();
        assert!(!refusals.is_empty() && refusals.len() < crowd.len());
        for answer in refusals {
            answer.refused(503, "OVERLOADED", "");
            assert_eq!(answer.headers["retry-after"], "1");
        }
        // When it is over, it is over.
        wait_for("a whole answer", PATIENCE, || async {
            let answer = cluster.root().get(&asked).await;
            (answer.status == 200 && answer.degraded().is_empty()).then_some(())
        })
        .await;
        cluster.stop().await;
    });
}

/// 50 queries a second at a thread that can do 16. What is judged are counts, and shares of what the thread itself did: other tests
/// take their share of the machine.
#[test]
fn three_times_the_load_is_refused_on_arrival_and_the_thread_does_nothing_in_vain() {
    const SERVICE: Time = Time::ms(60);
    with_world(|world| async {
        let cluster = slow(world, SERVICE, 256).await;
        let asked = [EVERY, ("snippet", "false"), ("timeout_ms", "3000")];
        let (leaf, asked) = (cluster.admin("leaf-0"), path(&corpus_of(1), &asked));
        let worked = async || leaf.metric("canopy_leaf_service_seconds_sum").await;
        let (before, worked_before, began) = (searches(&leaf).await, worked().await, Instant::now());
        let mut pace = tokio::time::interval(SERVICE.0 / 3);
        let mut running = JoinSet::new();
        for _ in 0..300 {
            pace.tick().await;
            let (root, asked) = (cluster.root().clone(), asked.clone());
            running.spawn(async move { root.get(&asked).await.status });
        }
        let ended = running.join_all().await;
        let busy = (worked().await - worked_before) / began.elapsed().as_secs_f64();
        let count = |status: u16| ended.iter().filter(|end| **end == status).count() as f64;
        let (answered, refused, run) = (count(200), count(503), searches(&leaf).await - before);
        assert!(busy >= 0.5, "the thread searched {busy} of the time; {answered} answered, {run} run");
        assert!(run <= 1.15 * answered + 5.0, "{run} searches for {answered} answers");
        assert!(refused >= 60.0, "{refused} refused");
        let waited = leaf.metric("canopy_leaf_refused_total{reason=\"waited\"}").await;
        assert!(waited <= refused / 2.0, "{waited} of {refused} were refused after they had waited");
        cluster.stop().await;
    });
}

#[test]
fn a_thousand_clients_that_leave_at_any_moment_break_nothing() {
    with_world(|world| async {
        let name = corpus_of(8);
        let config = Shape::two_levels(4, 2).config(&[(&name, 8)]);
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        let (dice, asked) = (Dice::seeded(23), path(&name, &[EVERY, ("timeout_ms", "5000")]));
        let (mut left, mut finished) = (0, 0);
        while left < 1000 {
            // Of twenty searches, five at a time; all of it is dropped at once.
            let searches = (0..20).map(|_| cluster.root().try_get(&asked));
            let searches = stream::iter(searches).buffer_unordered(5).count();
            let moment = Duration::from_micros(dice.below(20_000));
            match tokio::time::timeout(moment, searches).await {
                Err(_) => left += 5,
                Ok(count) => finished += count,
            }
        }
        let quiet = |api: Api, gauge: &'static str| async move {
            wait_for(gauge, PATIENCE, || async { (api.metric(gauge).await == 0.0).then_some(()) }).await;
        };
        quiet(cluster.admin("root-0"), "canopy_root_in_flight").await;
        for leaf in 0..4 {
            let admin = cluster.admin(&format!("leaf-{leaf}"));
            quiet(admin.clone(), "canopy_leaf_in_flight_shards").await;
            assert_eq!(admin.metric("canopy_leaf_panics_total").await, 0.0);
        }
        let whole = cluster.root().get(&asked).await.ok();
        whole.adds_up();
        assert!(whole.degraded().is_empty(), "{} ({finished} finished)", whole.json);
        cluster.stop().await;
    });
}
