//! Snippets: the part of a document that shows why it was found.
//!
//! Best fragments by the query's words ([`terms`], [`scan`], [`fragment`]), cut between graphemes, escaped so that
//! only our markers are live ([`render`]), with ranges for callers that mark by themselves. Policy of a fetched document:
//! `snippet` is HTML and safe to show; `title`, `key`, `snippet_text` and the fields are the document's own text, to
//! be escaped by whoever shows them. A document without body text has the empty snippet; one whose body has none of
//! the words (they were in its title, or in a part beyond the scan limit) shows the beginning of its text.

pub mod fragment;
pub mod markup;
pub mod render;
pub mod scan;
pub mod terms;

use canopy_common::error::Failure;
use canopy_format::analysis::Analyzer;
use canopy_proto::v1::SnippetBy;

use self::{
    render::{Markers, Writer},
    scan::Scan,
    terms::Terms,
};
pub use render::Snippet;

/// Length when the request leaves it open, characters.
pub const DEFAULT_CHARS: u32 = 200;
/// Characters kept free for the ellipses of one fragment.
const ELLIPSES: usize = 4;

/// Makes the snippets of one request.
pub struct Snippets {
    analyzer: Analyzer,
    markers: Markers,
    chars: usize,
    scan_bytes: usize,
}

impl Snippets {
    /// Checks what a request wants; at most `scan_bytes` of each text are looked at.
    pub fn new(analyzer: Analyzer, by: &SnippetBy, scan_bytes: usize) -> Result<Self, Failure> {
        let chars = if by.max_chars == 0 { DEFAULT_CHARS } else { by.max_chars };
        Ok(Self { analyzer, markers: Markers::of(by)?, chars: chars as usize, scan_bytes })
    }

    /// The snippet of `text`, a document in `language`. `stop` is asked between blocks of text; once true, what was
    /// found so far is shown.
    pub fn make(&self, terms: &Terms, text: &str, language: &str, stop: &dyn Fn() -> bool) -> Snippet {
        let text = text.trim_end();
        let text = text.trim_start();
        if text.is_empty() {
            return Snippet::default();
        }
        let ellipses = self.chars > 10 * ELLIPSES;
        let budget = if ellipses { self.chars - ELLIPSES } else { self.chars };
        let scan = Scan { analyzer: &self.analyzer, terms, language, budget, limit: self.scan_bytes };
        let (matches, chosen) = scan.run(text, stop);
        let mut writer = Writer::new(&self.markers);
        for (number, fragment) in chosen.fragments.iter().enumerate() {
            if ellipses && (number > 0 || fragment.start > 0) {
                writer.own(if number > 0 { " … " } else { "… " });
            }
            let inside = matches.iter().filter(|m| m.start >= fragment.start && m.end <= fragment.end);
            let mut marked: Vec<std::ops::Range<usize>> = Vec::new();
            for found in inside {
                let range = found.start - fragment.start..found.end - fragment.start;
                match marked.last_mut() {
                    Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                    _ => marked.push(range),
                }
            }
            writer.fragment(&text[fragment.clone()], &marked);
        }
        let cut = chosen.fragments.last().is_some_and(|fragment| fragment.end < text.len());
        if ellipses && cut {
            writer.own(" …");
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests;
