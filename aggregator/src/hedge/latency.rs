//! How long attempts take: a record that forgets, and the survival function read from it.
//!
//! Each attempt counts from its own start. One that was stopped because its twin had won did not take that long: it
//! took **at least** that long, and enters as censored. Leaving losers out makes every delay computed from the record
//! too short, because exactly the slow ones are missing (a p95 then hedges 7 % of the calls). The survival function is
//! the product-limit estimate over both kinds.
//!
//! Memory is fixed: buckets are 1/32 of an octave wide from 64 us to 67 s (3 % at most), so that a value is known to
//! 1.5 %; between the edges the estimate is a straight line. Times are microseconds.

use std::time::Duration;

/// Buckets per octave.
const PER_OCTAVE: u64 = 32;
/// The first bucket holds all below 2^6 us.
const FIRST_BIT: u32 = 6;
const OCTAVES: usize = 20;
const BUCKETS: usize = OCTAVES * PER_OCTAVE as usize + 1;

fn bucket(us: u64) -> usize {
    if us < 1 << FIRST_BIT {
        return 0;
    }
    let octave = us.ilog2();
    let part = (us >> (octave - PER_OCTAVE.ilog2())) - PER_OCTAVE;
    (1 + (u64::from(octave - FIRST_BIT) * PER_OCTAVE + part) as usize).min(BUCKETS - 1)
}

/// Upper edge of a bucket, us.
fn edge(bucket: usize) -> f64 {
    let (octave, part) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    let first = (1_u64 << (FIRST_BIT as u64 + octave)) as f64;
    first * (1.0 + part as f64 / PER_OCTAVE as f64)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Latencies seen, the older the lighter.
#[derive(Debug, Clone)]
pub struct Record {
    ended: Vec<f32>,
    stopped: Vec<f32>,
    samples: f64,
}

impl Default for Record {
    fn default() -> Self {
        Self { ended: vec![0.0; BUCKETS], stopped: vec![0.0; BUCKETS], samples: 0.0 }
    }
}

impl Record {
    /// An attempt took this long.
    pub fn took(&mut self, time: Duration) {
        self.ended[bucket(micros(time))] += 1.0;
        self.samples += 1.0;
    }

    /// An attempt was stopped after this long.
    pub fn stopped(&mut self, after: Duration) {
        self.stopped[bucket(micros(after))] += 1.0;
    }

    /// Weight of the attempts that ended by themselves.
    pub fn samples(&self) -> f64 {
        self.samples
    }

    /// Makes all that was seen this much lighter.
    pub fn fade(&mut self, factor: f64) {
        let lighter = |weight: &mut f32| {
            *weight *= factor as f32;
            if *weight < 1e-6 {
                *weight = 0.0;
            }
        };
        self.ended.iter_mut().chain(&mut self.stopped).for_each(lighter);
        self.samples *= factor;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ended.fill(0.0);
        self.stopped.fill(0.0);
        self.samples = 0.0;
    }

    /// The survival function.
    pub fn survival(&self) -> Survival {
        let mut at_risk: f64 = self.ended.iter().chain(&self.stopped).map(|weight| f64::from(*weight)).sum();
        let mut alive = 1.0;
        let mut at = Vec::with_capacity(BUCKETS);
        for (ended, stopped) in self.ended.iter().zip(&self.stopped) {
            let (ended, stopped) = (f64::from(*ended), f64::from(*stopped));
            // Those stopped within the bucket were at risk for half of it.
            let exposed = at_risk - stopped / 2.0;
            if ended > 0.0 && exposed > 0.0 {
                alive *= (1.0 - ended / exposed).max(0.0);
            }
            at_risk -= ended + stopped;
            at.push(alive);
        }
        Survival { at }
    }
}

/// The share of attempts that take longer than a time.
#[derive(Debug, Clone)]
pub struct Survival {
    /// At the upper edge of each bucket; never grows.
    at: Vec<f64>,
}

impl Survival {
    /// Reads a function at the edges of the buckets: for what is known exactly.
    pub fn of(longer_than: impl Fn(Duration) -> f64) -> Self {
        let mut least = 1.0_f64;
        let at = (0..BUCKETS).map(|bucket| {
            least = least.min(longer_than(Duration::from_secs_f64(edge(bucket) / 1e6)).clamp(0.0, 1.0));
            least
        });
        Self { at: at.collect() }
    }

    /// P(longer than `us`).
    pub fn longer_than(&self, us: f64) -> f64 {
        if us <= 0.0 {
            return 1.0;
        }
        let bucket = bucket(us as u64);
        let (low, before) = match bucket {
            0 => (0.0, 1.0),
            _ => (edge(bucket - 1), self.at[bucket - 1]),
        };
        let share = ((us - low) / (edge(bucket) - low)).clamp(0.0, 1.0);
        before + (self.at[bucket] - before) * share
    }

    /// The shortest time, us, that at most `share` of the attempts exceed; `None` when what was seen does not say.
    pub fn time(&self, share: f64) -> Option<f64> {
        let bucket = self.at.partition_point(|at| *at > share);
        let after = *self.at.get(bucket)?;
        let (low, before) = match bucket {
            0 => (0.0, 1.0),
            _ => (edge(bucket - 1), self.at[bucket - 1]),
        };
        let part = if before > after { ((before - share) / (before - after)).clamp(0.0, 1.0) } else { 1.0 };
        Some(low + (edge(bucket) - low) * part)
    }

    /// The quantile `q`; `None` when what was seen does not say.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        self.time(1.0 - q).map(|us| Duration::from_secs_f64(us / 1e6))
    }

    /// Edges of buckets between two shares of survivors, us.
    pub fn edges(&self, from: f64, to: f64) -> impl Iterator<Item = f64> {
        let first = self.at.partition_point(|at| *at > from);
        let last = self.at.partition_point(|at| *at > to);
        (first..=last.min(BUCKETS - 1)).map(edge)
    }

    /// Longest time that is told apart, us.
    pub fn end(&self) -> f64 {
        edge(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests;
