//! How long something took or takes, for people: the two largest units, so that nobody divides milliseconds by heart.

/// `7 min 54 s`, `2 h`, `250 ms`.
pub fn words(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let Some(at) = UNITS.iter().position(|(unit, _)| ms >= *unit) else { return format!("{ms} ms") };
    let (unit, name) = UNITS[at];
    let large = format!("{} {name}", ms / unit);
    match UNITS.get(at + 1).map(|(unit, name)| (ms % UNITS[at].0 / unit, name)) {
        Some((rest, name)) if rest > 0 => format!("{large} {rest} {name}"),
        _ => large,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_two_units() {
        let told = [(0, "0 ms"), (250, "250 ms"), (3_999, "3 s"), (60_000, "1 min"), (474_372, "7 min 54 s")];
        for (ms, text) in told {
            assert_eq!(words(ms), text);
        }
        assert_eq!((words(7_500_000), words(90_000_000)), ("2 h 5 min".to_owned(), "1 d 1 h".to_owned()));
    }
}
