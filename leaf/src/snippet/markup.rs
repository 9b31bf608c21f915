//! Places of a text that look like HTML: character references (`&amp;`, `&#39;`) and tags of known elements. Sources
//! sometimes keep markup in what should be plain text; a query for `amp` or `href` must not light up inside it.
//!
//! Only real element names count, so `<stdio.h>` and `Vec<String>` remain words of the text.

use std::ops::Range;

/// Longest tag looked at, bytes; a `<` that is not closed within is text.
const MAX_TAG: usize = 2048;
/// Longest character reference, bytes.
const MAX_REFERENCE: usize = 32;

/// HTML element names, sorted.
const ELEMENTS: [&str; 61] = [
    "a",
    "abbr",
    "article",
    "aside",
    "b",
    "blockquote",
    "body",
    "br",
    "button",
    "center",
    "code",
    "dd",
    "div",
    "dl",
    "dt",
    "em",
    "figure",
    "font",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "input",
    "label",
    "li",
    "link",
    "main",
    "meta",
    "nav",
    "object",
    "ol",
    "option",
    "p",
    "pre",
    "script",
    "section",
    "select",
    "small",
    "span",
    "strong",
    "style",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];

/// The byte ranges of `text` that look like markup, in order.
pub fn places(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = match bytes[at] {
            b'&' => reference(&bytes[at..]),
            b'<' => tag(&bytes[at..]),
            _ => None,
        };
        if let Some(length) = length {
            found.push(at..at + length);
            at += length;
        } else {
            at += 1;
        }
    }
    found
}

fn reference(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().take(MAX_REFERENCE).position(|byte| *byte == b';')?;
    let name = &bytes[1..end];
    let digits = name.strip_prefix(b"#").map(|n| n.strip_prefix(b"x").or(n.strip_prefix(b"X")).unwrap_or(n));
    let good = match digits {
        Some(digits) => !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit),
        None => name.len() > 1 && name.iter().all(u8::is_ascii_alphanumeric),
    };
    good.then_some(end + 1)
}

fn tag(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"<!--") {
        let close = bytes[..bytes.len().min(MAX_TAG)].windows(3).position(|three| three == b"-->")?;
        return Some(close + 3);
    }
    let name_at = if bytes.get(1) == Some(&b'/') { 2 } else { 1 };
    let name_end = bytes[name_at..].iter().take(12).position(|byte| !byte.is_ascii_alphanumeric())? + name_at;
    if !matches!(bytes[name_end], b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n') {
        return None;
    }
    let name = bytes[name_at..name_end].to_ascii_lowercase();
    ELEMENTS.binary_search_by(|element| element.as_bytes().cmp(&name)).ok()?;
    let close = bytes.iter().take(MAX_TAG).position(|byte| *byte == b'>')?;
    Some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        places(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn references_and_known_tags_are_markup_and_code_is_not() {
        assert!(ELEMENTS.is_sorted());
        assert_eq!(found("Tom &amp; &#39;J&#x27; AT&T; a&b &;"), ["&amp;", "&#39;", "&#x27;"]);
        assert_eq!(
            found("<a href=\"x\">y</a><BR/><!-- href -->"),
            ["<a href=\"x\">", "</a>", "<BR/>", "<!-- href -->"]
        );
        assert!(found("#include <stdio.h> Vec<String> a < b > c <a").is_empty());
        assert!(found(&format!("<a {}>", "x".repeat(5000))).is_empty());
    }
}
