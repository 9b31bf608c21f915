//! Lines of a body that arrives in pieces, each of bounded length.
//!
//! The failure this prevents: one document of 50 MiB that stalls a feed, and nobody can tell which one it was. Rules: of a line
//! above the limit only its head is kept, so that its key can be named; the rest is passed over as it arrives, and the next line is
//! read as if nothing had been. Units: bytes.

use bytes::Bytes;

/// How much of a line that is too long is kept.
const HEAD: usize = 4 << 10;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its text, or the head of it.
    pub text: Bytes,
    /// Its number in the body, from 1.
    pub number: u64,
    /// Its length, when it is above the limit.
    pub too_long: Option<u64>,
}

/// Takes pieces, gives lines.
pub struct Lines {
    most: usize,
    line: Vec<u8>,
    length: u64,
    number: u64,
}

impl Lines {
    /// Lines of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, line: Vec::new(), length: 0, number: 1 }
    }

    /// Takes from a piece up to the end of a line; the line, when it is whole, and how much was taken.
    pub fn take(&mut self, piece: &[u8]) -> (Option<Line>, usize) {
        let end = piece.iter().position(|byte| *byte == b'\n');
        let part = piece.get(..end.unwrap_or(piece.len())).unwrap_or_default();
        self.length += part.len() as u64;
        if self.length <= self.most as u64 {
            self.line.extend_from_slice(part);
        } else {
            let room = HEAD.min(self.most).saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            if self.line.len() > HEAD {
                self.line.truncate(HEAD);
                self.line.shrink_to_fit();
            }
        }
        match end {
            Some(end) => (self.end(), end + 1),
            None => (None, piece.len()),
        }
    }

    /// The line so far, as if it had ended; `None`: it is blank.
    pub fn end(&mut self) -> Option<Line> {
        let (text, length, number) = (std::mem::take(&mut self.line), self.length, self.number);
        self.length = 0;
        self.number += 1;
        let too_long = (length > self.most as u64).then_some(length);
        if too_long.is_none() && text.trim_ascii().is_empty() {
            return None;
        }
        Some(Line { text: text.into(), number, too_long })
    }
}

/// The value of a name in the head of a JSON object, as far as it is there.
pub fn peek(head: &[u8], name: &str) -> Option<String> {
    let quoted = format!("\"{name}\"");
    let at = head.windows(quoted.len()).position(|window| window == quoted.as_bytes())?;
    let rest = head.get(at + quoted.len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
    values.next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(most: usize, pieces: &[&str]) -> Vec<(String, u64, Option<u64>)> {
        let (mut lines, mut found) = (Lines::new(most), Vec::new());
        for piece in pieces {
            let mut rest = piece.as_bytes();
            while !rest.is_empty() {
                let (line, taken) = lines.take(rest);
                found.extend(line);
                rest = &rest[taken..];
            }
        }
        found.extend(lines.end());
        let shown =
            |line: Line| (String::from_utf8_lossy(&line.text).into_owned(), line.number, line.too_long);
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn lines_come_out_however_they_are_cut() {
        let expected = [("ab".to_owned(), 1, None), ("cde".to_owned(), 3, None), ("f".to_owned(), 4, None)];
        let text = "ab\n\r\ncde\nf";
        for at in 0..=text.len() {
            assert_eq!(lines(10, &[&text[..at], &text[at..]]), expected);
        }
        assert_eq!(lines(10, &["", "\n", "\n"]), []);
    }

    #[test]
    fn a_long_line_keeps_its_head_and_hides_no_other() {
        let long = "x".repeat(50_000);
        let found = lines(10_000, &["ab\n", &long, &long, "\ncd"]);
        assert_eq!(found.iter().map(|(_, _, long)| *long).collect::<Vec<_>>(), [None, Some(100_000), None]);
        assert!(found[1].0.len() <= HEAD);
        assert_eq!(found[2].0, "cd");
        assert_eq!(lines(2, &["abc\nab\n"]), [("ab".to_owned(), 1, Some(3)), ("ab".to_owned(), 2, None)]);
    }

    #[test]
    fn a_key_is_found_in_a_head() {
        assert_eq!(peek(br#"{"op":"put","key" : "a\"b","document":{"#, "key").as_deref(), Some("a\"b"));
        assert_eq!(peek(br#"{"op":"put","key":"a"#, "key"), None);
        assert_eq!(peek(b"{", "key"), None);
    }
}
