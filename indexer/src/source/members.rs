//! A gzip file as a sequence of members. Web archives hold one record a member, so the border between two members is
//! the only landmark behind a record that was cut off; a reader that hides it swallows the next record.
//!
//! Rules: an empty member is no end of file; zero padding at the end is allowed; anything else that follows a member,
//! a wrong checksum or a missing end is an error.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Size of the decompressed buffer, bytes.
const BUFFER: usize = 64 << 10;
/// Bytes of a new member that are read at once, so that its first line can be looked at.
const HEAD: usize = 16;

/// Reads all members of a gzip stream.
pub(super) struct Members<R> {
    /// `None` at the end of the file.
    decoder: Option<GzDecoder<R>>,
    buffer: Vec<u8>,
    /// Next byte of the buffer.
    next: usize,
    /// Bytes in the buffer.
    held: usize,
    /// The buffer begins with the first byte of a member, and none of it was taken.
    fresh: bool,
    /// An error that came after bytes which are delivered first.
    error: Option<io::Error>,
}

impl<R: BufRead> Members<R> {
    /// Around a reader at the start of a member.
    pub(super) fn new(inner: R) -> Self {
        Self {
            decoder: Some(GzDecoder::new(inner)),
            buffer: vec![0; BUFFER],
            next: 0,
            held: 0,
            fresh: true,
            error: None,
        }
    }

    /// Whether the next byte is the first of a member.
    pub(super) fn at_border(&self) -> bool {
        self.fresh && self.next == 0 && self.held > 0
    }

    /// Reads on within the member; `false` at its end.
    fn refill(&mut self) -> io::Result<bool> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let Some(decoder) = &mut self.decoder else { return Ok(false) };
        while self.held < if self.fresh { HEAD } else { 1 } {
            match decoder.read(&mut self.buffer[self.held..]) {
                Ok(0) => break,
                Ok(read) => self.held += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.held > 0 => {
                    self.error = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.held > 0)
    }

    /// Goes to the next member; `false` at the end of the file.
    fn next_member(&mut self) -> io::Result<bool> {
        let Some(decoder) = self.decoder.take() else { return Ok(false) };
        let mut inner = decoder.into_inner();
        loop {
            let rest = inner.fill_buf()?;
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            match rest.get(zeros) {
                Some(0x1f) => break,
                Some(_) => return Err(io::Error::other("what follows the last gzip member is not gzip")),
                None if zeros == 0 => return Ok(false),
                None => {}
            }
            inner.consume(zeros);
        }
        let zeros = inner.fill_buf()?.iter().take_while(|byte| **byte == 0).count();
        inner.consume(zeros);
        self.decoder = Some(GzDecoder::new(inner));
        self.fresh = true;
        Ok(true)
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Members<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.next == self.held {
            (self.next, self.held) = (0, 0);
            while !self.refill()? {
                if !self.next_member()? {
                    break;
                }
            }
        }
        Ok(&self.buffer[self.next..self.held])
    }

    fn consume(&mut self, amount: usize) {
        self.next = (self.next + amount).min(self.held);
        self.fresh &= amount == 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn member(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
        let mut found = Vec::new();
        let end = Members::new(bytes).read_to_end(&mut found);
        (found, end.err().map(|error| error.to_string()))
    }

    #[test]
    fn empty_members_and_padding_are_no_end() {
        let big = vec![7; 3 * BUFFER];
        let file =
            [member(b"a"), member(b""), member(&big), member(b""), member(b"z"), vec![0; 1000]].concat();
        let (found, error) = read(&file);
        assert_eq!((found.len(), error), (big.len() + 2, None));
    }

    #[test]
    fn cuts_and_rubbish_are_errors_after_what_was_whole() {
        let file = [member(b"first"), member(b"second")].concat();
        for end in member(b"first").len() + 1..file.len() {
            let (found, error) = read(&file[..end]);
            assert!(found.starts_with(b"first") && error.is_some(), "{end}");
        }
        let (found, error) = read(&[&file[..], b"rubbish"].concat());
        assert_eq!(found, b"firstsecond");
        assert!(error.unwrap().contains("not gzip"));
        let mut wrong = member(b"first");
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert!(read(&wrong).1.is_some());
    }

    #[test]
    fn borders_are_seen() {
        let file = [member(b"one"), member(b""), member(b"two")].concat();
        let mut members = Members::new(&file[..]);
        assert_eq!(members.fill_buf().unwrap(), b"one");
        assert!(members.at_border());
        members.consume(1);
        assert!(!members.at_border());
        members.consume(2);
        assert_eq!(members.fill_buf().unwrap(), b"two");
        assert!(members.at_border());
    }
}
