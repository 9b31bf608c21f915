//! The network seam over a simulated network: what production reaches through `NetIo` goes over turmoil's sockets and
//! clock, where latency, partitions and crashes are scripted and a seed repeats everything.

use std::{io, net::Ipv4Addr};

use canopy_common::net::{Bound, BoxIo, NetIo, Network};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use turmoil::net::{TcpListener, TcpStream};

/// A simulated network.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimNet;

impl SimNet {
    /// As production takes it.
    pub fn io() -> NetIo {
        NetIo::new(Self)
    }
}

fn port(address: &str) -> io::Result<u16> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{address} has no port")))
}

impl Network for SimNet {
    /// Listens on all addresses of the simulated host.
    fn bind(&self, address: String) -> BoxFuture<'static, io::Result<Bound>> {
        async move {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port(&address)?)).await?;
            let address = listener.local_addr()?;
            let accept = |listener: TcpListener| async move {
                let accepted = listener.accept().await.map(|(stream, _)| BoxIo::new(stream));
                Some((accepted, listener))
            };
            Ok(Bound { address, incoming: stream::unfold(listener, accept).boxed() })
        }
        .boxed()
    }

    fn connect(&self, address: String) -> BoxFuture<'static, io::Result<BoxIo>> {
        async move { TcpStream::connect(address.as_str()).await.map(BoxIo::new) }.boxed()
    }
}
