//! How much room a directory's file system has for this process. Units: bytes.

use std::{io, path::Path};

/// Bytes that can still be written below `path`, which must exist.
pub fn free(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_there_has_a_number_and_another_has_an_error() {
        assert!(free(&std::env::temp_dir()).is_ok_and(|bytes| bytes > 0));
        assert_eq!(free(Path::new("/no/such/directory")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
