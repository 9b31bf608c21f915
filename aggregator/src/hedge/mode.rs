//! How a search hedges, as an operator writes it: `off`, `auto`, `delay:MS`, `quantile:P`, `tied`, `factor:N`; the same
//! words in the configuration, in the `hedge` parameter and (as numbers) on the wire.
//!
//! Bounds are checked where the words come in, so that a typing error is answered with the bound and not with ten times
//! the load. From the wire nothing is believed: a mode of a later release, or a value out of bounds, reads as "what is
//! configured here".

use std::{fmt, str::FromStr, time::Duration};

use canopy_proto::v1::{self, hedge_mode::Mode};
use serde::{Deserialize, Serialize};

/// Most attempts of one branch, whatever is configured.
pub const MAX_ATTEMPTS: u32 = 3;
/// Shortest delay before a hedge; the timers of the runtime have no finer grain.
pub const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_mins(1);
const QUANTILES: (f64, f64) = (0.5, 0.9999);
const KNOWN: &str = "off, auto, delay:MS, quantile:P, tied, factor:N";

/// How a search hedges.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum HedgeMode {
    /// Never.
    Off,
    /// After the delay that the budget allows, by what was seen.
    #[default]
    Auto,
    /// After this delay.
    Delay(Duration),
    /// After this quantile of what was seen.
    Quantile(f64),
    /// Two replicas that know each other; the one that starts first stops the other.
    Tied,
    /// That many copies at once.
    Factor(u32),
}

impl HedgeMode {
    /// As it travels.
    pub fn to_wire(self) -> v1::HedgeMode {
        let (mode, value) = match self {
            Self::Off => (Mode::Off, 0.0),
            Self::Auto => (Mode::Auto, 0.0),
            Self::Delay(delay) => (Mode::Delay, delay.as_secs_f64() * 1000.0),
            Self::Quantile(quantile) => (Mode::Quantile, quantile),
            Self::Tied => (Mode::Tied, 0.0),
            Self::Factor(copies) => (Mode::Factor, f64::from(copies)),
        };
        v1::HedgeMode { mode: mode as i32, value }
    }

    /// From the wire; `None` when it says nothing that is known here.
    pub fn from_wire(wire: v1::HedgeMode) -> Option<Self> {
        let mode = Mode::try_from(wire.mode).ok()?;
        let read = match mode {
            Mode::Off => Ok(Self::Off),
            Mode::Auto => Ok(Self::Auto),
            Mode::Delay => delay(wire.value),
            Mode::Quantile => quantile(wire.value),
            Mode::Tied => Ok(Self::Tied),
            Mode::Factor => factor(wire.value),
        };
        read.ok()
    }

    /// Whether only operators may ask for it: what can multiply the load, or needs a leaf's help.
    pub fn for_operators(self) -> bool {
        !matches!(self, Self::Off | Self::Auto)
    }
}

fn delay(millis: f64) -> Result<HedgeMode, String> {
    let (low, high) = (SHORTEST.as_secs_f64() * 1000.0, LONGEST.as_secs_f64() * 1000.0);
    if (low..=high).contains(&millis) {
        return Ok(HedgeMode::Delay(Duration::from_secs_f64(millis / 1000.0)));
    }
    Err(format!("the hedge delay is {millis} ms; it must be within {low}..{high}"))
}

fn quantile(quantile: f64) -> Result<HedgeMode, String> {
    let (low, high) = QUANTILES;
    if (low..=high).contains(&quantile) {
        return Ok(HedgeMode::Quantile(quantile));
    }
    Err(format!("the hedge quantile is {quantile}; it must be within {low}..{high}, such as 0.95"))
}

fn factor(copies: f64) -> Result<HedgeMode, String> {
    if (2.0..=f64::from(MAX_ATTEMPTS)).contains(&copies) && copies.fract() == 0.0 {
        return Ok(HedgeMode::Factor(copies as u32));
    }
    Err(format!("the hedge factor is {copies}; it must be a whole number within 2..{MAX_ATTEMPTS}"))
}

impl FromStr for HedgeMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let shown = || word.chars().take(40).collect::<String>();
        let unknown = || format!("hedge {:?} is not known; use one of: {KNOWN}", shown());
        match word.split_once(':') {
            None => match word {
                "off" => Ok(Self::Off),
                "auto" => Ok(Self::Auto),
                "tied" => Ok(Self::Tied),
                "delay" | "quantile" | "factor" => {
                    Err(format!("hedge {word} needs a number; use one of: {KNOWN}"))
                }
                _ => Err(unknown()),
            },
            Some((name, number)) => {
                let read = match name {
                    "delay" => delay,
                    "quantile" => quantile,
                    "factor" => factor,
                    _ => return Err(unknown()),
                };
                let number = number.parse().map_err(|_| format!("hedge {:?}: not a number", shown()))?;
                read(number)
            }
        }
    }
}

impl fmt::Display for HedgeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Delay(delay) => write!(f, "delay:{}", delay.as_secs_f64() * 1000.0),
            Self::Quantile(quantile) => write!(f, "quantile:{quantile}"),
            Self::Tied => f.write_str("tied"),
            Self::Factor(copies) => write!(f, "factor:{copies}"),
        }
    }
}

impl Serialize for HedgeMode {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HedgeMode {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_travels_and_is_written_again() {
        let ms = Duration::from_millis;
        let table = [
            ("off", HedgeMode::Off),
            ("auto", HedgeMode::Auto),
            ("delay:1", HedgeMode::Delay(ms(1))),
            ("delay:12.5", HedgeMode::Delay(Duration::from_micros(12_500))),
            ("delay:60000", HedgeMode::Delay(ms(60_000))),
            ("quantile:0.95", HedgeMode::Quantile(0.95)),
            ("tied", HedgeMode::Tied),
            ("factor:2", HedgeMode::Factor(2)),
            ("factor:3", HedgeMode::Factor(3)),
        ];
        for (word, mode) in table {
            assert_eq!(word.parse(), Ok(mode), "{word}");
            assert_eq!(HedgeMode::from_wire(mode.to_wire()), Some(mode), "{word}");
            assert_eq!(mode.to_string(), word);
        }
    }

    #[test]
    fn other_words_and_values_are_answered_with_what_is_allowed() {
        let table = [
            ("", "one of"),
            ("fast", "one of"),
            ("off:1", "one of"),
            ("delay", "needs a number"),
            ("delay:", "not a number"),
            ("delay:0.5", "1..60000"),
            ("delay:NaN", "1..60000"),
            ("delay:-1", "1..60000"),
            ("quantile:95", "0.5..0.9999"),
            ("quantile:1", "0.5..0.9999"),
            ("factor:1", "2..3"),
            ("factor:2.5", "2..3"),
            ("factor:1e9", "2..3"),
        ];
        for (word, expected) in table {
            let why = word.parse::<HedgeMode>().unwrap_err();
            assert!(why.contains(expected), "{word}: {why}");
        }
        assert!("é".repeat(5000).parse::<HedgeMode>().unwrap_err().len() < 250);
    }

    #[test]
    fn nonsense_from_the_wire_is_nothing() {
        for (mode, value) in [(77, 0.0), (-1, 0.0), (2, 0.0), (2, f64::NAN), (3, 1.5), (5, 1e300)] {
            assert_eq!(HedgeMode::from_wire(v1::HedgeMode { mode, value }), None, "{mode} {value}");
        }
    }
}
