//! Values with units: `350ms`, `10s`, `2GiB`. A bare number is refused, because nobody remembers which unit it was.

use std::{fmt, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// A duration; `us`, `ms`, `s`, `min`, `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// A number of bytes; `B`, `KiB`, `MiB`, `GiB`, `TiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const TIMES: [(&str, u64); 5] =
    [("us", 1), ("ms", 1000), ("min", 60_000_000), ("h", 3_600_000_000), ("s", 1_000_000)];
const SIZES: [(&str, u64); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];

fn parse(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not valid; write a number with a unit, such as {example}");
    let text = text.trim();
    let found = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let Some((number, unit)) = found else {
        let number = text.trim_end_matches(char::is_alphabetic);
        let unit = &text[number.len()..];
        if unit.is_empty() || number.trim().parse::<f64>().is_err() {
            return Err(bad());
        }
        let known: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        return Err(format!("{text:?}: {unit:?} is no unit that is known; there are {}", known.join(", ")));
    };
    let value: f64 = number.trim().parse().map_err(|_| bad())?;
    let value = value * unit as f64;
    if value.is_nan() || value < 0.0 {
        return Err(bad());
    }
    if value > 1e18 {
        return Err(format!("{text:?} is more than can be; write less, such as {example}"));
    }
    Ok(value.round() as u64)
}

fn print(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fitting = units.iter().filter(|(_, unit)| value.is_multiple_of(*unit) && value >= *unit);
    match fitting.max_by_key(|(_, unit)| unit) {
        Some((name, unit)) => write!(f, "{}{name}", value / unit),
        None => write!(f, "0{}", if units.len() == TIMES.len() && units[0].0 == "us" { "s" } else { "B" }),
    }
}

impl Time {
    /// Whole milliseconds.
    pub const fn ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(Duration::from_micros(parse(text, &TIMES, "350ms or 10s")?)))
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(parse(text, &SIZES, "64MiB or 2GiB")?))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0.as_micros() as u64, &TIMES, f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, &SIZES, f)
    }
}

macro_rules! as_text {
    ($type:ident, $what:literal, $example:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{} with its unit in quotes, such as {:?}", $what, $example)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        Err(E::custom(bare(number, $what, $example)))
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        Err(E::custom(bare(number, $what, $example)))
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$type, E> {
                        Err(E::custom(bare(number, $what, $example)))
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
as_text!(Time, "a time", "350ms");
as_text!(Size, "a size", "12MiB");

/// What is wrong with a number alone.
fn bare(number: impl fmt::Display, what: &str, example: &str) -> String {
    format!("{number} has no unit; write {what} with its unit in quotes, such as {example:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_told_how_it_is_written() {
        #[derive(Debug, Deserialize)]
        struct Both {
            memory: Option<Size>,
            wait: Option<Time>,
        }
        let said = |text: &str| toml::from_str::<Both>(text).unwrap_err().message().to_owned();
        assert_eq!(
            said("memory = 12"),
            "12 has no unit; write a size with its unit in quotes, such as \"12MiB\""
        );
        assert!(said("wait = 0.5").starts_with("0.5 has no unit; write a time"), "{}", said("wait = 0.5"));
        assert!(said("wait = true").contains("expected a time with its unit in quotes, such as \"350ms\""));
        let both: Both = toml::from_str("memory = '12MiB'\nwait = '1s'").unwrap();
        assert_eq!((both.memory, both.wait), (Some(Size(12 << 20)), Some(Time::ms(1000))));
    }

    #[test]
    fn units_parse_what_they_print() {
        for text in ["350ms", "10s", "2min", "1h", "7us", "0s"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        for text in ["64MiB", "2GiB", "1000B", "0B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for bad in ["350", "-1ms", "nans", "1e99s", "10 parsecs", ""] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
        for (bad, why) in
            [("100000d", "\"d\" is no unit"), ("1e30h", "is more than can be"), ("7", "with a unit")]
        {
            let said = bad.parse::<Time>().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
