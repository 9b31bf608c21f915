//! Real TCP whose links can be cut or stalled by the address they lead to: a node that died, or one that hangs, as its
//! callers see it, within one process and at an exact moment.
//!
//! Only the calling side is wrapped: a cut link gives a reset to both reads and writes, a new connection is refused, and
//! a stalled link carries nothing until it is opened again. A change can also wait for a number of requests (HEADERS
//! frames of HTTP/2): so a node answers the search and is gone before the fetch.

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
    /// After so many more requests the links become this.
    due: Mutex<Option<(u32, Link)>>,
    connections: Mutex<Vec<std::sync::Weak<Wakers>>>,
}

impl Gate {
    /// Counts requests that are about to be sent.
    fn requests(&self, count: u32) {
        let mut due = self.due.lock();
        let Some((left, link)) = &mut *due else { return };
        if let Some(rest) = left.checked_sub(count) {
            *left = rest;
        } else {
            let link = *link;
            *due = None;
            drop(due);
            self.set(link);
        }
    }

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
        let gate = self.gate(address);
        *gate.due.lock() = None;
        gate.set(link);
    }

    /// Lets so many more requests pass; the next finds the links as `link`.
    pub fn set_after(&self, address: &str, requests: u32, link: Link) {
        *self.gate(address).due.lock() = Some((requests, link));
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
            Ok(BoxIo::new(Gated { io, gate, wakers, frames: Frames::default(), counted: 0 }))
        })
    }
}

/// Follows the frames that a client sends.
#[derive(Clone, Default)]
struct Frames {
    /// Bytes seen of the preface, then of the header of a frame.
    preface: usize,
    header: [u8; 9],
    have: usize,
    payload: usize,
}

impl Frames {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;

    /// Requests that begin in these bytes.
    fn feed(&mut self, mut bytes: &[u8]) -> u32 {
        let skipped = bytes.len().min(Self::PREFACE - self.preface);
        self.preface += skipped;
        bytes = &bytes[skipped..];
        let mut requests = 0;
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let take = bytes.len().min(9 - self.have);
            self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == 9 {
                self.have = 0;
                let [a, b, c, kind, ..] = self.header;
                self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
                requests += u32::from(kind == Self::HEADERS);
            }
        }
        requests
    }
}

struct Gated {
    io: BoxIo,
    gate: Arc<Gate>,
    wakers: Arc<Wakers>,
    frames: Frames,
    /// Requests counted that are not written yet: the same bytes are offered again after a wait.
    counted: u32,
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
        let fresh = self.frames.clone().feed(buf).saturating_sub(self.counted);
        if fresh > 0 {
            self.counted += fresh;
            self.gate.requests(fresh);
            std::task::ready!(self.pass(&self.wakers.write, cx))?;
        }
        let written = std::task::ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        self.counted = self.counted.saturating_sub(self.frames.feed(&buf[..written]));
        Poll::Ready(Ok(written))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.pass(&self.wakers.write, cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_bytes_are_cut() {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut frame = |kind: u8, payload: &[u8]| {
            sent.extend([0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 1]);
            sent.extend(payload);
        };
        frame(4, &[]);
        frame(1, b"headers");
        frame(0, &[1; 200]);
        frame(1, &[0, 0, 0, 1]);
        for size in [1, 2, 7, 9, 64, 1000] {
            let mut frames = Frames::default();
            assert_eq!(sent.chunks(size).map(|part| frames.feed(part)).sum::<u32>(), 2, "{size}");
        }
    }
}
