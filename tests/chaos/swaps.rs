//! Swap after swap, under load and without: nothing is left behind, and no query notices. And what a leaf does that lacks
//! handles for the next one.

use std::time::Duration;

use canopy_common::{config::Time, ids::Version};
use canopy_tests::{
    api::Answered,
    cluster::Shape,
    form::by_form,
    wait::{wait_for, wait_until},
};

use crate::{
    load::Load,
    served::{PATIENCE, Served, publish, store, version},
    stage::{self, EVERY},
    vitals::{Vitals, versions},
};

/// All at once, and the old version is soon let go of.
const AT_ONCE: &str = r#"
retain = "300ms"
grace = "300ms"
steps = [{ percent = 100, bake = "0ms", sample = 0 }]
"#;
const LEAVES: [&str; 2] = ["leaf-0", "leaf-1"];
const ASKED: [(&str, &str); 4] =
    [("q", "river"), ("timeout_ms", "20000"), ("completion", "all"), ("total", "exact")];
/// Noise of an allocator, KiB.
const SLACK_KIB: u64 = 8 << 10;

async fn served(store: &std::path::Path) -> Served {
    Served::shaped(store, AT_ONCE, &Shape::flat(2, 2), |config| {
        config.leaf.cache_local = true;
        config.leaf.retain = Time::ms(300);
        config.leaf.lease_grace = Time::ms(500);
        config.leaf.warm_limit = Time::ms(2000);
    })
    .await
}

/// Waits until every leaf holds one version and nothing of another; what it takes then.
async fn settled(served: &Served, only: Version) -> Vec<Vitals> {
    served.quiet().await;
    for id in LEAVES {
        wait_until("files of one version", PATIENCE, (vec![only.0], 0), || async {
            (versions(&served.fleet, id), Vitals::of(&served.fleet, id).await.deleted)
        })
        .await;
    }
    let mut all = Vec::new();
    for id in ["leaf-0", "leaf-1", "root-0"] {
        all.push(Vitals::of(&served.fleet, id).await);
    }
    all
}

fn all_good(answers: &[Option<Answered>]) {
    let versions: Vec<u64> = answers.iter().map(|answer| version(answer.as_ref()).0).collect();
    assert!(!versions.is_empty());
}

#[test]
fn swap_after_swap_leaves_nothing_behind_and_no_query_notices() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "often");
        let mut all = vec![store.latest("web").await.expect("a version").version];
        for seed in [21, 22] {
            all.push(publish(&directory, &store, seed, 1200).await);
        }
        let mut served = served(&directory).await;
        served.first(all[0]).await;
        let swaps = by_form(6, 12, 100);
        let mut early: Vec<Vitals> = Vec::new();
        let mut late = Vec::new();
        let mut asked = 0;
        for swap in 1..=swaps {
            let next = all[swap % all.len()];
            // The last third without a query: nobody's question may be what cleans up.
            let load = (3 * swap <= 2 * swaps)
                .then(|| Load::start(served.fleet.root(), Duration::from_millis(25), &ASKED));
            served.roll_out(next).await;
            served.all_on(next).await;
            if let Some(load) = load {
                let answers = load.finish().await;
                all_good(&answers);
                asked += answers.len();
            }
            late = settled(&served, next).await;
            if swap == 4 {
                early.clone_from(&late);
            }
        }
        println!("{swaps} swaps, {asked} queries; after 4: {early:?}; after all: {late:?}");
        for (early, late) in early.iter().zip(&late) {
            assert!(20 * late.own_kib <= 21 * early.own_kib + 20 * SLACK_KIB, "memory: {early:?}, {late:?}");
            assert!(late.handles <= early.handles + 4, "{early:?}, {late:?}");
            assert!(late.mapped <= early.mapped + 2, "{early:?}, {late:?}");
            assert!(late.series <= early.series + 8, "{early:?}, {late:?}");
        }
    });
}

fn limit_handles(pid: u32, most: u64) {
    let pid = i32::try_from(pid).expect("a process id");
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls; the structure is valid, and written by the first and read by the second only.
    let set = unsafe {
        libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit);
        limit.rlim_cur = most;
        libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_leaf_without_handles_for_another_version_refuses_it_and_serves_on() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "handles");
        let old = store.latest("web").await.expect("a version").version;
        let new = publish(&directory, &store, 23, 900).await;
        let mut served = served(&directory).await;
        served.first(old).await;
        let before = Vitals::of(&served.fleet, "leaf-1").await.handles as u64;
        // Connections come and go; what listeners keep for themselves is 64.
        limit_handles(served.fleet.pid("leaf-1"), before + 60);
        served.roll_out(new).await;
        let reason = wait_for("the refusal", PATIENCE, || async {
            let status = served.fleet.admin("leaf-1").get("/status").await.ok().json;
            let shards = status["shards"].as_array().cloned().unwrap_or_default();
            shards.iter().find_map(|shard| {
                let error = shard["last_error"].as_str().unwrap_or_default().to_owned();
                error.contains("insufficient file handles").then_some(error)
            })
        })
        .await;
        println!("{reason}");
        let answer = served.fleet.root().search("web", &ASKED).await;
        assert_eq!(version(Some(&answer)).0, old.0);
        wait_for("a halt with its reason", PATIENCE, || async {
            let rollout = served.corpus().await["rollout"].clone();
            (rollout["stopped"].is_string() && rollout.to_string().contains("file handles")).then_some(())
        })
        .await;
        limit_handles(served.fleet.pid("leaf-1"), 1024);
        served.command(&["rollout", "resume", "--corpus", "web"]).await;
        served.all_on(new).await;
        let answer = served.fleet.root().search("web", &[EVERY, ("timeout_ms", "20000")]).await;
        assert_eq!(version(Some(&answer)), (new.0, 900));
    });
}
