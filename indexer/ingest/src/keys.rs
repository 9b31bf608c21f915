//! Who may write: API keys from a file, one `NAME KEY` a line, or `NAME KEY CORPUS,CORPUS` for some corpora only.
//!
//! Only digests are kept, and they are compared in constant time, all of them, so that neither a dump nor a clock tells a key. A file
//! that is not there or not readable stops a start, and changes nothing later: nobody gets in because a file is wrong.

use std::path::Path;

use arc_swap::ArcSwapOption;
use canopy_common::bounded;

use crate::error::{Error, Result};

/// Shortest key, bytes.
const SHORTEST: usize = 16;

/// The keys; none: everybody may write.
#[derive(Default)]
pub struct Keys(ArcSwapOption<Vec<Known>>);

struct Known {
    name: String,
    digest: blake3::Hash,
    /// Empty: all.
    corpora: Vec<String>,
}

impl Keys {
    /// From a file; empty: everybody may write.
    pub fn open(path: &str) -> Result<Self> {
        let keys = Self::default();
        keys.reload(path)?;
        Ok(keys)
    }

    /// Reads the file again.
    pub fn reload(&self, path: &str) -> Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let text = bounded::text(Path::new(path), bounded::MOST_SETTINGS)
            .map_err(|source| Error::io(Path::new(path), source))?;
        self.0.store(Some(parse(&text)?.into()));
        Ok(())
    }

    /// Whether there are any.
    pub fn required(&self) -> bool {
        self.0.load().is_some()
    }

    /// Who it is, by the value of `Authorization`.
    pub fn check(&self, authorization: Option<&[u8]>, corpus: &str) -> Result<String> {
        let known = self.0.load();
        let Some(known) = known.as_deref() else { return Ok(String::new()) };
        let hint = "send `Authorization: Bearer KEY`";
        let given =
            authorization.ok_or_else(|| Error::Unauthenticated(format!("a key is needed; {hint}")))?;
        let key =
            bearer(given).ok_or_else(|| Error::Unauthenticated(format!("this is no bearer key; {hint}")))?;
        let digest = blake3::hash(key);
        let mut found = None;
        for one in known {
            if one.digest == digest {
                found = Some(one);
            }
        }
        let found = found.ok_or_else(|| Error::Unauthenticated("the key is not known".to_owned()))?;
        if !found.corpora.is_empty() && !found.corpora.iter().any(|may| may == corpus) {
            let corpus: String = corpus.chars().take(64).collect();
            return Err(Error::Forbidden(format!("the key of {} is not for corpus {corpus:?}", found.name)));
        }
        Ok(found.name.clone())
    }
}

fn bearer(given: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = (given.get(..7)?, given.get(7..)?.trim_ascii());
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

/// Errors name the line and never its text.
fn parse(text: &str) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| Error::invalid("ingest.keys_file", format!("line {}: {why}", at + 1));
        let parts: Vec<_> = line.split_whitespace().collect();
        let (name, key, corpora) = match parts.as_slice() {
            [name, key] => (name, key, ""),
            [name, key, corpora] => (name, key, *corpora),
            _ => return Err(wrong("expected NAME KEY, or NAME KEY CORPUS,CORPUS")),
        };
        if key.len() < SHORTEST {
            return Err(wrong(&format!("a key has at least {SHORTEST} characters")));
        }
        let digest = blake3::hash(key.as_bytes());
        if known.iter().any(|other| other.digest == digest) {
            return Err(wrong("the same key as on a line before"));
        }
        let corpora = corpora.split(',').filter(|corpus| !corpus.is_empty()).map(str::to_owned).collect();
        known.push(Known { name: (*name).to_owned(), digest, corpora });
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use canopy_common::error::{Classify, ErrorClass};

    use super::*;

    #[test]
    fn keys_open_what_they_are_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let text = "# writers\ncrawler 0123456789abcdef\nshop fedcba9876543210 shop,shop-test\n\n";
        std::fs::write(&path, text).unwrap();
        let keys = Keys::open(&path.display().to_string()).unwrap();
        let class = |given: Option<&str>, corpus| {
            keys.check(given.map(str::as_bytes), corpus).map_err(|error| error.class())
        };
        assert_eq!(class(Some("Bearer 0123456789abcdef"), "web"), Ok("crawler".to_owned()));
        assert_eq!(class(Some("bearer fedcba9876543210"), "shop"), Ok("shop".to_owned()));
        assert_eq!(class(Some("Bearer fedcba9876543210"), "web"), Err(ErrorClass::PermissionDenied));
        for wrong in [None, Some("Bearer 0123456789abcdee"), Some("Basic 0123456789abcdef"), Some("Bearer ")]
        {
            assert_eq!(class(wrong, "web"), Err(ErrorClass::Unauthenticated), "{wrong:?}");
        }
        assert_eq!(Keys::default().check(None, "web").unwrap(), "");
        assert!(Keys::open("/no/such/file").is_err());
    }

    #[test]
    fn a_wrong_file_is_named_by_line_and_shows_no_key() {
        for text in ["one", "a short", "a 0123456789abcdef x y", "a 0123456789abcdef\nb 0123456789abcdef"] {
            let error = parse(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("line ") && !error.contains("0123456789"), "{error}");
        }
    }
}
