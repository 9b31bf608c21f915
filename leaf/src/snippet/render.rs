//! Writes fragments twice: as plain text with ranges, and as HTML in which only our own markers are live.
//!
//! The failure this prevents: a document's `<script>` runs on the result page, or a document that contains the marker
//! text fakes a match. Rule: every character of the document that HTML or a marker could read as its own is written as
//! a character reference. White space runs become one space; control characters and those that turn the direction of
//! what follows are left out. Units of ranges: bytes of the plain text.

use std::{fmt::Write, ops::Range};

use canopy_common::error::Failure;
use canopy_proto::v1::{SnippetBy, SnippetRange};

/// Longest marker, bytes.
pub const MAX_MARKER: usize = 64;

/// The markers, and what a document may not write as it is because of them.
#[derive(Debug, Clone)]
pub struct Markers {
    open: String,
    close: String,
    escaped: Vec<char>,
}

impl Markers {
    /// Takes the markers of a request. An empty marker is fine; one that is only letters and digits is not, because
    /// any text could contain it.
    pub fn of(by: &SnippetBy) -> Result<Self, Failure> {
        let mut escaped = vec!['&', '<', '>', '"', '\''];
        for (name, marker) in [("snippet.open", &by.open), ("snippet.close", &by.close)] {
            if marker.len() > MAX_MARKER {
                let message = format!("{name} is {} bytes; the limit is {MAX_MARKER}", marker.len());
                return Err(Failure::invalid(name, message).with_limit(MAX_MARKER as u64));
            }
            let plain = |c: char| c.is_alphanumeric() || c.is_whitespace() || matches!(c, '&' | '#' | ';');
            match marker.chars().find(|c| !plain(*c)) {
                Some(c) => escaped.push(c),
                None if marker.is_empty() => {}
                None => {
                    let message =
                        format!("{name} needs a character such as < or *, so that no text can fake it");
                    return Err(Failure::invalid(name, message));
                }
            }
        }
        Ok(Self { open: by.open.clone(), close: by.close.clone(), escaped })
    }
}

/// A finished snippet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snippet {
    /// Escaped, with markers.
    pub html: String,
    /// The same without escapes and markers.
    pub text: String,
    /// Matches in `text`.
    pub ranges: Vec<SnippetRange>,
}

/// Builds a snippet piece by piece.
pub struct Writer<'a> {
    markers: &'a Markers,
    out: Snippet,
    space: bool,
}

impl<'a> Writer<'a> {
    /// An empty snippet.
    pub fn new(markers: &'a Markers) -> Self {
        Self { markers, out: Snippet::default(), space: false }
    }

    /// Our own text between fragments.
    pub fn own(&mut self, text: &str) {
        self.out.html.push_str(text);
        self.out.text.push_str(text);
        self.space = false;
    }

    /// A fragment of the document with the ranges in it to mark, in order and apart.
    pub fn fragment(&mut self, text: &str, marked: &[Range<usize>]) {
        let (mut marked, mut opened) = (marked.iter().peekable(), None);
        for (index, c) in text.char_indices() {
            if marked.peek().is_some_and(|range| index >= range.end) {
                self.close(opened.take());
                marked.next();
            }
            if c.is_whitespace() {
                self.space = true;
                continue;
            }
            if hidden(c) {
                continue;
            }
            if std::mem::take(&mut self.space) && !self.out.text.is_empty() && !self.out.text.ends_with(' ') {
                self.character(' ');
            }
            if opened.is_none() && marked.peek().is_some_and(|range| index >= range.start) {
                opened = Some(self.out.text.len());
                self.out.html.push_str(&self.markers.open);
            }
            self.character(c);
        }
        self.close(opened);
    }

    fn close(&mut self, opened: Option<usize>) {
        if let Some(start) = opened {
            self.out.html.push_str(&self.markers.close);
            self.out.ranges.push(SnippetRange { start: start as u32, end: self.out.text.len() as u32 });
        }
    }

    fn character(&mut self, c: char) {
        self.out.text.push(c);
        match c {
            '&' => self.out.html.push_str("&amp;"),
            '<' => self.out.html.push_str("&lt;"),
            '>' => self.out.html.push_str("&gt;"),
            '"' => self.out.html.push_str("&quot;"),
            '\'' => self.out.html.push_str("&#39;"),
            c if self.markers.escaped.contains(&c) => {
                let _never_fails = write!(self.out.html, "&#{};", u32::from(c));
            }
            c => self.out.html.push(c),
        }
    }

    /// The snippet.
    pub fn finish(self) -> Snippet {
        self.out
    }
}

/// Control characters, byte order marks and directional embeddings, overrides and isolates.
fn hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{FEFF}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
