//! A set of slots as one bit each, as it is on the wire: bit (slot % 8) of byte (slot / 8). Fixed size, so that a reader's wish
//! can't make the log allocate.

use canopy_format::layout::SLOTS;

use crate::error::{Error, Result};

const BYTES: usize = SLOTS as usize / 8;

/// Slots that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots([u8; BYTES]);

impl Slots {
    /// All slots.
    pub fn all() -> Self {
        Self([0xff; BYTES])
    }

    /// No slot.
    pub fn none() -> Self {
        Self([0; BYTES])
    }

    /// From the wire; empty means all.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::all());
        }
        let bits = bytes.try_into().map_err(|_| {
            Error::invalid(
                "slots",
                format!("{} bytes; give {BYTES}, one bit a slot, or none for all", bytes.len()),
            )
        })?;
        Ok(Self(bits))
    }

    /// For the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a slot; one that does not exist is not added.
    pub fn set(&mut self, slot: u16) {
        if let Some(byte) = self.0.get_mut(usize::from(slot / 8)) {
            *byte |= 1 << (slot % 8);
        }
    }

    /// Whether a slot is in it.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot / 8)).is_some_and(|byte| byte & (1 << (slot % 8)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_set_and_a_wrong_size_is_refused() {
        let mut slots = Slots::none();
        for slot in [0, 9, 4095, 4096, u16::MAX] {
            slots.set(slot);
        }
        let held: Vec<u16> = (0..=u16::MAX).filter(|slot| slots.contains(*slot)).collect();
        assert_eq!(held, [0, 9, 4095]);
        assert_eq!(Slots::from_bytes(slots.as_bytes()).unwrap(), slots);
        assert_eq!(Slots::from_bytes(&[]).unwrap(), Slots::all());
        assert!(Slots::from_bytes(&[0; 511]).unwrap_err().to_string().contains("512"));
    }
}
