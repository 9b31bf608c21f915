//! Connections of clients, from whatever network [`Bound`] stands for: HTTP/1.1 and HTTP/2 on one listener.
//!
//! Own loop rather than the framework's, because the listener is not always TCP and because leaving must be gentle:
//! when the process drains it stops accepting, tells each connection to finish what runs, and goes when all have or
//! patience is over. Slow or silent clients hold a place for seconds, not for ever.

use std::{sync::Arc, time::Duration};

use axum::Router;
use canopy_common::{drain::Drain, net::Bound};
use futures::StreamExt;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Longest wait for the head of a request, also of the first.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// Idle HTTP/2 connections are asked whether they still live.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Pause after the system refuses to accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` until draining has begun and the connections have ended, or patience is over.
pub async fn serve(router: Router, mut bound: Bound, connections: u32, drain: Drain, patience: Duration) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).max_concurrent_streams(256);
    let places = Arc::new(Semaphore::new(connections as usize));
    let mut open = JoinSet::new();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, bound.incoming.next().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = drain.wait_started() => break,
            next = next => next,
        };
        while open.try_join_next().is_some() {}
        let io = match accepted {
            None => break,
            Some(Ok(io)) => io,
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let (server, drain) = (server.clone(), drain.clone());
        open.spawn(async move {
            let _place = place;
            let connection = server.serve_connection(TokioIo::new(io), service);
            tokio::pin!(connection);
            let ended = tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = drain.wait_started() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a client's connection ended");
            }
        });
    }
    drop(bound);
    let finished = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, finished).await.is_err() {
        tracing::warn!("connections were still open when patience ended");
    }
}
