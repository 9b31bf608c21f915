//! A root whose way to the topology service alone is cut, while a version takes the place of another and the old one is retired:
//! every query at it is answered whole, by one version, and when the way is mended what the service says rules again.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    cluster::Shape,
    process::Signal,
    proxy::{Proxy, Wire},
    wait::{wait_for, wait_until},
};
use serde_json::Value;

use crate::{
    load::{Load, Told, after_the_first, pass},
    served::{PATIENCE, Served, publish, store, version},
    stage::{self, EVERY},
};

const AT_ONCE: &str = r#"
retain = "1s"
grace = "1s"
steps = [{ percent = 100, bake = "0ms", sample = 0 }]
"#;
const CUT: &str = "root-1";

#[test]
fn a_root_that_is_cut_off_answers_by_what_the_leaves_serve() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "cut-off");
        let old = store.latest("web").await.expect("a version").version;
        let shape = Shape { roots: 2, ..Shape::flat(2, 2) };
        let mut served = Served::shaped(&directory, AT_ONCE, &shape, |config| {
            config.leaf.retain = Time::ms(500);
        })
        .await;
        served.first(old).await;
        // Its way to the service goes through a wire.
        let service = served.fleet.node("topology-0").address.clone();
        let wire = Proxy::to(&service, 7).await;
        let file = served.fleet.config_file();
        let text = std::fs::read_to_string(&file).expect("a configuration").replace(&service, &wire.address);
        std::fs::write(file.with_file_name(format!("{CUT}.toml")), text).expect("written");
        served.fleet.signal(CUT, Signal::Terminate);
        served.fleet.ended(CUT).await;
        served.fleet.spawn(CUT, &[]);
        served.fleet.wait_ready(CUT).await;

        let root = served.fleet.admin(CUT);
        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(root.clone(), Duration::from_millis(20), &parameters);
        wire.set(Wire::Dead);
        wait_until("the service to miss the root", PATIENCE, false, || async {
            let status = served.fleet.admin("topology-0").try_get("/status").await;
            let nodes = status.map_or(Value::Null, |status| status.json["nodes"].clone());
            let mut nodes = nodes.as_array().into_iter().flatten();
            nodes.any(|node| (node["node"] == CUT || node["id"] == CUT) && node["state"] == "here")
        })
        .await;
        let new = publish(&directory, &store, 9, 1500).await;
        served.roll_out(new).await;
        served.all_on(new).await;
        wait_until("an answer of the new version", PATIENCE, new.0, || async {
            root.search("web", &parameters).await.json["version"]["wanted"].as_u64().unwrap_or(0)
        })
        .await;
        pass(Duration::from_secs(2)).await;
        let told = load.told().await;
        let of_new = |told: &Told| version(told.answered.as_ref()).0 == new.0;
        let later = after_the_first(&told, of_new);
        println!("{} answers, the last {} of {new}", told.len(), later.len());
        assert!(later.into_iter().all(of_new) && !of_new(&told[0]), "it turns once");

        // It says since when, once that is worth a word.
        let topology = wait_for("the root to say that it is cut off", PATIENCE, || async {
            let topology = root.try_get("/status").await?.json["topology"].clone();
            let since = |key: &str| topology[key].as_u64().is_some_and(|ms| ms > 5000);
            (since("unheard_ms") && since("unreported_ms")).then_some(topology)
        })
        .await;
        assert_eq!(topology["follows_leaves"][0]["version"], new.0, "{topology}");
        assert_eq!(root.try_get("/healthz/ready").await.expect("an answer").status, 200);

        wire.set(Wire::Sound);
        wait_for("the root to hear the service", PATIENCE, || async {
            let topology = root.try_get("/status").await?.json["topology"].clone();
            let nothing = topology["follows_leaves"].as_array()?.is_empty();
            (nothing && topology["unheard_ms"].is_null()).then_some(())
        })
        .await;
        assert_eq!(version(Some(&root.search("web", &parameters).await)).0, new.0);
    });
}
