//! Connections of writers: HTTP/1.1 and HTTP/2 on one listener. Leaves gently: it stops accepting when the process drains, and
//! what runs is finished. A client that connects and says nothing holds a place for seconds only.

use std::{sync::Arc, time::Duration};

use axum::Router;
use canopy_common::{
    drain::Drain,
    net::{Bound, BoxIo, patience::Patient},
};
use futures::StreamExt;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Longest wait for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// Idle HTTP/2 connections are asked whether they still live.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Pause after the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until draining has begun and the connections have ended, or patience is over.
pub async fn serve(router: Router, mut bound: Bound, connections: u32, drain: Drain, patience: Duration) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).max_concurrent_streams(256);
    let places = Arc::new(Semaphore::new(connections as usize));
    let mut open = JoinSet::new();
    loop {
        let next = async { (places.clone().acquire_owned().await, bound.incoming.next().await) };
        let (place, accepted) = tokio::select! {
            biased;
            () = drain.wait_started() => break,
            next = next => next,
        };
        while open.try_join_next().is_some() {}
        match accepted {
            None => break,
            Some(Ok(io)) => {
                let connection = converse(server.clone(), router.clone(), io, drain.clone());
                open.spawn(async move {
                    let _place = place;
                    connection.await;
                });
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(bound);
    let finished = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, finished).await.is_err() {
        tracing::warn!("connections were still open when patience ended");
    }
}

async fn converse(server: auto::Builder<TokioExecutor>, router: Router, io: BoxIo, drain: Drain) {
    let connection =
        server.serve_connection(TokioIo::new(Patient::new(io)), TowerToHyperService::new(router));
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
        tracing::debug!(%error, "a writer's connection ended");
    }
}
