//! One arm: what the engine is told to do about the tail.

use std::{collections::BTreeMap, fmt, str::FromStr};

use canopy_aggregator::{config::GatherConfig, pick::Strategy};
use canopy_common::config::Time;
use canopy_proto::v1;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error::{Error, Result},
    scale::Scale,
};

/// When to send another copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Hedge {
    /// Never.
    Off,
    /// When the engine thinks it best.
    Auto,
    /// After so many model ms.
    Delay(f64),
    /// After this quantile of the times seen.
    Quantile(f64),
    /// To a twin almost at once; the first to begin stops the other.
    Tied,
    /// Always so many.
    Factor(u32),
}

impl fmt::Display for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Delay(ms) => write!(f, "delay:{ms}"),
            Self::Quantile(quantile) => write!(f, "quantile:{quantile}"),
            Self::Tied => f.write_str("tied"),
            Self::Factor(copies) => write!(f, "factor:{copies}"),
        }
    }
}

impl From<Hedge> for String {
    fn from(hedge: Hedge) -> Self {
        hedge.to_string()
    }
}

impl TryFrom<String> for Hedge {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Hedge {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let why = format!(
                "{text:?} is none of off, auto, delay:MS, quantile:0.95, tied, factor:N; separate several by commas"
            );
            Error::setting("hedge", why)
        };
        let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
        let number = |low: f64, high: f64| -> Result<f64> {
            let value: f64 = value.and_then(|value| value.parse().ok()).ok_or_else(bad)?;
            Error::within("hedge", value, low, high)?;
            Ok(value)
        };
        match (word, value) {
            ("off", None) => Ok(Self::Off),
            ("auto", None) => Ok(Self::Auto),
            ("tied", None) => Ok(Self::Tied),
            ("delay", Some(_)) => Ok(Self::Delay(number(0.0, 600_000.0)?)),
            ("quantile", Some(_)) => Ok(Self::Quantile(number(0.01, 0.9999)?)),
            ("factor", Some(_)) => Ok(Self::Factor(number(2.0, 3.0)? as u32)),
            _ => Err(bad()),
        }
    }
}

/// When to stop waiting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For all shards.
    All,
    /// For all but so many.
    AllBut(u32),
    /// For this share of the documents, and then for a share of the time left.
    Adaptive {
        /// Share of the documents.
        enough: f64,
        /// Share of the time left.
        grace: f64,
    },
}

/// An arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// When to send another copy.
    pub hedge: Hedge,
    /// Whom to ask.
    pub pick: Strategy,
    /// Copies per call that the engine may send.
    pub budget: f64,
    /// When to stop waiting.
    pub wait: Wait,
    /// Other settings of the engine, by their names in `[gather]`; times in model time.
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
}

impl Policy {
    /// Waits for all, with this hedge and a budget of 5 %.
    pub fn hedge(hedge: Hedge) -> Self {
        Self { hedge, pick: Strategy::default(), budget: 0.05, wait: Wait::All, set: BTreeMap::new() }
    }

    /// The same with one more setting of the engine.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set.insert(key.to_owned(), value.into());
        self
    }

    /// A name that tells arms apart: the hedge, and what is not as usual.
    pub fn name(&self) -> String {
        let mut name = self.hedge.to_string();
        if self.pick != Strategy::default() {
            let pick = serde_json::to_value(self.pick).unwrap_or_default();
            name = format!("{} {name}", pick.as_str().unwrap_or("other"));
        }
        if self.hedge != Hedge::Off && self.budget != 0.05 {
            name = format!("{name} {}%", (self.budget * 10_000.0).round() / 100.0);
        }
        for (key, value) in &self.set {
            name =
                format!("{name} {key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        name
    }

    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        Error::within("budget", self.budget, 0.0, 10.0)?;
        if let Wait::Adaptive { enough, grace } = self.wait {
            Error::within("enough", enough, 0.01, 1.0)?;
            Error::within("grace", grace, 0.0, 1.0)?;
        }
        Ok(())
    }

    /// The engine's settings, in virtual time. Nothing is kept back for a fetch that does not come, and nothing is sent
    /// beyond the budget.
    pub fn settings(&self, scale: Scale) -> Result<GatherConfig> {
        let mut config = GatherConfig {
            fanout_max: 4096,
            pick: self.pick,
            reserve: Time::ms(0),
            extra_work_floor: 0,
            ..GatherConfig::default()
        };
        if let Wait::Adaptive { enough, grace } = self.wait {
            config.enough_coverage = enough;
            (config.wait_min, config.wait_max) = (grace, grace);
        }
        let unknown = |error: serde_json::Error| Error::setting("set", error.to_string());
        let mut value = serde_json::to_value(config).map_err(unknown)?;
        if let Value::Object(fields) = &mut value {
            fields.extend(self.set.clone());
        }
        scale.settings(&serde_json::from_value(value).map_err(unknown)?)
    }

    /// How the engine is asked to hedge.
    pub fn hedge_mode(&self, scale: Scale) -> v1::HedgeMode {
        use v1::hedge_mode::Mode;
        let (mode, value) = match self.hedge {
            Hedge::Off => (Mode::Off, 0.0),
            Hedge::Auto => (Mode::Auto, 0.0),
            Hedge::Delay(ms) => (Mode::Delay, ms * f64::from(scale.times())),
            Hedge::Quantile(quantile) => (Mode::Quantile, quantile),
            Hedge::Tied => (Mode::Tied, 0.0),
            Hedge::Factor(copies) => (Mode::Factor, f64::from(copies)),
        };
        v1::HedgeMode { mode: mode as i32, value }
    }

    /// How the engine is asked to complete.
    pub fn completion(&self) -> v1::Completion {
        use v1::completion::Mode;
        let (mode, all_but) = match self.wait {
            Wait::All => (Mode::All, 0),
            Wait::AllBut(missing) => (Mode::AllBut, missing),
            Wait::Adaptive { .. } => (Mode::Adaptive, 0),
        };
        v1::Completion { mode: mode as i32, all_but, min_coverage: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_engine_are_taken_by_name_and_scaled() {
        let scale = Scale::new(10).unwrap();
        let policy = Policy::hedge(Hedge::Auto).with("branch_shards", 7).with("reserve", "3ms");
        let config = policy.settings(scale).unwrap();
        assert_eq!((config.branch_shards, config.reserve), (7, Time::ms(30)));
        assert_eq!(policy.name(), "auto branch_shards=7 reserve=3ms");
        let wrong = Policy::hedge(Hedge::Off).with("brunch", 7).settings(scale).unwrap_err();
        assert!(wrong.to_string().starts_with("set: unknown field `brunch`"), "{wrong}");
    }

    #[test]
    fn hedges_parse_what_they_print() {
        for text in ["off", "auto", "delay:12.5", "quantile:0.95", "tied", "factor:3"] {
            assert_eq!(text.parse::<Hedge>().unwrap().to_string(), text);
        }
        for bad in ["", "on", "delay", "delay:x", "quantile:1", "factor:1", "factor:9", "auto:1", "delay:-1"]
        {
            assert!(bad.parse::<Hedge>().is_err(), "{bad}");
        }
    }
}
