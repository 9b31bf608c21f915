//! Normal forms. `lower` is NFKC in lower case with accents kept, which the stemmers of most languages need; `folded` is
//! without accents, so that a query typed on a plain keyboard finds the word.
//!
//! Accents fall from Latin and Greek letters. Of Cyrillic only stress marks and the dots of `ё` go (`й` and `ї` are
//! letters), of Hebrew the points, of Arabic the vowel signs and the stretching stroke. Marks of every other script are
//! letters' parts and stay: without them Hangul, Thai and Indic words fall to pieces.

use unicode_normalization::{
    UnicodeNormalization,
    char::{decompose_canonical, is_combining_mark},
};

use super::class;

/// Prefixes that French, Italian and Catalan write together with the word by an apostrophe.
const ELISIONS: &[&str] = &[
    "l", "d", "j", "c", "n", "m", "t", "s", "v", "qu", "un", "gl", "all", "dell", "nell", "sull", "dall",
    "coll", "quell", "quest", "bell", "jusqu", "lorsqu", "puisqu", "quoiqu",
];
/// English endings behind an apostrophe; `n't` stays, it turns the meaning.
const CLITICS: &[&str] = &["s", "ll", "re", "ve", "d", "m"];

/// Rules that depend on the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rules {
    /// Turkish and Azerbaijani put case endings of names behind an apostrophe.
    pub(super) cut_at_apostrophe: bool,
}

/// Writes both forms of a word as it stands in a text.
pub(super) fn word(raw: &str, rules: Rules, lower: &mut String, folded: &mut String) {
    lower.clear();
    lower_into(raw.chars().filter(|&c| !class::attached_format(c as u32)), lower);
    signs(lower);
    apostrophes(lower, rules);
    folded.clear();
    fold_into(lower, folded);
}

/// Appends the normal form of one character of a script read by pairs.
pub(super) fn pair(raw: &str, folded: &mut String) {
    let mut chars = raw.chars();
    match (chars.next(), chars.next()) {
        (
            Some(
                c @ ('\u{4e00}'..='\u{9fff}'
                | '\u{ac00}'..='\u{d7a3}'
                | '\u{3041}'..='\u{3096}'
                | '\u{30a1}'..='\u{30fa}'),
            ),
            None,
        ) => {
            folded.push(c);
        }
        _ => folded.extend(raw.chars().filter(|&c| !class::attached_format(c as u32)).nfkc()),
    }
}

/// Appends the normal form of a dictionary word.
pub(super) fn dictionary(raw: &str, folded: &mut String) {
    folded.extend(raw.nfkc());
}

/// Appends the normal form of an emoji: without selectors, skin tones and the signs of gender.
pub(super) fn emoji(raw: &str, folded: &mut String) {
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{200d}' if chars.next_if(|&next| matches!(next, '\u{2640}' | '\u{2642}')).is_some() => {}
            '\u{200d}' | '\u{e0020}'..='\u{e007f}' => folded.push(c),
            c if class::skin_tone(c as u32) && !folded.is_empty() => {}
            c if class::class(c) == class::Class::Attached => {}
            c => folded.push(c),
        }
    }
    let kept = folded.trim_end_matches('\u{200d}').len();
    folded.truncate(kept);
}

/// Normal form of a whole text with every sign kept.
pub(super) fn text(raw: &str) -> String {
    let (mut lower, mut folded) = (String::with_capacity(raw.len()), String::with_capacity(raw.len()));
    lower_into(raw.chars().filter(|&c| !class::attached_format(c as u32)), &mut lower);
    fold_into(&lower, &mut folded);
    folded
}

fn lower_into(chars: impl Iterator<Item = char>, out: &mut String) {
    for c in chars.nfkc() {
        match c {
            'a'..='z' | '0'..='9' => out.push(c),
            'A'..='Z' => out.push(c.to_ascii_lowercase()),
            '\u{130}' => out.push('i'),
            'ς' => out.push('σ'),
            c if c.is_ascii() => out.push(c),
            c if class::apostrophe(c) => out.push('\''),
            c => match ascii_digit(c) {
                Some(digit) => out.push(digit),
                None => out.extend(c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c })),
            },
        }
    }
}

/// Takes the signs out that the scanner left inside: dots of acronyms, commas of thousands, quotes of abbreviations. Dots
/// between digits, `++` and `#` at the end stay.
fn signs(lower: &mut String) {
    let mut before = ' ';
    let mut removed = false;
    let keep = |before: char, c: char, after: Option<char>| match c {
        '.' => before.is_ascii_digit() && after.is_some_and(|a| a.is_ascii_digit()),
        '+' | '#' | '\'' => true,
        c => c.is_alphanumeric() || is_combining_mark(c),
    };
    let mut chars = lower.chars().peekable();
    let mut clean = String::new();
    while let Some(c) = chars.next() {
        let kept = keep(before, c, chars.peek().copied());
        removed |= !kept;
        if kept {
            clean.push(c);
        }
        before = c;
    }
    if removed {
        *lower = clean;
    }
}

fn apostrophes(lower: &mut String, rules: Rules) {
    let Some(first) = lower.find('\'') else { return };
    if rules.cut_at_apostrophe && first > 0 {
        lower.truncate(first);
        return;
    }
    let (prefix, rest) = (&lower[..first], &lower[first + 1..]);
    if ELISIONS.contains(&prefix) && rest.chars().next().is_some_and(vowel) {
        lower.drain(..=first);
    }
    if let Some((kept, ending)) = lower.rsplit_once('\'')
        && CLITICS.contains(&ending)
    {
        lower.truncate(kept.len());
    }
    lower.retain(|c| c != '\'');
}

/// First letters before which Romance languages elide.
fn vowel(c: char) -> bool {
    let mut base = c;
    let mut first = true;
    decompose_canonical(c, |part| {
        if std::mem::take(&mut first) {
            base = part;
        }
    });
    matches!(base, 'a' | 'e' | 'i' | 'o' | 'u' | 'y' | 'h' | 'œ' | 'æ')
}

/// The ASCII digit of a decimal digit of another script.
fn ascii_digit(c: char) -> Option<char> {
    const ZEROS: &[u32] = &[
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0,
        0xf20, 0x1040, 0x17e0, 0x1810,
    ];
    let code = c as u32;
    let at = ZEROS.partition_point(|&zero| zero <= code);
    let zero = *ZEROS.get(at.checked_sub(1)?)?;
    (code - zero < 10).then(|| char::from(b'0' + (code - zero) as u8))
}

/// Whose marks fall.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Bare,
    Cyrillic,
    Other,
}

/// Appends the form without accents.
pub(super) fn fold_into(lower: &str, out: &mut String) {
    let mut base = Base::Other;
    for c in lower.chars() {
        match c {
            '\0'..='\x7f' => {
                base = Base::Bare;
                out.push(c);
            }
            '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | '\u{250}'..='\u{2af}' => {
                base = Base::Bare;
                latin(c, out);
            }
            // Hebrew points; Arabic vowel signs; the stroke that stretches; modifier letters, which are apostrophes.
            '\u{591}'..='\u{5bd}'
            | '\u{5bf}'
            | '\u{5c1}'..='\u{5c7}'
            | '\u{610}'..='\u{61a}'
            | '\u{64b}'..='\u{652}'
            | '\u{656}'..='\u{65f}'
            | '\u{670}'
            | '\u{6d6}'..='\u{6dc}'
            | '\u{6df}'..='\u{6e4}'
            | '\u{640}'
            | '\u{2b0}'..='\u{2ff}' => {}
            '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => {
                base = Base::Bare;
                let mut first = true;
                decompose_canonical(c, |part| {
                    if std::mem::take(&mut first) {
                        out.push(part);
                    }
                });
            }
            '\u{400}'..='\u{52f}' => {
                base = Base::Cyrillic;
                out.push(match c {
                    'ё' | 'ѐ' => 'е',
                    'ѝ' => 'и',
                    c => c,
                });
            }
            // Persian and Urdu spellings of letters that Arabic keyboards write otherwise.
            'ی' => out.push('ي'),
            'ک' => out.push('ك'),
            c if is_combining_mark(c) => match base {
                Base::Bare => {}
                Base::Cyrillic if matches!(c, '\u{300}' | '\u{301}' | '\u{483}'..='\u{487}') => {}
                _ => out.push(c),
            },
            c => {
                base = Base::Other;
                out.push(c);
            }
        }
    }
}

fn latin(c: char, out: &mut String) {
    let mut base = c;
    let mut first = true;
    decompose_canonical(c, |part| {
        if std::mem::take(&mut first) {
            base = part;
        }
    });
    match base {
        'ß' => out.push_str("ss"),
        'æ' => out.push_str("ae"),
        'œ' => out.push_str("oe"),
        'þ' => out.push_str("th"),
        'ø' => out.push('o'),
        'đ' | 'ð' => out.push('d'),
        'ħ' => out.push('h'),
        'ı' => out.push('i'),
        'ł' => out.push('l'),
        'ŋ' => out.push('n'),
        'ŧ' => out.push('t'),
        'ƒ' => out.push('f'),
        base => out.push(base),
    }
}
