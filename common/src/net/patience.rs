//! Ends connections of peers that hold a place and do nothing.
//!
//! A server knows how long to wait only once a peer has begun to speak HTTP, and it writes for as long as the peer
//! leaves room. So one that connects and says nothing, or that asks and never reads, would hold its place for ever, and
//! as many of them as there are places lock everybody else out. Rule: the opening (so many bytes) has to be there in
//! time, and a write has to get on within [`WRITE_PATIENCE`] (before the opening is there, within its time); else
//! reading or writing fails and the server lets go.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::BoxIo;

/// Longest time in which a peer takes none of what is written to it.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// A connection that is waited for only so long.
pub struct Patient {
    io: BoxIo,
    /// Bytes of the opening that are still to come, and when patience with it ends.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    /// Writes have to get on.
    pub fn new(io: BoxIo) -> Self {
        Self { io, opening: None, stalled: None }
    }

    /// And the first `bytes` have to be there within `patience`.
    pub fn opened_by(io: BoxIo, bytes: usize, patience: Duration) -> Self {
        Self { opening: Some((bytes, Box::pin(sleep(patience)))), ..Self::new(io) }
    }

    /// `written`, unless it has waited too long.
    fn progress<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        if let Some((_, patience)) = &mut self.opening
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(late("the peer says nothing")));
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_PATIENCE)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(late("the peer takes nothing of what is written to it")))
    }
}

fn late(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let Some((missing, patience)) = &mut self.opening else { return read };
        *missing = missing.saturating_sub(buf.filled().len() - before);
        if *missing == 0 {
            self.opening = None;
        } else if read.is_pending() {
            ready!(patience.as_mut().poll(cx));
            return Poll::Ready(Err(late("the peer says nothing")));
        }
        read
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.progress(cx, written)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.progress(cx, flushed)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.progress(cx, shut)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.progress(cx, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl tonic::transport::server::Connected for Patient {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    const OPENING: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_silent_or_dripping_peer_is_left_after_the_patience() {
        for said in ["", "PRI * HT"] {
            let (mut client, server) = duplex(64);
            let mut server = Patient::opened_by(BoxIo::new(server), 24, OPENING);
            client.write_all(said.as_bytes()).await.unwrap();
            let start = Instant::now();
            let error = server.read_exact(&mut [0; 24]).await.unwrap_err();
            assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, OPENING));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_spoken_may_be_silent_afterwards() {
        let (mut client, server) = duplex(64);
        let mut server = Patient::opened_by(BoxIo::new(server), 24, OPENING);
        client.write_all(&[7; 24]).await.unwrap();
        server.read_exact(&mut [0; 24]).await.unwrap();
        let waits = tokio::time::timeout(Duration::from_hours(1), server.read_u8()).await;
        assert!(waits.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_left_and_a_slow_one_is_not() {
        let (mut client, server) = duplex(64);
        let mut server = Patient::new(BoxIo::new(server));
        let reading = tokio::spawn(async move {
            let mut taken = [0; 64];
            for _ in 0..8 {
                tokio::time::sleep(WRITE_PATIENCE.checked_sub(Duration::from_secs(1)).unwrap()).await;
                client.read_exact(&mut taken).await.unwrap();
            }
            client
        });
        server.write_all(&[1; 64 * 9]).await.unwrap();
        let _client = reading.await.unwrap();
        let start = Instant::now();
        let error = server.write_all(&[1; 64]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_PATIENCE));
    }
}
