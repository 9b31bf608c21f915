//! Languages: their codes, stemmers and detection. A code is the ISO 639-1 letters in lower case; region and script are
//! cut off (`en-US` is `en`, `zh-Hant` is `zh`), three-letter codes and old names are mapped.
//!
//! Detection asks the script first, which is certain for many languages. Only scripts shared by many languages go to the
//! statistical detector, and only its answers on enough letters count: a wrong language costs more than none, because
//! the corpus' default is then the better guess.

use frostem::{Algorithm, Stemmer};

use super::stop;

/// How words of a language are stemmed.
#[derive(Clone, Copy)]
pub(super) struct Language {
    /// The code; empty when unknown.
    pub(super) code: &'static str,
    /// Number in the table, for caches.
    pub(super) number: u8,
    /// The stemmer, when there is one.
    pub(super) stemmer: Option<Stemmer>,
    /// ASCII words can be stemmed, too.
    pub(super) latin: bool,
    /// Accents make other words (Vietnamese tones): the accented form is a term as well.
    pub(super) tones: bool,
    /// Case endings stand behind an apostrophe.
    pub(super) cut_at_apostrophe: bool,
}

struct Entry {
    code: &'static str,
    /// Other names, separated by spaces.
    names: &'static str,
    stemmer: Option<Algorithm>,
}

const fn entry(code: &'static str, names: &'static str, stemmer: Option<Algorithm>) -> Entry {
    Entry { code, names, stemmer }
}

const NONE: Option<Algorithm> = None;

const LANGUAGES: &[Entry] = &[
    entry("en", "eng english", Some(Algorithm::English)),
    entry("de", "deu ger german", Some(Algorithm::German)),
    entry("fr", "fra fre french", Some(Algorithm::French)),
    entry("es", "spa spanish", Some(Algorithm::Spanish)),
    entry("it", "ita italian", Some(Algorithm::Italian)),
    entry("pt", "por portuguese", Some(Algorithm::Portuguese)),
    entry("nl", "nld dut dutch", Some(Algorithm::Dutch)),
    entry("ru", "rus russian", Some(Algorithm::Russian)),
    entry("zh", "zho chi cmn chinese yue", NONE),
    entry("ja", "jpn japanese", NONE),
    entry("ko", "kor korean", NONE),
    entry("ar", "ara arb arabic", Some(Algorithm::Arabic)),
    entry("hy", "hye arm armenian", Some(Algorithm::Armenian)),
    entry("eu", "eus baq basque", Some(Algorithm::Basque)),
    entry("ca", "cat catalan", Some(Algorithm::Catalan)),
    entry("cs", "ces cze czech", Some(Algorithm::Czech)),
    entry("da", "dan danish", Some(Algorithm::Danish)),
    entry("eo", "epo esperanto", Some(Algorithm::Esperanto)),
    entry("et", "est estonian", Some(Algorithm::Estonian)),
    entry("fi", "fin finnish", Some(Algorithm::Finnish)),
    entry("el", "ell gre greek", Some(Algorithm::Greek)),
    entry("hi", "hin hindi", Some(Algorithm::Hindi)),
    entry("hu", "hun hungarian", Some(Algorithm::Hungarian)),
    entry("id", "ind in indonesian", Some(Algorithm::Indonesian)),
    entry("ga", "gle irish", Some(Algorithm::Irish)),
    entry("lt", "lit lithuanian", Some(Algorithm::Lithuanian)),
    entry("ne", "nep nepali", Some(Algorithm::Nepali)),
    entry("no", "nor nb nob nn nno norwegian", Some(Algorithm::Norwegian)),
    entry("fa", "fas per pes persian", Some(Algorithm::Persian)),
    entry("pl", "pol polish", Some(Algorithm::Polish)),
    entry("ro", "ron rum mo romanian", Some(Algorithm::Romanian)),
    entry("sr", "srp sh hr hrv bs bos cnr serbian croatian bosnian", Some(Algorithm::Serbian)),
    entry("st", "sot sesotho", Some(Algorithm::Sesotho)),
    entry("sv", "swe swedish", Some(Algorithm::Swedish)),
    entry("ta", "tam tamil", Some(Algorithm::Tamil)),
    entry("tr", "tur turkish", Some(Algorithm::Turkish)),
    entry("yi", "yid ji yiddish", Some(Algorithm::Yiddish)),
    entry("af", "afr afrikaans", NONE),
    entry("am", "amh amharic", NONE),
    entry("az", "aze azerbaijani", NONE),
    entry("be", "bel belarusian", NONE),
    entry("bg", "bul bulgarian", NONE),
    entry("bn", "ben bengali", NONE),
    entry("cy", "cym wel welsh", NONE),
    entry("gu", "guj gujarati", NONE),
    entry("he", "heb iw hebrew", NONE),
    entry("jv", "jav jw javanese", NONE),
    entry("ka", "kat geo georgian", NONE),
    entry("km", "khm khmer", NONE),
    entry("kn", "kan kannada", NONE),
    entry("la", "lat latin", NONE),
    entry("lo", "lao", NONE),
    entry("lv", "lav latvian", NONE),
    entry("mk", "mkd mac macedonian", NONE),
    entry("ml", "mal malayalam", NONE),
    entry("mr", "mar marathi", NONE),
    entry("ms", "msa may malay", NONE),
    entry("my", "mya bur burmese", NONE),
    entry("or", "ori oriya", NONE),
    entry("pa", "pan punjabi", NONE),
    entry("si", "sin sinhala", NONE),
    entry("sk", "slk slo slovak", NONE),
    entry("sl", "slv slovenian slovene", NONE),
    entry("sn", "sna shona", NONE),
    entry("te", "tel telugu", NONE),
    entry("th", "tha thai", NONE),
    entry("tk", "tuk turkmen", NONE),
    entry("tl", "tgl fil tagalog", NONE),
    entry("uk", "ukr ukrainian", NONE),
    entry("ur", "urd urdu", NONE),
    entry("uz", "uzb uzbek", NONE),
    entry("vi", "vie vietnamese", NONE),
    entry("zu", "zul zulu", NONE),
    entry("ak", "aka akan", NONE),
];

/// The normal code of a language: `None` when the text is no language code. A code that this build does not know is kept
/// if it looks like one (two or three letters).
pub fn code(text: &str) -> Option<String> {
    let primary = text.trim().split(['-', '_', '.']).next()?;
    if primary.len() > 16 || primary.len() < 2 || !primary.bytes().all(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    let primary = primary.to_ascii_lowercase();
    match find(&primary) {
        Some(at) => Some(LANGUAGES[at].code.to_owned()),
        None if matches!(primary.as_str(), "und" | "mul" | "zxx" | "mis") => None,
        None => (primary.len() <= 3).then_some(primary),
    }
}

fn find(primary: &str) -> Option<usize> {
    LANGUAGES
        .iter()
        .position(|entry| entry.code == primary)
        .or_else(|| LANGUAGES.iter().position(|entry| entry.names.split(' ').any(|name| name == primary)))
}

/// How words of a language are treated. Unknown languages are not stemmed.
pub(super) fn resolve(text: &str) -> Language {
    let at = match LANGUAGES.iter().position(|entry| entry.code == text) {
        Some(at) => Some(at),
        None => code(text).and_then(|code| find(&code)),
    };
    let Some(at) = at else {
        return Language {
            code: "",
            number: u8::MAX,
            stemmer: None,
            latin: true,
            tones: false,
            cut_at_apostrophe: false,
        };
    };
    let entry = &LANGUAGES[at];
    Language {
        code: entry.code,
        number: at as u8,
        stemmer: entry.stemmer.map(Stemmer::new),
        latin: !matches!(entry.code, "ar" | "hy" | "el" | "fa" | "hi" | "ne" | "ru" | "ta" | "yi"),
        tones: entry.code == "vi",
        cut_at_apostrophe: matches!(entry.code, "tr" | "az"),
    }
}

/// Letters looked at.
const DETECT_LETTERS: usize = 1000;
/// Fewer letters of a shared script say nothing certain.
const MIN_LETTERS: usize = 24;
/// Below this many letters the detector must be very sure, or the stop words must say the same.
const SURE_LETTERS: usize = 120;

/// Scripts that decide, and those shared by many languages.
#[derive(Default)]
struct Letters {
    all: usize,
    shared: usize,
    han: usize,
    kana: usize,
    single: [usize; SINGLE.len()],
}

/// Scripts of one language (or one by far).
const SINGLE: [(&str, &[(u32, u32)]); 19] = [
    ("ko", &[(0x1100, 0x11ff), (0x3131, 0x318e), (0xac00, 0xd7a3)]),
    ("th", &[(0xe01, 0xe4e)]),
    ("el", &[(0x370, 0x3ff), (0x1f00, 0x1fff)]),
    ("ka", &[(0x10a0, 0x10ff), (0x1c90, 0x1cbf)]),
    ("hy", &[(0x531, 0x587)]),
    ("bn", &[(0x980, 0x9ff)]),
    ("pa", &[(0xa00, 0xa7f)]),
    ("gu", &[(0xa80, 0xaff)]),
    ("or", &[(0xb00, 0xb7f)]),
    ("ta", &[(0xb80, 0xbff)]),
    ("te", &[(0xc00, 0xc7f)]),
    ("kn", &[(0xc80, 0xcff)]),
    ("ml", &[(0xd00, 0xd7f)]),
    ("lo", &[(0xe80, 0xeff)]),
    ("km", &[(0x1780, 0x17ff)]),
    ("my", &[(0x1000, 0x109f)]),
    ("si", &[(0xd80, 0xdff)]),
    ("am", &[(0x1200, 0x139f)]),
    ("he", &[(0x590, 0x5ff)]),
];

/// Language of a text, when it is certain enough.
pub(super) fn detect(text: &str) -> Option<&'static str> {
    let (letters, end) = count(text);
    if letters.all == 0 {
        return None;
    }
    // One Han character says as much as several Latin letters, and pages of all languages hold Latin names.
    let east = letters.han + letters.kana;
    if east * 5 >= letters.all {
        return Some(if letters.kana * 20 >= east { "ja" } else { "zh" });
    }
    if let Some((at, &count)) = letters.single.iter().enumerate().max_by_key(|(_, count)| **count)
        && count * 3 >= letters.all
    {
        let yiddish = SINGLE[at].0 == "he"
            && whatlang::detect(&text[..end])
                .is_some_and(|info| info.lang() == whatlang::Lang::Yid && info.is_reliable());
        return Some(if yiddish { "yi" } else { SINGLE[at].0 });
    }
    if letters.shared < MIN_LETTERS {
        return None;
    }
    let info = whatlang::detect(&text[..end])?;
    let found = find(info.lang().code()).map(|at| LANGUAGES[at].code)?;
    let sure = match letters.shared {
        ..SURE_LETTERS => info.confidence() > 0.97 || stop::most(text) == Some(found),
        _ => info.is_reliable(),
    };
    sure.then_some(found)
}

fn count(text: &str) -> (Letters, usize) {
    let mut letters = Letters::default();
    for (at, c) in text.char_indices() {
        if !c.is_alphabetic() {
            continue;
        }
        if letters.all == DETECT_LETTERS {
            return (letters, at);
        }
        letters.all += 1;
        match c as u32 {
            0..=0x36f | 0x400..=0x52f => letters.shared += 1,
            0x3041..=0x30ff | 0x31f0..=0x31ff | 0xff66..=0xff9d => letters.kana += 1,
            0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff => letters.han += 1,
            code => match SINGLE
                .iter()
                .position(|(_, ranges)| ranges.iter().any(|&(a, b)| (a..=b).contains(&code)))
            {
                Some(at) => letters.single[at] += 1,
                None => letters.shared += 1,
            },
        }
    }
    (letters, text.len())
}
