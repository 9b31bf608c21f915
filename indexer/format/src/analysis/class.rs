//! Classes of characters, by which a text falls into words. Ranges are Unicode blocks; where one mixes letters and signs,
//! the standard library's properties decide.

/// What a character does to the word it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Letter or number of a script that puts borders between words.
    Letter,
    /// Character of a script without borders that is read by characters and pairs: Han, kana, Hangul, Bopomofo, Yi.
    Pair,
    /// Character of a script without borders that has a dictionary: Thai, Lao, Khmer, Burmese.
    Dictionary,
    /// Emoji: a word of its own.
    Emoji,
    /// Belongs to what stands before it: combining marks, joiners, selectors, invisible format characters.
    Attached,
    /// Everything else ends a word.
    Border,
}

/// Class of a character.
pub(super) fn class(c: char) -> Class {
    let code = c as u32;
    match code {
        0x00..=0x7f if c.is_ascii_alphanumeric() => Class::Letter,
        0xc0..=0x24f => {
            if matches!(code, 0xd7 | 0xf7) {
                Class::Border
            } else {
                Class::Letter
            }
        }
        0x400..=0x481 | 0x48a..=0x52f => Class::Letter,
        0x4e00..=0x9fff | 0xac00..=0xd7a3 | 0x3041..=0x3096 | 0x30a1..=0x30fa => Class::Pair,
        // Marks of voice on half-width kana, vowels and finals of taken-apart Hangul.
        0xff9e | 0xff9f | 0x1160..=0x11ff | 0xd7b0..=0xd7fb => Class::Attached,
        0xe00..=0xeff
        | 0x1000..=0x109f
        | 0x1780..=0x17ff
        | 0x19e0..=0x19ff
        | 0xa9e0..=0xa9ff
        | 0xaa60..=0xaa7f => dictionary_script(c),
        // ASCII signs; fractions, whose normal form is two numbers and a stroke; apostrophes that pass for letters.
        0x00..=0x7f | 0xbc..=0xbe | 0x2150..=0x215f | 0x2189 | 0x2bb | 0x2bc => Class::Border,
        _ if attached_format(code) => Class::Attached,
        _ if emoji(code) => Class::Emoji,
        _ if pair(code) => Class::Pair,
        _ if c.is_alphanumeric() => Class::Letter,
        _ if unicode_normalization::char::is_combining_mark(c) => Class::Attached,
        _ => Class::Border,
    }
}

fn dictionary_script(c: char) -> Class {
    if c.is_numeric() {
        Class::Letter
    } else if c.is_alphabetic() || unicode_normalization::char::is_combining_mark(c) {
        Class::Dictionary
    } else {
        Class::Border
    }
}

/// Invisible characters that may stand inside a word and say nothing: soft hyphen, joiners, direction marks, variation
/// selectors, tags, byte order mark. Not the zero-width space, which is a border.
pub(super) fn attached_format(code: u32) -> bool {
    matches!(code,
        0xad | 0x34f | 0x61c | 0x180b..=0x180f | 0x200c..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f
        | 0xfe00..=0xfe0f | 0xfeff | 0xe0000..=0xe0fff)
}

fn pair(code: u32) -> bool {
    matches!(code,
        0x1100..=0x115f // Hangul, taken apart
        | 0x2e80..=0x2fdf | 0x3005..=0x3007 | 0x3021..=0x3029 | 0x3031..=0x3035 | 0x3038..=0x303c | 0x3400..=0x4dbf
        | 0xf900..=0xfaff | 0x20000..=0x3ffff // Han
        | 0x309d..=0x309f | 0x30fc..=0x30ff | 0x31f0..=0x31ff | 0xff66..=0xff9d | 0x1aff0..=0x1b16f // kana
        | 0x3105..=0x312f | 0x31a0..=0x31bf // Bopomofo
        | 0x3131..=0x318e | 0xa960..=0xa97c | 0xffa1..=0xffdc // Hangul letters
        | 0xa000..=0xa48c | 0x17000..=0x18aff) // Yi, Tangut
}

/// Han: a character that alone is a word.
pub(super) fn han(c: char) -> bool {
    matches!(c as u32, 0x3005 | 0x3007 | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

/// Pictures that people write as words. Signs that are text in most fonts (trade mark, arrows, information) are not.
pub(super) fn emoji(code: u32) -> bool {
    matches!(code,
        0x231a | 0x231b | 0x2328 | 0x23cf | 0x23e9..=0x23fa | 0x25aa..=0x25ab | 0x25b6 | 0x25c0 | 0x25fb..=0x25fe
        | 0x2600..=0x2775 | 0x2794..=0x27bf | 0x2934 | 0x2935 | 0x2b05..=0x2b07 | 0x2b1b | 0x2b1c | 0x2b50 | 0x2b55
        | 0x1f000..=0x1f0ff | 0x1f170 | 0x1f171 | 0x1f17e | 0x1f17f | 0x1f18e | 0x1f191..=0x1f19a
        | 0x1f1e6..=0x1f1ff | 0x1f201 | 0x1f202 | 0x1f21a | 0x1f22f | 0x1f232..=0x1f23a | 0x1f250 | 0x1f251
        | 0x1f300..=0x1faff | 0x1fc00..=0x1fffd)
}

/// Letters that make the two halves of a flag.
pub(super) fn flag_half(code: u32) -> bool {
    matches!(code, 0x1f1e6..=0x1f1ff)
}

/// Skin tones.
pub(super) fn skin_tone(code: u32) -> bool {
    matches!(code, 0x1f3fb..=0x1f3ff)
}

/// Apostrophes, as keyboards and typesetters write them.
pub(super) fn apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{2bc}' | '\u{2bb}' | '\u{ff07}')
}

/// Hebrew letters, whose abbreviations hold a quotation mark.
pub(super) fn hebrew(c: char) -> bool {
    matches!(c, '\u{5d0}'..='\u{5f2}')
}
