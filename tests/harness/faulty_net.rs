//! Real TCP whose links can be cut or stalled by the address they lead to: a node that died, or one that hangs, as its
//! callers see it, within one process and at an exact moment.
//!
//! Only the calling side is wrapped: a cut link gives a reset to both reads and writes, a new connection is refused, and
//! a stalled link carries nothing until it is opened again.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use canopy_common::net::{Bound, BoxIo, NetIo, Network};
use futures::{future::BoxFuture, task::AtomicWaker};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How the links to an address are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// They carry data.
    #[default]
    Open,
    /// Gone: reset, new ones refused.
    Cut,
    /// They carry nothing.
    Stalled,
}

#[derive(Default)]
struct Wakers {
    read: AtomicWaker,
    write: AtomicWaker,
}

#[derive(Default)]
struct Gate {
    state: Mutex<Link>,
    connections: Mutex<Vec<std::sync::Weak<Wakers>>>,
}

impl Gate {
    fn set(&self, link: Link) {
        *self.state.lock() = link;
        let mut connections = self.connections.lock();
        connections.retain(|wakers| wakers.strong_count() > 0);
        for wakers in connections.iter().filter_map(std::sync::Weak::upgrade) {
            wakers.read.wake();
            wakers.write.wake();
        }
    }
}

/// The links of a process.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, Arc<Gate>>>>);

impl Links {
    fn gate(&self, address: &str) -> Arc<Gate> {
        self.0.lock().entry(address.to_owned()).or_default().clone()
    }

    /// Changes all links to an address, those that exist and those to come.
    pub fn set(&self, address: &str, link: Link) {
        self.gate(address).set(link);
    }

    /// A network over TCP with these links.
    pub fn net(&self) -> NetIo {
        NetIo::new(FaultyNet { links: self.clone(), tcp: NetIo::tcp() })
    }
}

struct FaultyNet {
    links: Links,
    tcp: NetIo,
}

impl Network for FaultyNet {
    fn bind(&self, address: String) -> BoxFuture<'static, io::Result<Bound>> {
        self.tcp.bind(&address)
    }

    fn connect(&self, address: String) -> BoxFuture<'static, io::Result<BoxIo>> {
        let gate = self.links.gate(&address);
        let connecting = self.tcp.connect(&address);
        Box::pin(async move {
            if *gate.state.lock() == Link::Cut {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let io = connecting.await?;
            let wakers = Arc::new(Wakers::default());
            gate.connections.lock().push(Arc::downgrade(&wakers));
            Ok(BoxIo::new(Gated { io, gate, wakers }))
        })
    }
}

struct Gated {
    io: BoxIo,
    gate: Arc<Gate>,
    wakers: Arc<Wakers>,
}

impl Gated {
    /// Whether data may pass; the waker is kept before the state is read, so that no change is missed.
    fn pass(&self, waker: &AtomicWaker, cx: &Context<'_>) -> Poll<io::Result<()>> {
        waker.register(cx.waker());
        match *self.gate.state.lock() {
            Link::Open => Poll::Ready(Ok(())),
            Link::Cut => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Link::Stalled => Poll::Pending,
        }
    }
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.pass(&self.wakers.read, cx))?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.pass(&self.wakers.write, cx))?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.pass(&self.wakers.write, cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
