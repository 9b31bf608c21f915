//! A body for what the HTTP library refuses by itself.
//!
//! A head that it can't read (an address of more than 64 KiB, a hundred headers, no HTTP at all) never becomes a request:
//! the library answers it with a bare status, and a client that reads errors as JSON finds nothing to read. Rule: on the
//! way out a bare 400, 414 or 431 becomes the error body of all others; everything else passes as it is. The bare answer
//! is told from ours by what it lacks: ours have a content type. Only HTTP/1: over HTTP/2 the same is a bare 431.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use canopy_common::error::{ErrorClass, Failure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::reply;

/// Longest address that the library reads, bytes.
const LONGEST_ADDRESS: u64 = u16::MAX as u64 - 1;
/// A bare answer is shorter.
const BARE: usize = 512;

/// A connection whose refusals have a body.
pub struct Explained<I> {
    io: I,
    refusal: Option<Refusal>,
}

/// What is written in place of a bare answer.
struct Refusal {
    text: Vec<u8>,
    written: usize,
    /// Bytes of the bare answer.
    instead_of: usize,
}

impl<I: AsyncWrite + Unpin> Explained<I> {
    /// Over a connection.
    pub fn new(io: I) -> Self {
        Self { io, refusal: None }
    }

    /// Writes a refusal to its end, when there is one.
    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<usize>>> {
        let Some(refusal) = &mut self.refusal else { return Poll::Ready(None) };
        while refusal.written < refusal.text.len() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &refusal.text[refusal.written..])) {
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::WriteZero.into()))),
                Ok(written) => refusal.written += written,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        let instead_of = refusal.instead_of;
        self.refusal = None;
        Poll::Ready(Some(Ok(instead_of)))
    }
}

/// The status of a bare answer, when this is one.
fn bare(bytes: &[u8]) -> Option<u16> {
    let status = match bytes.get(..12)? {
        b"HTTP/1.1 400" => 400,
        b"HTTP/1.1 414" => 414,
        b"HTTP/1.1 431" => 431,
        _ => return None,
    };
    if bytes.len() > BARE {
        return None;
    }
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?.to_ascii_lowercase();
    let plain = !head.contains("\r\n\r\n") && !head.contains("\r\ncontent-type:");
    (plain && head.contains("\r\ncontent-length: 0")).then_some(status)
}

/// The whole answer with a body. The connection ends after it, as it would have.
fn explained(status: u16) -> Vec<u8> {
    let (phrase, code, failure) = match status {
        414 => {
            let message = format!(
                "the address is longer than {LONGEST_ADDRESS} bytes; send the query as JSON: POST /v1/CORPUS/search"
            );
            let failure = Failure::new(ErrorClass::InvalidArgument, message).with_limit(LONGEST_ADDRESS);
            ("URI Too Long", "URI_TOO_LONG", failure)
        }
        431 => {
            let message = "there are more than 100 headers, or they are too long; send fewer";
            let failure = Failure::new(ErrorClass::InvalidArgument, message).with_limit(100);
            ("Request Header Fields Too Large", "HEADERS_TOO_LARGE", failure)
        }
        _ => {
            let failure =
                Failure::new(ErrorClass::InvalidArgument, "this is not a request of HTTP/1.1 or HTTP/2");
            ("Bad Request", ErrorClass::InvalidArgument.code(), failure)
        }
    };
    let body = reply::text(code, &failure);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

impl<I: AsyncRead + Unpin> AsyncRead for Explained<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Explained<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.refusal.is_none()
            && let Some(status) = bare(buf)
        {
            self.refusal = Some(Refusal { text: explained(status), written: 0, instead_of: buf.len() });
        }
        match ready!(self.poll_refusal(cx)) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(&mut self.io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
        if self.refusal.is_some() || bare(first).is_some() {
            return self.poll_write(cx, first);
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[test]
    fn only_bare_answers_are_taken_for_the_librarys() {
        let bytes = |text: &str| bare(text.as_bytes());
        assert_eq!(bytes("HTTP/1.1 414 URI Too Long\r\ncontent-length: 0\r\ndate: x\r\n\r\n"), Some(414));
        assert_eq!(bytes("HTTP/1.1 414 URI Too Long\r\nContent-Length: 0\r\n\r\n"), Some(414));
        for ours in [
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 10\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "",
        ] {
            assert_eq!(bytes(ours), None, "{ours}");
        }
    }

    #[tokio::test]
    async fn a_refusal_gets_out_whole_through_a_narrow_pipe_and_what_follows_is_as_it_was() {
        let (mut client, server) = duplex(7);
        let mut server = Explained::new(server);
        let writing = tokio::spawn(async move {
            server.write_all(b"HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            server.write_all(b"more").await.unwrap();
        });
        let mut seen = String::new();
        client.read_to_string(&mut seen).await.unwrap();
        writing.await.unwrap();
        let (head, body) = seen.split_once("\r\n\r\n").unwrap();
        let body = body.strip_suffix("more").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{seen}");
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"]["code"], "HEADERS_TOO_LARGE");
    }
}
