//! Draws by name instead of by turn: a number is a hash of what it is for (seed, query, shard, copy), so that two arms
//! of a comparison see the same arrivals and the same service times whatever either of them does in between.
//!
//! Without this the difference of two arms is mostly the difference of two samples, and a queueing comparison needs ten
//! times the queries for the same bound.

/// Mixes one number well: every input bit reaches every output bit.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 bits for these parts, in this order.
pub fn bits(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |state, part| mix(state ^ *part))
}

/// A number strictly between 0 and 1 for these parts.
pub fn unit(parts: &[u64]) -> f64 {
    ((bits(parts) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_their_order_matter_and_repeat() {
        assert_eq!(bits(&[1, 2, 3]), bits(&[1, 2, 3]));
        assert_ne!(bits(&[1, 2, 3]), bits(&[1, 3, 2]));
        assert_ne!(bits(&[1, 2]), bits(&[1, 2, 0]));
    }

    #[test]
    fn units_are_even() {
        let n = 100_000;
        let mut deciles = [0_u32; 10];
        let mut sum = 0.0;
        for query in 0..n {
            let unit = unit(&[7, query, 3]);
            assert!(unit > 0.0 && unit < 1.0);
            deciles[(unit * 10.0) as usize] += 1;
            sum += unit;
        }
        assert!((sum / n as f64 - 0.5).abs() < 0.003);
        assert!(deciles.iter().all(|count| (9_700..10_300).contains(count)), "{deciles:?}");
    }
}
