//! The door to the network. `serve()` takes a [`NetIo`] and never opens a socket itself, so the same code runs over
//! real TCP and over a simulated network. Addresses are `host:port`; port 0 picks a free one.

pub mod patience;
pub mod together;

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpSocket,
};

/// A byte stream, of whatever network.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A boxed connection that tonic accepts.
pub struct BoxIo(Box<dyn Io>);

impl BoxIo {
    /// Boxes a connection.
    pub fn new(io: impl Io) -> Self {
        Self(Box::new(io))
    }
}

impl AsyncRead for BoxIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for BoxIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

impl tonic::transport::server::Connected for BoxIo {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

/// Accepted connections.
pub type Incoming = BoxStream<'static, io::Result<BoxIo>>;

/// A listener and where it listens.
pub struct Bound {
    /// The real address, port resolved.
    pub address: SocketAddr,
    /// Connections.
    pub incoming: Incoming,
}

/// A network.
pub trait Network: Send + Sync + 'static {
    /// Listens on `host:port`.
    fn bind(&self, address: String) -> BoxFuture<'static, io::Result<Bound>>;
    /// Connects to `host:port`.
    fn connect(&self, address: String) -> BoxFuture<'static, io::Result<BoxIo>>;
}

/// Handle to a network. Cloning shares it.
#[derive(Clone)]
pub struct NetIo(Arc<dyn Network>);

impl NetIo {
    /// Uses `network`.
    pub fn new(network: impl Network) -> Self {
        Self(Arc::new(network))
    }

    /// Real TCP.
    pub fn tcp() -> Self {
        Self::new(Tcp)
    }

    /// Listens on `host:port`.
    pub fn bind(&self, address: &str) -> BoxFuture<'static, io::Result<Bound>> {
        self.0.bind(address.to_owned())
    }

    /// Connects to `host:port`.
    pub fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        self.0.connect(address.to_owned())
    }
}

struct Tcp;

/// Connections that may wait to be accepted (the system may allow fewer). The library's 128 is less than a burst: one
/// more is not refused but dropped, and its client tries again a whole second later.
const BACKLOG: u32 = 4096;

/// Listens on the first address that `address` stands for and that can be listened on.
async fn listen(address: &str) -> io::Result<tokio::net::TcpListener> {
    let mut failed = None;
    for address in tokio::net::lookup_host(address).await? {
        let listener = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // A restart must not wait for the connections of the process before it to be forgotten.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        match listener() {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address")))
}

impl Network for Tcp {
    fn bind(&self, address: String) -> BoxFuture<'static, io::Result<Bound>> {
        Box::pin(async move {
            let listener = listen(&address).await?;
            let address = listener.local_addr()?;
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener)
                .map(|accepted| {
                    let stream = accepted?;
                    stream.set_nodelay(true)?;
                    Ok(BoxIo::new(stream))
                })
                .boxed();
            Ok(Bound { address, incoming })
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that opens sockets")]
    fn connect(&self, address: String) -> BoxFuture<'static, io::Result<BoxIo>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            Ok(BoxIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_connections_waits_to_be_accepted() {
        let net = NetIo::tcp();
        let bound = net.bind("localhost:0").await.unwrap();
        // Nobody accepts: each is taken by the system at once, or else never.
        let connects = (0..500).map(|_| net.connect(&bound.address.to_string()));
        let all = futures::future::join_all(connects);
        let all = tokio::time::timeout(std::time::Duration::from_secs(20), all).await.expect("room for all");
        assert!(all.iter().all(Result::is_ok));
    }
}
