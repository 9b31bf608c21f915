//! Model time and virtual time. Timers of the runtime have a grain of one millisecond, which is coarse where a shard
//! takes eight and a twin is told within a tenth of one; so one model millisecond is many virtual ones, and every time
//! that the engine reads from its settings grows alike.
//!
//! All instants of a lab are whole virtual milliseconds: then no timer rounds, and nothing is measured with a bias of
//! half a grain.

use std::time::Duration;

use canopy_common::config::Time;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::error::{Error, Result};

/// Virtual milliseconds in one model millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(u32);

impl Scale {
    /// 1..1000.
    pub fn new(times: u32) -> Result<Self> {
        Error::within("scale", times, 1, 1000)?;
        Ok(Self(times))
    }

    /// How many times slower virtual time runs.
    pub fn times(self) -> u32 {
        self.0
    }

    /// Virtual time of so many model milliseconds, to the nearest whole virtual millisecond.
    pub fn span(self, ms: f64) -> Duration {
        Duration::from_millis((ms * f64::from(self.0)).round().max(0.0) as u64)
    }

    /// Model milliseconds of a virtual time.
    pub fn ms(self, span: Duration) -> f64 {
        span.as_secs_f64() * 1000.0 / f64::from(self.0)
    }

    /// The same settings with every time in them made longer, whichever they are.
    pub fn settings<T: Serialize + DeserializeOwned>(self, settings: &T) -> Result<T> {
        let unreadable = |error: serde_json::Error| Error::setting("scale", error.to_string());
        let mut value = serde_json::to_value(settings).map_err(unreadable)?;
        self.stretch(&mut value);
        serde_json::from_value(value).map_err(unreadable)
    }

    fn stretch(self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Ok(Time(time)) = text.parse::<Time>() {
                    *text = Time(time.saturating_mul(self.0)).to_string();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.stretch(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.stretch(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use canopy_aggregator::config::GatherConfig;

    use super::*;

    #[test]
    fn times_of_settings_grow_and_nothing_else_does() {
        let scale = Scale::new(20).unwrap();
        let plain = GatherConfig::default();
        let scaled = scale.settings(&plain).unwrap();
        assert_eq!(scaled.reserve.0, plain.reserve.0 * 20);
        assert_eq!(
            GatherConfig { reserve: plain.reserve, ..scaled.clone() }.merge_memory,
            plain.merge_memory
        );
        assert_eq!(scaled.fanout_max, plain.fanout_max);
    }

    #[test]
    fn model_time_is_whole_virtual_milliseconds() {
        let scale = Scale::new(20).unwrap();
        assert_eq!(scale.span(0.1), Duration::from_millis(2));
        assert_eq!(scale.span(8.026), Duration::from_millis(161));
        assert!((scale.ms(Duration::from_millis(161)) - 8.05).abs() < 1e-12);
        assert!(Scale::new(0).is_err() && Scale::new(1001).is_err());
    }
}
