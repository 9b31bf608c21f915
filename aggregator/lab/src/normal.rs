//! The normal distribution: its function by Marsaglia's series (full double precision), its inverse by Acklam's
//! rational approximation, refined once.

/// P(Z <= x).
pub fn cdf(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x.abs() > 8.3 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut sum, mut before, mut term, square) = (x, 0.0, x, x * x);
    let mut odd = 1.0;
    while sum != before {
        before = sum;
        odd += 2.0;
        term *= square / odd;
        sum += term;
    }
    0.5 + sum * density(x)
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The x with P(Z <= x) = p, for 0 < p < 1.
pub fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416];
    const LOW: f64 = 0.024_25;
    let power = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        power(&C, q) / (power(&D, q) * q + 1.0)
    };
    if p < LOW {
        tail(p)
    } else if p > 1.0 - LOW {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        power(&A, r) * q / (power(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (x, p) in [(0.0, 0.5), (1.0, 0.841_344_746_068_543), (-1.96, 0.024_997_895_148_22)] {
            assert!((cdf(x) - p).abs() < 1e-12, "{x}");
        }
        assert_eq!((cdf(-40.0), cdf(40.0)), (0.0, 1.0));
    }

    #[test]
    fn the_inverse_inverts() {
        for n in 1..10_000 {
            let p = f64::from(n) / 10_000.0;
            assert!((cdf(quantile(p)) - p).abs() < 1e-8, "{p}");
        }
        assert!((cdf(quantile(1e-6)) - 1e-6).abs() < 1e-12);
    }
}
