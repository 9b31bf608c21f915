//! Small files that somebody named: configurations, plans, schemas, keys, lists of queries.
//!
//! The failure this prevents: a name that is mistyped, or leads to a device without an end, takes all the memory of the machine,
//! because the length was looked at before (a device has none) or after. Rule: at most one byte more than the limit is read,
//! and what is longer is refused with the limit. Pipes are read like files. Units: bytes.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Largest configuration file, schema or plan.
pub const MOST_SETTINGS: u64 = 16 << 20;
/// Largest token, password or key.
pub const MOST_SECRET: u64 = 64 << 10;
/// Largest list of queries.
pub const MOST_QUERIES: u64 = 256 << 20;

/// The text of a file of at most `most` bytes.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        let message = format!("it has more than {most} bytes, which is the limit; is it the right file?");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(text).map_err(|error| {
        let message = format!("it is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_device_without_end() {
        let file = std::env::temp_dir().join(format!("canopy-bounded-{}", std::process::id()));
        std::fs::write(&file, "red fox").unwrap();
        assert_eq!(text(&file, 7).unwrap(), "red fox");
        for (path, most) in [(file.as_path(), 6), (Path::new("/dev/zero"), 1 << 20)] {
            let error = text(path, most).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            assert!(error.to_string().contains(&format!("more than {most} bytes")), "{error}");
        }
        std::fs::write(&file, b"red \xff").unwrap();
        assert!(text(&file, 7).unwrap_err().to_string().contains("byte 4 is not UTF-8"));
        std::fs::remove_file(&file).unwrap();
    }
}
