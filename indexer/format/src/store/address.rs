//! The address of a store: a plain path or a `file:` URL. Other schemes are refused by name; taken for a path, `s3:`
//! would silently become a local directory.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// The local directory that an address names.
pub(super) fn directory(address: &str) -> Result<PathBuf> {
    let invalid = |reason: String| Error::Invalid { field: "store", reason };
    if address.is_empty() || address.contains('\0') {
        return Err(invalid("an address is a directory or file:///directory".into()));
    }
    let Some((scheme, rest)) = address.split_once("://") else { return Ok(PathBuf::from(address)) };
    let known = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !known || scheme.is_empty() {
        return Ok(PathBuf::from(address));
    }
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(invalid(format!(
            "{scheme}:// is not built in yet; use a directory or file:///directory"
        )));
    }
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(invalid(format!("{address} names a host; write file:///directory")));
    }
    decoded(path).map(PathBuf::from).ok_or_else(|| invalid(format!("{address} has a broken % escape")))
}

fn decoded(path: &str) -> Option<String> {
    let mut parts = path.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_urls_are_directories() {
        for (address, path) in [
            ("data/store", "data/store"),
            ("/srv/store", "/srv/store"),
            ("file:///srv/store", "/srv/store"),
            ("FILE://localhost/srv/a%20b%C3%A9", "/srv/a bé"),
            ("/odd://name", "/odd://name"),
        ] {
            assert_eq!(directory(address).unwrap(), PathBuf::from(path), "{address}");
        }
    }

    #[test]
    fn other_schemes_and_broken_urls_are_refused() {
        for (address, expected) in [
            ("s3://bucket/prefix", "s3:// is not built in yet"),
            ("gs://bucket", "gs:// is not built in yet"),
            ("https://example.org/x", "https:// is not built in yet"),
            ("file://host/dir", "names a host"),
            ("file:///a%2", "broken % escape"),
            ("file:///a%zz", "broken % escape"),
            ("file:///a%+1", "broken % escape"),
            ("file:///a%00", "broken % escape"),
            ("file:///a%ff", "broken % escape"),
            ("", "an address is"),
            ("a\0b", "an address is"),
        ] {
            let found = directory(address).unwrap_err().to_string();
            assert!(found.contains(expected), "{address}: {found}");
        }
    }
}
