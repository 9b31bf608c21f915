//! What went wrong, as one line. An error that already repeats its cause in its own text is told once.

use std::io::{self, ErrorKind};

use anyhow::Error;

/// Nobody could be asked any more how it went on: neither done nor failed, as far as is known.
#[derive(Debug)]
pub struct GaveUp;

impl std::fmt::Display for GaveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("gave up looking")
    }
}

/// It stands until somebody decides.
#[derive(Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it stands")
    }
}

/// The exit status that tells what kind of failure it is; 2 is wrong usage.
pub fn status(error: &Error) -> u8 {
    if error.downcast_ref::<GaveUp>().is_some() {
        3
    } else if error.downcast_ref::<Stopped>().is_some() {
        4
    } else {
        1
    }
}

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
    if let Some(hint) = hint(error).filter(|_| !line.contains("hint: ")) {
        line.push_str("; hint: ");
        line.push_str(hint);
    }
    line
}

/// What to do about a refusal of the file system.
fn hint(error: &Error) -> Option<&'static str> {
    let kind = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).last()?.kind();
    Some(match kind {
        ErrorKind::StorageFull => "make room; a build's spill files can go elsewhere, --temp DIR",
        ErrorKind::QuotaExceeded => "raise the quota; a build's spill files can go elsewhere, --temp DIR",
        ErrorKind::ReadOnlyFilesystem => "mount it for writing, or name another --store",
        ErrorKind::PermissionDenied => "look at its owner and mode, and at who runs this",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use canopy_format::error::Error as StoreError;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("refused").context("a: refused").context("b");
        assert_eq!(line(&error), "b: a: refused");
    }

    #[test]
    fn who_gave_up_has_a_status_of_his_own() {
        let error = anyhow!("the service does not answer").context(GaveUp);
        assert_eq!((status(&error), status(&anyhow!("turned back"))), (3, 1));
        assert_eq!(status(&anyhow!("paused by ann").context(Stopped)), 4);
        assert_eq!(line(&error), "gave up looking: the service does not answer");
    }

    #[test]
    fn what_the_file_system_refuses_has_a_hint() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let error = StoreError::io(std::path::Path::new("/data/spill"), full);
        assert!(line(&error.into()).contains("; hint: make room"));
        let told = anyhow!(io::Error::from(ErrorKind::PermissionDenied)).context("no; hint: as root");
        assert_eq!(line(&told).matches("hint: ").count(), 1);
    }
}
