//! Frames that are written in one turn of the runtime leave in one write.
//!
//! The library sends the head of a call the moment it has it and the body a turn later, when the stream it opened has told
//! the body that there is room: two or three small packets for a message of 200 bytes, each of which costs both ends a
//! system call and a wake-up, a quarter of what a root does for a query. Rule: what is written is kept until the writer
//! flushes for the second time; the first flush lets those who are ready run before. Nothing waits for a timer, and what
//! is large does not wait at all.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are kept; beyond that they are written at once.
const KEPT: usize = 16 << 10;

/// A connection whose small writes leave together.
pub struct Together<T> {
    io: T,
    kept: BytesMut,
    /// A flush has let others run.
    yielded: bool,
}

impl<T: AsyncWrite + Unpin> Together<T> {
    /// Over a connection.
    pub fn new(io: T) -> Self {
        Self { io, kept: BytesMut::new(), yielded: false }
    }

    /// Writes what is kept.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.kept))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.kept.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Together<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Together<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if self.kept.len() + bytes > KEPT {
            ready!(self.drain(cx))?;
            if bytes > KEPT {
                return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
            }
        }
        for buf in bufs {
            self.kept.extend_from_slice(buf);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.kept.is_empty() && !self.yielded {
            self.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.drain(cx))?;
        self.yielded = false;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T> tonic::transport::server::Connected for Together<T> {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Counts writes; takes at most so many bytes of each.
    struct Counted(Vec<usize>, usize);

    impl AsyncWrite for Counted {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.1);
            self.0.push(taken);
            Poll::Ready(Ok(taken))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_written_before_the_second_flush_is_one_write() {
        let mut io = Together::new(Counted(Vec::new(), usize::MAX));
        io.write_all(b"head").await.unwrap();
        let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut io).poll_flush(cx).is_ready())).await;
        assert!(!first && io.io.0.is_empty());
        io.write_all(b"body").await.unwrap();
        io.flush().await.unwrap();
        assert_eq!(io.io.0, [8]);
        // The next message is as patient as the first.
        io.write_all(b"head").await.unwrap();
        let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut io).poll_flush(cx).is_ready())).await;
        assert!(!first && io.io.0 == [8]);
        io.shutdown().await.unwrap();
        assert_eq!(io.io.0, [8, 4]);
    }

    #[tokio::test]
    async fn what_is_large_is_written_at_once_and_in_order() {
        let mut io = Together::new(Counted(Vec::new(), usize::MAX));
        io.write_all(&[1; 10]).await.unwrap();
        io.write_all(&vec![2; KEPT + 1]).await.unwrap();
        assert_eq!(io.io.0, [10, KEPT + 1]);
        io.write_all(&vec![3; KEPT]).await.unwrap();
        io.write_all(&[4; 1]).await.unwrap();
        assert_eq!(io.io.0, [10, KEPT + 1, KEPT]);
    }

    #[tokio::test]
    async fn a_peer_that_takes_little_gets_all_in_order() {
        let (near, mut far) = duplex(7);
        let mut io = Together::new(near);
        let sent: Vec<u8> = (0..=255).cycle().take(3 * KEPT).collect();
        let message = sent.clone();
        let writing = tokio::spawn(async move {
            for part in message.chunks(1000) {
                io.write_all(part).await.unwrap();
                io.flush().await.unwrap();
            }
            io.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == sent);
    }
}
