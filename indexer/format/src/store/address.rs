//! The address of a store: a plain path, a `file:` URL or `s3://bucket/prefix`. Other schemes are refused by name; taken for a
//! path, `gs:` would silently become a local directory.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// What an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket and what stands before every name in it, which may be nothing.
    S3 { bucket: String, prefix: String },
}

impl Address {
    /// Reads it.
    pub(super) fn parse(address: &str) -> Result<Self> {
        if address.is_empty() || address.contains('\0') {
            return Err(invalid("an address is a directory, file:///directory or s3://bucket/prefix".into()));
        }
        let Some((scheme, rest)) = address.split_once("://") else {
            return Ok(Self::Directory(PathBuf::from(address)));
        };
        let known = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !known || scheme.is_empty() {
            return Ok(Self::Directory(PathBuf::from(address)));
        }
        match scheme.to_ascii_lowercase().as_str() {
            "file" => directory(address, rest).map(Self::Directory),
            "s3" => bucket(address, rest),
            _ => Err(invalid(format!(
                "{scheme}:// is not built in; use a directory, file:///directory or s3://bucket/prefix"
            ))),
        }
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { field: "store", reason }
}

fn directory(address: &str, rest: &str) -> Result<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(invalid(format!("{address} names a host; write file:///directory")));
    }
    decoded(path).map(PathBuf::from).ok_or_else(|| invalid(format!("{address} has a broken % escape")))
}

fn bucket(address: &str, rest: &str) -> Result<Address> {
    if rest.contains('@') {
        // Not repeated: it would end up in a log.
        return Err(invalid("an address holds no keys; they are access_key_file and secret_key_file".into()));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(letter) {
        return Err(invalid(format!("{address}: a bucket's name has 3 to 63 of a-z, 0-9, - and .")));
    }
    let prefix = prefix.trim_matches('/');
    let part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_=".contains(&byte);
        !part.is_empty() && !part.bytes().all(|byte| byte == b'.') && part.bytes().all(plain)
    };
    if prefix.len() > 512 || !(prefix.is_empty() || prefix.split('/').all(part)) {
        return Err(invalid(format!(
            "{address}: what stands behind the bucket is parts of a-z, A-Z, 0-9, . - _ and =, with one / between"
        )));
    }
    Ok(Address::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
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
            assert_eq!(Address::parse(address).unwrap(), Address::Directory(path.into()), "{address}");
        }
    }

    #[test]
    fn buckets_have_prefixes() {
        for (address, name, prefix) in [
            ("s3://bucket", "bucket", ""),
            ("S3://a.b-c/", "a.b-c", ""),
            ("s3://bucket/search/day=1/", "bucket", "search/day=1"),
        ] {
            let expected = Address::S3 { bucket: name.into(), prefix: prefix.into() };
            assert_eq!(Address::parse(address).unwrap(), expected, "{address}");
        }
    }

    #[test]
    fn other_schemes_and_broken_urls_are_refused() {
        for (address, expected) in [
            ("s3://ab/prefix", "3 to 63"),
            ("s3://Bucket", "3 to 63"),
            ("s3://bucket/a//b", "one / between"),
            ("s3://bucket/../b", "one / between"),
            ("s3://hush:hush@host/b", "holds no keys"),
            ("gs://bucket", "gs:// is not built in"),
            ("https://example.org/x", "https:// is not built in"),
            ("file://host/dir", "names a host"),
            ("file:///a%2", "broken % escape"),
            ("file:///a%zz", "broken % escape"),
            ("file:///a%+1", "broken % escape"),
            ("file:///a%00", "broken % escape"),
            ("file:///a%ff", "broken % escape"),
            ("", "an address is"),
            ("a\0b", "an address is"),
        ] {
            let found = Address::parse(address).unwrap_err().to_string();
            assert!(found.contains(expected) && !found.contains("hush"), "{address}: {found}");
        }
    }
}
