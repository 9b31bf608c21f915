//! What went wrong, as one line. An error that already repeats its cause in its own text is told once.

use std::io::ErrorKind;

use anyhow::{Error, Result, anyhow};
use canopy_format::{error::Error as StoreError, store::VersionStore};

/// The chain of causes, without repetition.
pub fn line(error: &Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

/// A store that must exist.
pub fn open_store(url: &str) -> Result<VersionStore> {
    VersionStore::open(url, false).map_err(|error| match error {
        StoreError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            anyhow!("there is no store {url}; hint: `canopy corpus create web --store {url}` makes one")
        }
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("refused").context("a: refused").context("b");
        assert_eq!(line(&error), "b: a: refused");
    }

    #[test]
    fn a_store_that_is_missing_is_named_with_the_way_out() {
        let error = open_store("/nowhere/at/all").err().unwrap();
        assert!(line(&error).starts_with("there is no store /nowhere/at/all; hint: "), "{error:#}");
    }
}
