//! Clients that leave, and more of them than there is room for.

use super::*;

#[tokio::test(start_paused = true)]
async fn leaving_at_any_moment_leaves_nothing_running() {
    let tree = tree(4, 10, RootConfig::default());
    *tree.leaves[1].search.lock() = Mood::Hangs;
    *tree.leaves[2].search.lock() = Mood::Fails(ErrorClass::Internal);
    *tree.leaves[3].fetch.lock() = Mood::Hangs;
    let mut answered = 0;
    for n in 0..1000_u64 {
        let patience = Duration::from_micros(n * 7919 % 250_000);
        let call = get(&tree, "/v1/web/search?q=rust&timeout_ms=200&completion=all");
        answered += u32::from(tokio::time::timeout(patience, call).await.is_ok());
        for leaf in &tree.leaves {
            assert_eq!(leaf.running.load(Ordering::SeqCst), 0, "after {patience:?}");
        }
    }
    assert!((1..1000).contains(&answered), "{answered}");
    let metrics = canopy_common::telemetry::metrics::text(&tree.telemetry.registry);
    let cancelled = format!("canopy_root_answers_total{{outcome=\"cancelled\"}} {}", 1000 - answered);
    assert!(metrics.contains(&cancelled) && metrics.contains("canopy_root_in_flight 0"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn one_query_too_many_is_shed() {
    let config = RootConfig { max_in_flight: 1, ..RootConfig::default() };
    let tree = tree(1, 10, config);
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let first = get(&tree, "/v1/web/search?q=rust&timeout_ms=100");
    let second = async {
        tokio::task::yield_now().await;
        get(&tree, "/v1/web/search?q=rust").await
    };
    let ((first, _), (second, error)) = tokio::join!(first, second);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (504, 503));
    assert_eq!((&error["error"]["code"], header(&second, "retry-after")), (&json!("OVERLOADED"), "1"));
}
