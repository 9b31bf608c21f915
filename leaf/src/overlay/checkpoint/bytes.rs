//! The bytes of a checkpoint. What is read is bounded by what is there, so that no length in a damaged file allocates more.

use roaring::RoaringBitmap;

use super::super::state::Stamp;

/// Writing.
pub(super) mod put {
    use roaring::RoaringBitmap;

    use super::Stamp;

    pub(crate) fn u32(out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u128(out: &mut Vec<u8>, value: u128) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn stamp(out: &mut Vec<u8>, stamp: Stamp) {
        u64(out, stamp.order);
        u64(out, stamp.tie);
    }

    pub(crate) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        u64(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    pub(crate) fn bitmap(out: &mut Vec<u8>, bitmap: &RoaringBitmap) {
        u64(out, bitmap.serialized_size() as u64);
        // Writing into memory does not fail.
        let _written = bitmap.serialize_into(out);
    }
}

/// Reading.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], magic: &[u8]) -> Result<Self, String> {
        match bytes.strip_prefix(magic) {
            Some(rest) => Ok(Self(rest)),
            None => Err("it is of another kind or format".to_owned()),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err("it is cut short".to_owned());
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, String> {
        self.array().map(u128::from_le_bytes)
    }

    pub(super) fn stamp(&mut self) -> Result<Stamp, String> {
        Ok(Stamp { order: self.u64()?, tie: self.u64()? })
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.u64()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(super) fn bitmap(&mut self) -> Result<RoaringBitmap, String> {
        RoaringBitmap::deserialize_from(self.bytes()?).map_err(|error| error.to_string())
    }

    pub(super) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err("it is longer than it should be".to_owned()) }
    }
}
