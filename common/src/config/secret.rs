//! A value that nobody is shown: a key or a password. It is read like any text and written as `(set)`, so that logs, the page of
//! the configuration, `canopy config print` and error messages can't give it away.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The text; empty: none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Of a text; white space around it is not part of it.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// What it is. Whoever takes it must not show it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "(none)" } else { "(set)" })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.is_empty() { "" } else { "(set)" })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

/// Takes text only; the errors of other values do not repeat them.
struct Text;

impl de::Visitor<'_> for Text {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret::new(text))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom("a secret is a text in quotes, not a number"))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom("a secret is a text in quotes, not a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Section {
        key: Secret,
    }

    #[test]
    fn a_secret_is_read_and_never_written() {
        let read: Section = toml::from_str("key = ' geheim\n'").unwrap_or_default();
        assert!(read.key.is_empty(), "a line break ends no quoted text");
        let read: Section = toml::from_str("key = ' geheim '").unwrap();
        assert_eq!(read.key.reveal(), "geheim");
        assert_eq!(toml::to_string(&read).unwrap(), "key = \"(set)\"\n");
        assert!(!format!("{read:?}").contains("geheim"));
        let error = toml::from_str::<Section>("key = 4711").unwrap_err().message().to_owned();
        assert!(error.contains("in quotes") && !error.contains("4711"), "{error}");
    }
}
