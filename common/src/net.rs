//! The door to the network. `serve()` takes a [`NetIo`] and never opens a socket itself, so the same code runs over
//! real TCP and over a simulated network. Addresses are `host:port`; port 0 picks a free one.

pub mod patience;

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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

impl Network for Tcp {
    #[expect(clippy::disallowed_methods, reason = "the one place that opens sockets")]
    fn bind(&self, address: String) -> BoxFuture<'static, io::Result<Bound>> {
        Box::pin(async move {
            let listener = tokio::net::TcpListener::bind(&address).await?;
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
