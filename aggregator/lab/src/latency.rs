//! How long a leaf works on one shard, in model milliseconds: a body, and hiccups that replace it now and then (a
//! collection pause, a page fault, a noisy neighbour). Everything is drawn by inversion from one number in 0..1, so that
//! a draw can be shared between arms, and everything has its exact distribution, so that what is measured can be
//! checked.

use serde::{Deserialize, Serialize};

use crate::{error::Error, normal};

/// The usual case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Lognormal with this mean (of the time itself) and sigma (of its logarithm).
    Lognormal {
        /// Mean, ms.
        mean: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Exponential; makes queues with known answers.
    Exponential {
        /// Mean, ms.
        mean: f64,
    },
    /// Always the same.
    Fixed {
        /// That time, ms.
        mean: f64,
    },
}

/// Now and then a call takes a time from a range instead.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hiccups {
    /// How often, 0..1.
    pub share: f64,
    /// Shortest, ms.
    pub from: f64,
    /// Longest, ms.
    pub to: f64,
}

/// Distribution of the time of one call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The usual case.
    pub body: Body,
    /// Hiccups; a share of 0: none.
    pub hiccups: Hiccups,
}

impl Latency {
    /// Lognormal, mean 8 ms, sigma 0.5, with this share of hiccups of 180 to 220 ms.
    pub fn with_hiccups(share: f64) -> Self {
        let body = Body::Lognormal { mean: 8.0, sigma: 0.5 };
        Self { body, hiccups: Hiccups { share, from: 180.0, to: 220.0 } }
    }

    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<(), Error> {
        let (mean, sigma) = match self.body {
            Body::Lognormal { mean, sigma } => (mean, sigma),
            Body::Exponential { mean } | Body::Fixed { mean } => (mean, 0.0),
        };
        let Hiccups { share, from, to } = self.hiccups;
        Error::within("mean", mean, 0.01, 10_000.0)?;
        Error::within("sigma", sigma, 0.0, 3.0)?;
        Error::within("hiccups", share, 0.0, 0.5)?;
        Error::within("hiccup-to", to, 0.0, 60_000.0)?;
        Error::within("hiccup-from", from, 0.0, to)
    }

    /// The time at which a share `u` of all calls is done; `u` strictly between 0 and 1.
    pub fn quantile(&self, u: f64) -> f64 {
        let Hiccups { share, from, to } = self.hiccups;
        // The two parts overlap only when hiccups are short; then the order of draws is not the order of times, which
        // no draw needs. Exact quantiles come from `exact`.
        if u >= 1.0 - share {
            return from + (to - from) * (u - (1.0 - share)) / share;
        }
        let u = u / (1.0 - share);
        match self.body {
            Body::Lognormal { mean, sigma } => {
                (mean.ln() - 0.5 * sigma * sigma + sigma * normal::quantile(u)).exp()
            }
            Body::Exponential { mean } => -mean * (1.0 - u).ln(),
            Body::Fixed { mean } => mean,
        }
    }

    /// P(time <= t).
    pub fn cdf(&self, t: f64) -> f64 {
        if t < 0.0 {
            return 0.0;
        }
        let body = match self.body {
            _ if t == 0.0 => 0.0,
            Body::Lognormal { mean, sigma: 0.0 } | Body::Fixed { mean } => f64::from(u8::from(t >= mean)),
            Body::Lognormal { mean, sigma } => {
                normal::cdf((t.ln() - mean.ln() + 0.5 * sigma * sigma) / sigma)
            }
            Body::Exponential { mean } => 1.0 - (-t / mean).exp(),
        };
        let Hiccups { share, from, to } = self.hiccups;
        let hiccup =
            if to > from { ((t - from) / (to - from)).clamp(0.0, 1.0) } else { f64::from(u8::from(t >= to)) };
        (1.0 - share) * body + share * hiccup
    }

    /// Mean, ms.
    pub fn mean(&self) -> f64 {
        let (Body::Lognormal { mean, .. } | Body::Exponential { mean } | Body::Fixed { mean }) = self.body;
        let Hiccups { share, from, to } = self.hiccups;
        (1.0 - share) * mean + share * 0.5 * (from + to)
    }

    /// Mean of the square, ms^2; what the wait in a queue depends on.
    pub fn mean_square(&self) -> f64 {
        let body = match self.body {
            Body::Lognormal { mean, sigma } => mean * mean * (sigma * sigma).exp(),
            Body::Exponential { mean } => 2.0 * mean * mean,
            Body::Fixed { mean } => mean * mean,
        };
        let Hiccups { share, from, to } = self.hiccups;
        (1.0 - share) * body + share * (from * from + from * to + to * to) / 3.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;

    #[test]
    fn draws_follow_the_distribution() {
        for body in [
            Body::Lognormal { mean: 8.0, sigma: 0.5 },
            Body::Exponential { mean: 3.0 },
            Body::Lognormal { mean: 4.0, sigma: 0.0 },
        ] {
            let latency = Latency { body, hiccups: Hiccups { share: 0.02, from: 180.0, to: 220.0 } };
            let mut times: Vec<f64> = (0..200_000).map(|n| latency.quantile(draw::unit(&[5, n]))).collect();
            let n = times.len() as f64;
            let mean = times.iter().sum::<f64>() / n;
            assert!((mean / latency.mean() - 1.0).abs() < 0.02, "{body:?} {mean}");
            let square = times.iter().map(|t| t * t).sum::<f64>() / n;
            assert!((square / latency.mean_square() - 1.0).abs() < 0.03, "{body:?} {square}");
            times.sort_by(f64::total_cmp);
            for t in [2.0, 5.0, 8.0, 20.0, 190.0, 219.0] {
                let below = times.partition_point(|time| *time <= t) as f64 / n;
                assert!((below - latency.cdf(t)).abs() < 0.004, "{body:?} {t} {below}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let mut latency = Latency::with_hiccups(0.01);
        assert!(latency.check().is_ok());
        latency.hiccups.from = 300.0;
        assert!(latency.check().unwrap_err().to_string().starts_with("hiccup-from: 300 is outside 0..220"));
        latency = Latency { body: Body::Fixed { mean: f64::NAN }, ..latency };
        assert!(latency.check().unwrap_err().to_string().starts_with("mean: "));
    }
}
