//! Whether there is room for a record. Puts stop before the reserve, deletes may use it, because what must go must be able to go
//! when the disk is full, and a delete is written too. Asked anew for every batch, so that room that was made is used without a
//! restart. Units: bytes.

use std::io;

use crate::error::Error;

/// Room for one batch.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes that can still be written.
    pub free: u64,
    /// Of these, for deletes only.
    pub reserve: u64,
}

impl Room {
    /// What a disk with `disk_free` bytes and a log of `used` bytes leave; `max` 0: only the disk bounds the log.
    pub fn of(disk_free: u64, used: u64, max: u64, reserve: u64) -> Self {
        let own = if max == 0 { u64::MAX } else { max.saturating_sub(used) };
        Self { free: disk_free.min(own), reserve }
    }

    /// Takes room for a record, or says what is missing.
    pub fn take(&mut self, needs: u64, delete: bool) -> Result<(), Error> {
        let usable = if delete { self.free } else { self.free.saturating_sub(self.reserve) };
        if needs > usable {
            return Err(Error::Full { needs, free: self.free, reserve: self.reserve });
        }
        self.free -= needs;
        Ok(())
    }

    /// The error of a write that failed: a full disk is a matter of room.
    pub fn error(self, path: &std::path::Path, needs: u64, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full { needs, free: self.free, reserve: self.reserve }
            }
            _ => Error::io(path, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_stop_before_the_reserve_and_deletes_at_the_end() {
        let mut room = Room::of(1_000, 0, 0, 300);
        assert_eq!(room.take(600, false), Ok(()));
        assert_eq!(room.take(200, false), Err(Error::Full { needs: 200, free: 400, reserve: 300 }));
        assert_eq!(room.take(400, true), Ok(()));
        assert!(room.take(1, true).is_err());
        let mut bounded = Room::of(u64::MAX, 900, 1_000, 50);
        assert!(bounded.take(51, false).is_err());
        assert_eq!(bounded.take(50, false), Ok(()));
        assert!(Room::of(u64::MAX, 2_000, 1_000, 0).take(1, true).is_err());
    }
}
