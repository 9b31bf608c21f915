//! What the root's tail will be: a lognormal body, a share of queries that hang, S shards in parallel, and a hedge.
//!
//! All shards are done by t with P(one is done by t)^S; one that was asked again after d is open at t with
//! (1 - F(t)) (1 - F(t - d)). Copies are independent here; copies that hang for the same reason are what no formula
//! shows. Units: milliseconds.

/// A lognormal distribution, by its mean and the sigma of its logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Body {
    /// Mean.
    pub mean_ms: f64,
    /// Sigma.
    pub sigma: f64,
}

/// How long one call takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// Without hiccups.
    pub body: Body,
    /// Share that hangs.
    pub hiccups: f64,
    /// For so long, give or take a tenth.
    pub hiccup_ms: f64,
}

impl Tail {
    /// P(a call takes longer than t).
    pub fn open(&self, t: f64) -> f64 {
        if t <= 0.0 {
            return 1.0;
        }
        let Body { mean_ms, sigma } = self.body;
        let z = ((t / mean_ms).ln() + sigma * sigma / 2.0) / sigma;
        let hung = ((1.1 - t / self.hiccup_ms.max(f64::MIN_POSITIVE)) / 0.2).clamp(0.0, 1.0);
        self.hiccups * hung + (1.0 - self.hiccups) * crate::gates::upper_tail(z)
    }

    /// A quantile of one call.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.root_ms(quantile, 1, None)
    }

    /// A quantile of `shards` calls in parallel, each asked again after `hedge_ms`.
    pub fn root_ms(&self, quantile: f64, shards: u64, hedge_ms: Option<f64>) -> f64 {
        let allowed = 1.0 - super::leaf_quantile(quantile, shards);
        let late = |t: f64| self.open(t) * hedge_ms.map_or(1.0, |delay| self.open(t - delay));
        let (mut low, mut high) = (0.0, 1.0);
        while late(high) > allowed && high < 1e12 {
            high *= 2.0;
        }
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if late(middle) > allowed { low = middle } else { high = middle }
        }
        high
    }
}
