//! Tests of connections made by hand: what the listener does with them from the first byte to the last.

use canopy_common::net::{Bound, BoxIo};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// A listener whose connections are made by hand.
fn bound(
    tree: &Tree,
) -> (futures::channel::mpsc::UnboundedSender<DuplexStream>, tokio::task::JoinHandle<()>) {
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let incoming = receiver.map(|io: DuplexStream| Ok(BoxIo::new(io))).boxed();
    let bound = Bound { address: ([127, 0, 0, 1], 1).into(), incoming };
    let serving = listen::serve(tree.router.clone(), bound, 16, tree.drain.clone(), Duration::from_secs(5));
    (sender, tokio::spawn(serving))
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_stops_its_query() {
    let tree = tree(1, 10, RootConfig::default());
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let (listener, _serving) = bound(&tree);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    listener.unbounded_send(server).unwrap();
    client
        .write_all(b"GET /v1/web/search?q=rust&timeout_ms=60000 HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let running = &tree.leaves[0].running;
    while running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(client);
    tokio::time::timeout(Duration::from_millis(50), async {
        while running.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the leaf still runs");
}

#[tokio::test(start_paused = true)]
async fn heads_that_can_not_be_read_are_refused_in_json_too() {
    let tree = tree(1, 10, RootConfig::default());
    let (listener, _serving) = bound(&tree);
    let headers = "h: x\r\n".repeat(150);
    for (request, status, code) in [
        (
            format!("GET /v1/web/search?q={} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(70_000)),
            "414",
            "URI_TOO_LONG",
        ),
        (format!("GET / HTTP/1.1\r\n{headers}\r\n"), "431", "HEADERS_TOO_LARGE"),
        ("GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), "400", "INVALID_ARGUMENT"),
    ] {
        let (mut client, server) = tokio::io::duplex(1 << 17);
        listener.unbounded_send(server).unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(head.contains("content-type: application/json"), "{answer}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], code, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_runs_and_accepts_no_more() {
    let tree = tree(1, 10, RootConfig::default());
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let (listener, serving) = bound(&tree);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    listener.unbounded_send(server).unwrap();
    client.write_all(b"GET /v1/web/search?q=rust&timeout_ms=300 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    while tree.leaves[0].running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    tree.drain.start();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(
        String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 504"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    tokio::time::timeout(Duration::from_secs(1), serving).await.expect("the server stays").unwrap();
}
