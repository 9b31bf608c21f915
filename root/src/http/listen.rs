//! Connections of clients, from whatever network [`Bound`] stands for: HTTP/1.1 and HTTP/2 on one listener.
//!
//! Own loop rather than the framework's, because the listener is not always TCP and because leaving must be gentle: while the
//! process leaves its answers close their HTTP/1 connections, so that clients move on before they must; when it drains it stops
//! accepting, tells each connection to finish what runs, and goes when all have or patience is over. Slow or silent clients
//! hold a place for seconds, not for ever: a first request has to come, as its head and body have to, and answers have to be
//! taken.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderValue, Request, Version, header},
};
use canopy_common::{
    drain::Drain,
    net::{Bound, BoxIo, patience::Patient},
};
use futures::StreamExt;
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{sync::Semaphore, task::JoinSet};

use super::refusal::Explained;

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
        let connection = converse(server.clone(), router.clone(), io, drain.clone());
        open.spawn(async move {
            let _place = place;
            connection.await;
        });
    }
    drop(bound);
    let finished = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, finished).await.is_err() {
        tracing::warn!("connections were still open when patience ended");
    }
}

/// One connection, until its client or the process leaves.
async fn converse(server: auto::Builder<TokioExecutor>, router: Router, io: BoxIo, drain: Drain) {
    let asked = Arc::new(AtomicBool::new(false));
    let silent = silence(asked.clone());
    let answer = TowerToHyperService::new(router);
    let leaving = drain.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let (close, leaving) = (request.version() < Version::HTTP_2, leaving.clone());
        let answered = answer.call(request);
        async move {
            let mut answered = answered.await?;
            if close && leaving.leaving() {
                answered.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = server.serve_connection(TokioIo::new(Explained::new(Patient::new(io))), service);
    tokio::pin!(connection, silent);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = drain.wait_started() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = silent => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// Resolves when nothing was asked in time. The server's own patience with a head begins only once it knows the
/// version of HTTP, so a client that says nothing is never met by it.
async fn silence(asked: Arc<AtomicBool>) {
    tokio::time::sleep(HEAD_PATIENCE).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// A client of a server that has one place.
    fn connect() -> (DuplexStream, DuplexStream) {
        let (first, server) = duplex(1 << 10);
        let (second, waiting) = duplex(1 << 10);
        let both = [server, waiting].map(|io| Ok(BoxIo::new(io)));
        let incoming = stream::iter(both).chain(stream::pending()).boxed();
        let bound = Bound { address: ([127, 0, 0, 1], 1).into(), incoming };
        let large = axum::routing::get(|| async { "x".repeat(1 << 20) });
        let small = axum::routing::get(|| async { "small" });
        let router = Router::new().route("/large", large).route("/small", small);
        tokio::spawn(serve(router, bound, 1, Drain::new(), Duration::from_secs(1)));
        (first, second)
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_nothing_give_their_place_to_the_next() {
        let said: [&[u8]; 5] =
            [b"", b"PRI * HT", b"GET /small HTTP/1.1\r\n", PREFACE, b"GET /large HTTP/1.1\r\n\r\n"];
        for said in said {
            let (mut idle, mut next) = connect();
            let start = Instant::now();
            idle.write_all(said).await.unwrap();
            next.write_all(b"GET /small HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            next.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            assert!(start.elapsed() <= Duration::from_secs(31), "{:?} {:?}", start.elapsed(), said);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asked_is_not_taken_for_silent() {
        let (mut client, _next) = connect();
        for _ in 0..3 {
            client.write_all(b"GET /small HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            let mut rest = [0; 1 << 10];
            while !rest.starts_with(b"small") {
                let n = client.read(&mut rest).await.unwrap();
                if rest[..n].ends_with(b"small") {
                    break;
                }
            }
            tokio::time::sleep(HEAD_PATIENCE.checked_sub(Duration::from_secs(1)).unwrap()).await;
        }
    }
}
