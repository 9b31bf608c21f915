//! Several topology services over a real etcd: the leader is killed, leaves, or stands still; the store goes. Queries go on
//! whole, a rollout goes on where it was, and who does not lead writes nothing.

use std::time::Duration;

use canopy_common::ids::Version;
use canopy_tests::{
    api::Answered,
    cluster::Shape,
    etcd::Etcd,
    process::{Signal, free_addresses},
    wait::{wait_for, wait_until},
};
use canopy_topology::config::{NodeConfig, Role};
use etcd_client::{Client, EventType, WatchOptions};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    load::{Load, pass},
    served::{PATIENCE, Served, publish, store, version},
    stage::{self, EVERY, Stage},
};

/// Long enough for a leader to be killed in each of its steps.
const STEADY: &str = r#"
retain = "10min"
grace = "1s"
steps = [
    { percent = 0, bake = "1s", sample = 0 },
    { percent = 10, bake = "4s", sample = 0 },
    { percent = 50, bake = "1s", sample = 0 },
    { percent = 100, bake = "1s", sample = 0 },
]
"#;
const SERVICES: [&str; 2] = ["topology-0", "topology-1"];
const PARAMETERS: [(&str, &str); 2] = [EVERY, ("timeout_ms", "20000")];

/// A tree whose two topology services share an etcd.
struct Shared {
    served: Served,
    etcd: Etcd,
}

impl Shared {
    async fn start(directory: &std::path::Path) -> Self {
        let etcd = Etcd::start().await;
        let mut free = free_addresses(2).await.into_iter();
        let second = NodeConfig {
            admin: free.next().expect("an address"),
            ..NodeConfig::at(SERVICES[1], Role::Topology, free.next().expect("an address"))
        };
        let address = etcd.store("trees/web");
        let mut served = Served::shaped(directory, STEADY, &Shape::flat(2, 2), |config| {
            config.topology.nodes.push(second);
            config.topology.store = address;
        })
        .await;
        served.fleet.wait_ready(SERVICES[1]).await;
        Self { served, etcd }
    }

    /// Who leads by the word of `service`; `None`: it does not say.
    async fn leader_by(&self, service: &str) -> Option<String> {
        let status = self.served.fleet.admin(service).try_get("/status").await?;
        Some(status.json["leader"]["node"].as_str()?.to_owned())
    }

    /// Who leads, and who does not, when both say the same.
    async fn roles(&self) -> (&'static str, &'static str) {
        let leader = wait_for("both to know the leader", PATIENCE, || async {
            let [one, other] = [self.leader_by(SERVICES[0]).await?, self.leader_by(SERVICES[1]).await?];
            (one == other).then_some(one)
        })
        .await;
        if leader == SERVICES[0] { (SERVICES[0], SERVICES[1]) } else { (SERVICES[1], SERVICES[0]) }
    }

    async fn leads(&self, service: &str) {
        wait_until(&format!("the leader by {service}"), PATIENCE, Some(service.to_owned()), || {
            self.leader_by(service)
        })
        .await;
    }

    async fn corpus(&self) -> Value {
        let (ok, shown) = self.served.try_command(&["rollout", "status", "--corpus", "web", "--json"]).await;
        if ok { serde_json::from_str(&shown).expect("JSON") } else { Value::Null }
    }

    async fn all_on(&self, version: Version) {
        wait_until("all queries on one version", PATIENCE, vec![(version.0, 10_000)], || async {
            pins(&self.corpus().await)
        })
        .await;
    }

    async fn epoch(&self) -> u64 {
        let shown = self.served.command(&["topology", "show", "--json"]).await;
        serde_json::from_str::<Value>(&shown).expect("JSON")["epoch"].as_u64().expect("an epoch")
    }
}

fn pins(corpus: &Value) -> Vec<(u64, u64)> {
    let pins = corpus["pins"].as_array().into_iter().flatten();
    pins.map(|pin| (pin["version"].as_u64().unwrap_or(0), pin["share"].as_u64().unwrap_or(0))).collect()
}

fn all_whole(answers: &[Option<Answered>], of: &[Version]) {
    let seen: Vec<u64> = answers.iter().map(|answer| version(answer.as_ref()).0).collect();
    let each: Vec<String> = of
        .iter()
        .map(|version| format!("{} of {version}", seen.iter().filter(|seen| **seen == version.0).count()))
        .collect();
    println!("{} answers, none failed: {}", seen.len(), each.join(", "));
    assert!(!seen.is_empty() && seen.iter().all(|seen| of.iter().any(|version| version.0 == *seen)));
}

/// The tree with its first version served by all.
async fn serving(
    stage: &Stage,
    name: &str,
) -> (Shared, std::path::PathBuf, canopy_format::store::VersionStore, Version) {
    let (directory, store) = store(stage, name);
    let only = store.latest("web").await.expect("a version").version;
    let mut shared = Shared::start(&directory).await;
    shared.served.roll_out(only).await;
    shared.all_on(only).await;
    shared.served.fleet.wait_all_ready().await;
    (shared, directory, store, only)
}

#[test]
fn a_leader_that_is_killed_in_a_rollout_is_followed_by_one_that_ends_it() {
    stage::run(|stage| async move {
        let (mut shared, directory, store, old) = serving(stage, "several-killed").await;
        let (leader, other) = shared.roles().await;
        let new = publish(&directory, &store, 9, 1500).await;
        let load = Load::start(shared.served.fleet.root(), Duration::from_millis(20), &PARAMETERS);
        shared.served.roll_out(new).await;
        wait_until("a tenth on the new version", PATIENCE, 1000, || async {
            let pins = pins(&shared.corpus().await);
            pins.iter().find(|pin| pin.0 == new.0).map_or(0, |pin| pin.1)
        })
        .await;
        let before = shared.epoch().await;
        shared.served.fleet.signal(leader, Signal::Kill);
        shared.served.fleet.ended(leader).await;
        let killed = Instant::now();
        shared.leads(other).await;
        println!("{other} leads {:?} after {leader} was killed", killed.elapsed());
        let status = shared.served.fleet.admin(other).get("/status").await.ok().json;
        assert_eq!(pins(&status["corpora"]["web"]).len(), 2, "the rollout is where it was");
        let after = shared.epoch().await;
        assert!(after > before, "{after} follows {before}");
        shared.all_on(new).await;
        println!("all on {new} {:?} after the kill", killed.elapsed());
        pass(Duration::from_millis(300)).await;
        all_whole(&load.finish().await, &[old, new]);
        let audit = shared.served.command(&["topology", "audit"]).await;
        assert!(audit.contains(&new.to_string()), "{audit}");

        // The one that was killed comes back and follows; a leader that leaves is followed at once.
        shared.served.fleet.spawn(leader, &[]);
        shared.served.fleet.wait_ready(leader).await;
        assert_eq!(shared.roles().await, (other, leader));
        let load = Load::start(shared.served.fleet.root(), Duration::from_millis(20), &PARAMETERS);
        shared.served.fleet.signal(other, Signal::Terminate);
        shared.served.fleet.ended(other).await;
        let left = Instant::now();
        let client = Client::connect([shared.etcd.address()], None).await.expect("a client");
        let by = leader_key(&client).await.map(|(by, _)| by);
        assert!(!by.is_some_and(|by| by.contains(other)), "the lease was given back");
        shared.leads(leader).await;
        println!("{leader} leads {:?} after {other} left", left.elapsed());
        shared.served.fleet.spawn(other, &[]);
        shared.served.fleet.wait_ready(other).await;
        all_whole(&load.finish().await, &[new]);
        let back = shared.served.command(&["rollback", "--corpus", "web", "--reason", "a test"]).await;
        shared.all_on(old).await;
        assert!(back.contains(&old.to_string()), "{back}");
    });
}

#[test]
fn a_leader_that_stood_still_writes_nothing_any_more() {
    stage::run(|stage| async move {
        let (mut shared, _, _, only) = serving(stage, "several-frozen").await;
        let (leader, other) = shared.roles().await;
        let load = Load::start(shared.served.fleet.root(), Duration::from_millis(20), &PARAMETERS);
        shared.served.fleet.signal(leader, Signal::Stop);
        let frozen = Instant::now();
        shared.leads(other).await;
        println!("{other} leads {:?} after {leader} was frozen", frozen.elapsed());
        let client = Client::connect([shared.etcd.address()], None).await.expect("a client");
        let (by, elected) = leader_key(&client).await.expect("the leader's key");
        assert!(by.contains(other), "{by}");
        // Asked by the address of the new one: the frozen one, which the file names too, would be waited for.
        let address = shared.served.fleet.node(other).address.clone();
        let ask = async |arguments: &[&str]| {
            let mut all = arguments.to_vec();
            all.extend(["--service", &address]);
            let output = canopy_tests::process::run(&all).await;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        ask(&["topology", "drain", "leaf-1"]).await;
        shared.served.fleet.signal(leader, Signal::Continue);
        wait_until("the thawed one to follow", PATIENCE, Some(other.to_owned()), || shared.leader_by(leader))
            .await;
        // It goes on for a while, with every chance to write.
        pass(Duration::from_secs(3)).await;
        let shown: Value = serde_json::from_str(&ask(&["topology", "show", "--json"]).await).expect("JSON");
        let drained = |node: &&Value| node["node"] == "leaf-1";
        let nodes = shown["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.iter().find(drained).expect("leaf-1")["state"], "drained", "{shown:#}");
        ask(&["topology", "undrain", "leaf-1"]).await;
        let writers = writers(&client, elected).await;
        println!("{} changes since the election, by {writers:?}", writers.len());
        assert!(writers.len() >= 3 && writers.iter().all(|writer| writer == other), "{writers:?}");
        all_whole(&load.finish().await, &[only]);
        // Any service may be asked: the one that follows names the leader.
        let address = shared.served.fleet.node(leader).address.clone();
        let output = canopy_tests::process::run(&["topology", "show", "--service", &address]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// Who has the leader's key, and the revision at which it was made; `None`: nobody has it.
async fn leader_key(client: &Client) -> Option<(String, i64)> {
    let found = client.kv_client().get("/trees/web/leader", None).await.expect("an answer");
    let key = found.kvs().first()?;
    Some((String::from_utf8_lossy(key.value()).into_owned(), key.create_revision()))
}

/// Who made each change since a revision until now, by etcd's own history.
async fn writers(client: &Client, since: i64) -> Vec<String> {
    const KEY: &str = "/trees/web/generation";
    let now = client.kv_client().get(KEY, None).await.expect("an answer");
    let now = now.kvs().first().expect("a generation").mod_revision();
    let options = WatchOptions::new().with_start_revision(since);
    let mut watching = client.watch_client();
    let mut changes = watching.watch(KEY, Some(options)).await.expect("a watch");
    let (mut writers, mut seen) = (Vec::new(), 0);
    while seen < now {
        let more = tokio::time::timeout(PATIENCE, changes.message()).await.expect("the whole history");
        let more = more.expect("an answer").expect("the whole history");
        for event in more.events().iter().filter(|event| event.event_type() == EventType::Put) {
            let key = event.kv().expect("a key");
            seen = seen.max(key.mod_revision());
            writers.push(String::from_utf8_lossy(key.value()).into_owned());
        }
    }
    writers
}

#[test]
fn without_the_store_queries_go_on_and_nothing_is_decided_until_it_is_back() {
    stage::run(|stage| async move {
        let (mut shared, directory, store, old) = serving(stage, "several-alone").await;
        shared.roles().await;
        let load = Load::start(shared.served.fleet.root(), Duration::from_millis(20), &PARAMETERS);
        shared.etcd.kill();
        let (ok, said) = shared.served.try_command(&["topology", "drain", "leaf-1"]).await;
        println!("a command while etcd is away: {}", said.trim());
        assert!(!ok && said.contains("etcd://"), "{said}");
        for service in SERVICES {
            wait_until(&format!("{service} not to be ready"), PATIENCE, Some(503), || async {
                Some(shared.served.fleet.admin(service).try_get("/healthz/ready").await?.status)
            })
            .await;
        }
        // Who led tries its store until its lease is over.
        let said = wait_for("a word of who leads", PATIENCE, || async {
            let (ok, said) = shared.served.try_command(&["topology", "drain", "leaf-1"]).await;
            assert!(!ok && said.contains("etcd://"), "{said}");
            said.contains("queries go on").then_some(said)
        })
        .await;
        println!("and when nobody leads any more: {}", said.trim());
        // A leaf that is started now comes back from its disk.
        shared.served.fleet.signal("leaf-1", Signal::Kill);
        shared.served.fleet.ended("leaf-1").await;
        shared.served.fleet.spawn("leaf-1", &[]);
        shared.served.fleet.wait_ready("leaf-1").await;
        assert!(shared.served.fleet.log("leaf-1").contains("goes by the last good routing snapshot"));
        shared.etcd.run().await;
        let back = Instant::now();
        let (leader, _) = shared.roles().await;
        println!("{leader} leads {:?} after etcd was back", back.elapsed());
        shared.served.fleet.wait_all_ready().await;
        let new = publish(&directory, &store, 4, 800).await;
        shared.served.roll_out(new).await;
        shared.all_on(new).await;
        all_whole(&load.finish().await, &[old, new]);
    });
}
