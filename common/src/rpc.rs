//! Everything between a role and the wire: the two layer lists, one screen each; the one mapping of error classes to
//! gRPC status; limits in one place.
//!
//! Client, outer to inner: trace context > channel. The channel is lazy, notices a dead peer by keepalive within
//! interval + timeout (a host that vanishes sends no reset), dials with patience (`dial`), and has a connection window
//! far above the stream window, so that one fat stream does not starve the others.
//! Server, outer to inner: catch panic > trace context > routes. Deadlines travel in the message and in
//! `grpc-timeout`; the engine's own timers bound the streams. A connection lives for `max_connection_age` and is then
//! ended gently: the peer is told to begin nothing new on it, what runs ends in peace, and the next call dials again, so
//! that whatever moved behind an address is found. Nodes differ by up to a tenth, so that not all reconnect at once.

pub mod config;
mod dial;
pub mod status;

use std::{io, time::Duration};

use futures::StreamExt;
use hyper_util::rt::TokioIo;
use tonic::{
    body::Body,
    service::Routes,
    transport::{Endpoint, Server, Uri},
};
use tower::{BoxError, ServiceBuilder, service_fn, util::BoxCloneSyncService};
use tower_http::catch_panic::CatchPanicLayer;

pub use config::RpcConfig;
use dial::Dialler;

use crate::{
    drain::Drain,
    net::{Bound, NetIo, patience::Patient, together::Together},
    telemetry::trace,
};

/// A layered channel to one node; clones share the connection.
pub type ClientChannel = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;

/// Cancelled streams whose late frames are dropped in silence. The gather engine cancels calls all day; the library
/// remembers 50 streams for a second, answers later frames with a reset each, and after 1,024 of these over the life of
/// a connection tears it down. The peers are our own nodes, so that last limit is off.
const RESETS_REMEMBERED: usize = 1024;
/// How long. Real time, whatever clock a test runs on: long enough that a simulation never reaches it.
const RESET_REMEMBERED: Duration = Duration::from_mins(1);

/// Bytes that a caller begins with: the preface of HTTP/2, which is awaited at most that long.
const PREFACE: usize = 24;
const PREFACE_PATIENCE: Duration = Duration::from_secs(10);

/// A lazy channel to `host:port`. Nothing is dialled before the first call; it reconnects by itself.
pub fn channel(config: &RpcConfig, net: &NetIo, address: &str) -> io::Result<ClientChannel> {
    let dialler = Dialler::new(net.clone(), address, config.connect_timeout.0, config.keepalive_timeout.0);
    let connector = service_fn(move |_: Uri| {
        let dialler = dialler.clone();
        async move { dialler.dial().await.map(|io| TokioIo::new(Together::new(io))) }
    });
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .map_err(io::Error::other)?
        .http2_keep_alive_interval(config.keepalive_interval.0)
        .keep_alive_timeout(config.keepalive_timeout.0)
        .keep_alive_while_idle(true)
        .http2_max_concurrent_reset_streams(RESETS_REMEMBERED)
        .http2_reset_stream_duration(RESET_REMEMBERED)
        .http2_max_local_error_reset_streams(None)
        .initial_stream_window_size(config.stream_window.0 as u32)
        .initial_connection_window_size(config.connection_window.0 as u32)
        .connect_with_connector_lazy(connector);
    let layered = ServiceBuilder::new()
        .map_err(BoxError::from)
        .map_request(|mut request: http::Request<Body>| {
            trace::inject(request.headers_mut());
            request
        })
        .service(channel);
    Ok(BoxCloneSyncService::new(layered))
}

/// Serves gRPC as `node` on `bound` until `drain` starts and the running calls have ended or its patience is over.
pub async fn serve_grpc(
    config: &RpcConfig,
    node: &str,
    routes: Routes,
    bound: Bound,
    drain: Drain,
) -> io::Result<()> {
    let layers = ServiceBuilder::new()
        .layer(CatchPanicLayer::custom(panicked))
        .map_request(|mut request: http::Request<Body>| {
            let parent = trace::extract(request.headers());
            request.extensions_mut().insert(parent);
            request
        })
        .into_inner();
    let stop = drain.clone();
    let age = aged(config.max_connection_age.0, node);
    let opened = |io| Together::new(Patient::opened_by(io, PREFACE, PREFACE_PATIENCE));
    let incoming = bound.incoming.map(move |accepted| accepted.map(opened));
    let serving = Server::builder()
        .http2_keepalive_interval(Some(config.keepalive_interval.0))
        .http2_keepalive_timeout(Some(config.keepalive_timeout.0))
        .initial_stream_window_size(config.stream_window.0 as u32)
        .initial_connection_window_size(config.connection_window.0 as u32)
        .max_connection_age(age)
        .tcp_nodelay(true)
        .layer(layers)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move { stop.wait_started().await });
    let patience = config.drain_patience.0;
    tokio::select! {
        biased;
        served = serving => served.map_err(io::Error::other),
        () = async { drain.wait_started().await; tokio::time::sleep(patience).await } => Ok(()),
    }
}

/// The age at which a node ends connections: up to a tenth more or less than configured, by its name. Addresses will not do:
/// nodes in containers all listen on the same one.
fn aged(age: Duration, node: &str) -> Duration {
    let lot = xxhash_rust::xxh3::xxh3_64(node.as_bytes()) as f64 / u64::MAX as f64;
    age.mul_f64(0.9 + 0.2 * lot)
}

/// A panic in a handler is our fault and ends one call, never the process.
fn panicked(cause: Box<dyn std::any::Any + Send>) -> http::Response<Body> {
    let what = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(panic = what, "a handler panicked");
    let failure = crate::error::Failure::new(crate::error::ErrorClass::Internal, "the handler failed");
    status::to_status(&failure).into_http()
}
