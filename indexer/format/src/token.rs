//! A place in the log of a corpus: the next offset of each partition, and which log it is. Writers get one with each batch
//! (`min_offset` waits for it), a build is told one (`--cut`), a manifest holds one. Text: `EPOCH:0.1207,3.998`; opaque to
//! clients, readable for operators. A partition that is not named is at 0.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::store::MAX_PARTITIONS;

/// Longest text of a token, bytes.
pub const MAX_TOKEN_BYTES: usize = 32 << 10;

/// A place in a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Token {
    /// Which log; a log that was made anew has another one. Empty: not known.
    pub epoch: String,
    /// Next offset by partition.
    pub offsets: BTreeMap<u32, u64>,
}

impl Token {
    /// Raises a partition to `next`.
    pub fn raise(&mut self, partition: u32, next: u64) {
        let offset = self.offsets.entry(partition).or_default();
        *offset = (*offset).max(next);
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.epoch)?;
        for (at, (partition, offset)) in self.offsets.iter().enumerate() {
            write!(f, "{}{partition}.{offset}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} is not a token such as `canopy feed token` prints")
        };
        if text.len() > MAX_TOKEN_BYTES {
            return Err(format!("a token has at most {MAX_TOKEN_BYTES} bytes"));
        }
        let (epoch, places) = text.split_once(':').ok_or_else(shape)?;
        if epoch.len() > 64 || !epoch.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(shape());
        }
        let mut token = Self { epoch: epoch.to_owned(), offsets: BTreeMap::new() };
        for place in places.split(',').filter(|place| !place.is_empty()) {
            let (partition, offset) = place.split_once('.').ok_or_else(shape)?;
            let partition = partition.parse().ok().filter(|partition| *partition < MAX_PARTITIONS);
            let (Some(partition), Ok(offset)) = (partition, offset.parse()) else { return Err(shape()) };
            if token.offsets.insert(partition, offset).is_some() {
                return Err(format!("partition {partition} is named twice"));
            }
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_other_text_is_refused() {
        let mut token = Token { epoch: "5f2c".to_owned(), ..Token::default() };
        token.raise(3, 998);
        token.raise(0, 7);
        token.raise(3, 5);
        assert_eq!(token.to_string(), "5f2c:0.7,3.998");
        assert_eq!("5f2c:0.7,3.998".parse(), Ok(token));
        assert_eq!(":".parse(), Ok(Token::default()));
        for bad in ["", "x", "a:1", "a:1.x", "a:1.2,1.3", "a:1024.1", "a b:1.2", "a:-1.2"] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
        assert!("é".repeat(50_000).parse::<Token>().unwrap_err().len() < 200);
    }
}
