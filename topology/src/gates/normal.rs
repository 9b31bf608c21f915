//! The upper tail of the normal distribution and of the binomial one, which the tests of the gates need.

/// P(Z > z). Where it matters, above 1e-12, the relative error is below 2e-7 (Chebyshev fit of erfc, Numerical Recipes).
pub fn upper_tail(z: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    if z.is_nan() {
        return 1.0;
    }
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = FIT.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let erfc = t * (sum - x * x).exp();
    if z >= 0.0 { erfc / 2.0 } else { 1.0 - erfc / 2.0 }
}

/// P(X >= k) of a binomial with n trials of chance p.
pub fn binomial_at_least(k: u64, n: u64, p: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    if k > n || p <= 0.0 {
        return 0.0;
    }
    if n > 10_000 {
        let (mean, spread) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        return upper_tail((k as f64 - 0.5 - mean) / spread.max(f64::MIN_POSITIVE));
    }
    let mut term = 0.0; // ln of the term of k
    for i in 0..k {
        term += ((n - i) as f64 / (k - i) as f64).ln();
    }
    term += k as f64 * p.ln() + (n - k) as f64 * (1.0 - p).ln();
    let (mut sum, mut at) = (0.0, term.exp());
    for i in k..=n {
        sum += at;
        at *= (n - i) as f64 / (i + 1) as f64 * p / (1.0 - p);
        if at < sum * 1e-12 {
            break;
        }
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (z, p) in [(0.0, 0.5), (1.0, 0.158_655_254), (2.326_347_874, 0.01), (-1.96, 0.975_002_105)] {
            assert!((upper_tail(z) - p).abs() < 1e-7, "{z}: {}", upper_tail(z));
        }
        assert!((upper_tail(4.753_424) / 1e-6 - 1.0).abs() < 1e-4);
        assert_eq!((upper_tail(f64::NAN), upper_tail(50.0)), (1.0, 0.0));
        for (k, n, p, expected) in
            [(0, 10, 0.5, 1.0), (10, 10, 0.5, 0.000_976_562_5), (8, 10, 0.5, 0.054_687_5), (3, 3, 0.1, 0.001)]
        {
            assert!((binomial_at_least(k, n, p) - expected).abs() < 1e-12, "{k} of {n}");
        }
        assert_eq!(binomial_at_least(4, 3, 0.5), 0.0);
        let (exact, about) = (binomial_at_least(5_150, 10_000, 0.5), binomial_at_least(5_151, 10_001, 0.5));
        assert!((exact / about - 1.0).abs() < 0.05, "{exact} {about}");
    }
}
