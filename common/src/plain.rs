//! Text of others as it may be shown on terminals and written to logs.
//!
//! The failure this prevents: a reason or a document that moves the cursor, or turns the direction of what is shown after it, so that
//! a line of the audit log reads as another. Rules: what controls is a blank, what turns is left out; marks that words need (joiners,
//! left-to-right marks) stay.

use std::ops::RangeInclusive;

/// Embeddings, overrides and isolates of direction.
const TURNS: [RangeInclusive<char>; 2] = ['\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];

/// The characters of `text` that may be shown.
pub fn plain_chars(text: &str) -> impl Iterator<Item = char> {
    let shown = text.chars().filter(|c| !TURNS.iter().any(|turn| turn.contains(c)));
    shown.map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
}

/// `text` as it may be shown.
pub fn plain(text: &str) -> String {
    plain_chars(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_neither_moves_the_cursor_nor_turns_what_follows() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a [2Jb ");
        assert_eq!(plain("bad\u{202e}evil\u{2066}x\u{2069}\u{2028}y"), "badevilx y");
        assert_eq!(plain("می\u{200c}خواهم"), "می\u{200c}خواهم", "a joiner is part of the word");
    }
}
