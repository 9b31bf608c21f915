//! A client that leaves: everything that runs or waits for it stops, down to the leaves.

use std::time::Duration;

use canopy_common::net::NetIo;
use canopy_tests::{
    api::{Api, path},
    cluster::Shape,
    process::Fleet,
    wait::wait_for,
};
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep_until},
};

use crate::stage::{self, SHARDS};

const LEAVES: u32 = 4;
const CLIENTS: usize = 48;
/// Bound for a machine that does other things too: a third of what these queries have. The aim is 100 ms.
const GENEROUS: Duration = Duration::from_secs(10);

async fn in_flight(leaves: &[Api]) -> f64 {
    let each = leaves.iter().map(|leaf| leaf.metric("canopy_leaf_in_flight_shards"));
    futures::future::join_all(each).await.iter().sum()
}

/// A query that costs a leaf more than the clients wait for.
fn costly() -> String {
    let words: Vec<String> = (0..120)
        .map(|n| format!("\"the {}\"~30", ["river", "garden", "of", "and", "in", "water"][n % 6]))
        .collect();
    let text = words.join(" OR ");
    path(
        "web",
        &[
            ("q", &text),
            ("sort", "-published,host"),
            ("facets", "host,lang,topic"),
            ("total", "exact"),
            ("timeout_ms", "30000"),
            ("k", "100"),
        ],
    )
}

#[test]
fn leaves_are_idle_soon_after_their_clients_left() {
    stage::run(|stage| async move {
        let fleet =
            Fleet::start(&stage.store(), &Shape::two_levels(LEAVES, 1), &[("web", SHARDS)], |config| {
                config.leaf.threads = 1;
            })
            .await;
        let root = fleet.root();
        let leaves: Vec<Api> = (0..LEAVES).map(|leaf| fleet.admin(&format!("leaf-{leaf}"))).collect();
        let request = format!("GET {} HTTP/1.1\r\nhost: {}\r\n\r\n", costly(), root.address());
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut io = NetIo::tcp().connect(root.address()).await.expect("a connection");
            io.write_all(request.as_bytes()).await.expect("written");
            clients.push(io);
        }
        let sent = Instant::now();
        let busy = wait_for("busy leaves", Duration::from_secs(25), || async {
            let busy = in_flight(&leaves).await;
            (busy >= CLIENTS as f64).then_some(busy)
        })
        .await;
        sleep_until(sent + Duration::from_millis(50)).await;
        drop(clients);
        let left = Instant::now();
        wait_for("idle leaves", Duration::from_secs(20), || async {
            (in_flight(&leaves).await == 0.0).then_some(())
        })
        .await;
        let idle = left.elapsed();
        let mut cancelled = 0.0;
        for leaf in &leaves {
            cancelled += leaf.metric("canopy_leaf_cancelled_total").await;
        }
        println!(
            "{busy} shards were in flight; all leaves idle {idle:?} after {CLIENTS} clients left, {cancelled} shards cancelled"
        );
        assert!(idle <= GENEROUS, "{idle:?}");
        assert!(cancelled > 0.0);
        // The tree serves on.
        root.search("web", &[("q", "river"), ("timeout_ms", "60000")]).await.ok();
    });
}
