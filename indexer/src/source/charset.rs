//! Bytes of a page as text. In the order of browsers: byte order mark, the server's word, the page's own word in its
//! first bytes, and at last what the bytes look like. One exception: text that a server calls Latin-1 but that is valid
//! UTF-8 with characters beyond ASCII is UTF-8; servers that name a default are far more common than such Latin-1.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

/// Bytes of a page that are searched for its own word.
const PRESCAN: usize = 4096;

/// The text. Bytes that are not of the encoding become U+FFFD.
pub(super) fn decode<'a>(bytes: &'a [u8], server: Option<&str>, html: bool) -> Cow<'a, str> {
    let utf8 = std::str::from_utf8(bytes);
    let named = server.and_then(|label| Encoding::for_label(label.trim().as_bytes()));
    let encoding = named.or_else(|| if html { declared(bytes) } else { None });
    match (encoding, utf8) {
        (None, Ok(_)) => UTF_8.decode(bytes).0,
        (Some(encoding), Ok(text)) if encoding == WINDOWS_1252 && !text.is_ascii() => UTF_8.decode(bytes).0,
        (encoding, _) => encoding.unwrap_or(WINDOWS_1252).decode(bytes).0,
    }
}

/// The charset that a page's `meta` element names.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes[..bytes.len().min(PRESCAN)].to_ascii_lowercase();
    let mut rest = head.as_slice();
    while let Some(at) = find(rest, b"<meta") {
        rest = &rest[at + 5..];
        let tag = &rest[..rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len())];
        let Some(at) = find(tag, b"charset") else { continue };
        let value =
            tag[at + 7..].trim_ascii_start().strip_prefix(b"=").unwrap_or_default().trim_ascii_start();
        let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"';/".contains(byte);
        let label = &value[..value.iter().position(ends).unwrap_or(value.len())];
        if let Some(encoding) = Encoding::for_label(label) {
            // A page that can be read so far is not UTF-16, whatever it says.
            return Some(match encoding {
                wide if wide == UTF_16LE || wide == UTF_16BE => UTF_8,
                user if user == X_USER_DEFINED => WINDOWS_1252,
                other => other,
            });
        }
    }
    None
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_then_the_server_then_the_page_decide() {
        for (bytes, server, expected) in [
            (&b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe"[..], Some("latin1"), "grüße"),
            (b"\xff\xfeg\0r\0\xfc\0", None, "grü"),
            (b"gr\xfc\xdfe", Some("iso-8859-1"), "grüße"),
            (b"gr\xc3\xbc\xc3\x9fe", Some("ISO-8859-1"), "grüße"),
            (b"gr\xc3\xbc\xc3\x9fe", None, "grüße"),
            (b"gr\xfc\xdfe", None, "grüße"),
            (b"\xef\xf0\xe8\xe2\xe5\xf2", Some("windows-1251"), "привет"),
            (b"\xef\xf0\xe8\xe2\xe5\xf2", Some("no-such-charset"), "ïðèâåò"),
            (b"\x82\xa0", Some("shift_jis"), "あ"),
            (b"gr\xfc", Some("utf-8"), "gr\u{fffd}"),
        ] {
            assert_eq!(decode(bytes, server, true), expected);
        }
    }

    #[test]
    fn pages_name_their_charset_in_many_ways() {
        for meta in [
            "<meta charset=windows-1251>",
            "<META CHARSET='Windows-1251' />",
            "<meta name=x><meta http-equiv=\"Content-Type\" content=\"text/html; charset=windows-1251\">",
            "<meta charset = \"windows-1251\">",
        ] {
            let page = [meta.as_bytes(), b"\xef\xf0\xe8"].concat();
            assert!(decode(&page, None, true).ends_with("при"), "{meta}");
            assert!(!decode(&page, None, false).ends_with("при"), "{meta}");
        }
        for meta in
            ["<meta charset=utf-16>", "<meta charset", "<meta", "<meta charset=\"\">", "<meta charset=x>"]
        {
            assert!(decode(format!("{meta}é").as_bytes(), None, true).ends_with('é'), "{meta}");
        }
    }
}
