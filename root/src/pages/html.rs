//! The few ways in which text becomes HTML or part of an address. Everything that is shown goes through here.

/// Appends formatted text to a string, which can't fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _into_a_string = write!($out, $($arg)*);
    }};
}
pub(super) use put;

/// Text as HTML: safe between tags and inside quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Controls have no place in a page.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Text as a value in a query string.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => put!(out, "%{byte:02X}"),
        }
    }
    out
}

/// A text with the given byte ranges marked; ranges that are out of order or split a character are left out.
pub fn marked(text: &str, ranges: &[(u32, u32)]) -> String {
    let mut out = String::new();
    let mut at = 0;
    for &(start, end) in ranges {
        let (start, end) = (start as usize, end as usize);
        if start < at || end <= start {
            continue;
        }
        let (Some(before), Some(inside)) = (text.get(at..start), text.get(start..end)) else { continue };
        put!(out, "{}<mark>{}</mark>", escape(before), escape(inside));
        at = end;
    }
    out.push_str(&escape(text.get(at..).unwrap_or_default()));
    out
}

/// The address when a link may lead there: http and https only, so that no stored `javascript:` runs.
pub fn link(key: &str) -> Option<&str> {
    let scheme = key.split_once("://")?.0;
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")).then_some(key)
}

/// A message as a sentence: capital first, full stop last.
pub fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let end = if message.ends_with(['.', '!', '?', '…']) || message.is_empty() { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_markup_is_text() {
        let evil = r#"<script>alert(1)</script>&"'"#;
        assert_eq!(escape(evil), "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;");
        assert_eq!(escape("a\u{0}b\n"), "a\u{fffd}b\n");
        assert_eq!(encode("a b&c=ü/+"), "a+b%26c%3D%C3%BC%2F%2B");
    }

    #[test]
    fn marks_never_overlap_or_split_a_character() {
        let text = "<b>größe</b>";
        assert_eq!(marked(text, &[(3, 10), (4, 6)]), "&lt;b&gt;<mark>größe</mark>&lt;/b&gt;");
        assert_eq!(marked("größe", &[(3, 4), (9, 99), (2, 1)]), "größe");
    }

    #[test]
    fn only_web_addresses_are_links() {
        assert!(link("https://a/").is_some() && link("HTTP://a/").is_some());
        for other in ["javascript:alert(1)", "javascript://%0aalert(1)", "data:text/html,x", "a", "//a"] {
            assert_eq!(link(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        let texts: Vec<String> = [0, 999, 1000, 1_234_567].map(grouped).into();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
