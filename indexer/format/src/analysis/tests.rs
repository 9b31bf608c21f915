//! Properties of the analysis, and what it does to the words people search for.

use super::*;

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }
}

const LANGUAGES: &[&str] = &[
    "en", "de", "fr", "es", "ru", "tr", "pl", "ar", "fa", "he", "hi", "ta", "el", "zh", "ja", "ko", "th",
    "vi", "fi", "sr", "xx", "",
];

/// Pieces of text in many scripts, with the signs that stick to words.
const SCRAPS: &[&str] = &[
    "running",
    "The",
    "e-mail",
    "state-of-the-art",
    "node.js",
    "C++",
    "C#",
    ".NET",
    "3.14",
    "1,000",
    "1,2",
    "U.S.A.",
    "e.g",
    "it's",
    "don’t",
    "l'amour",
    "O'Neill",
    "read_to_string",
    "HashMap",
    "AT&T",
    "a.b.c",
    "x",
    "v1.2.3",
    "utf-8",
    "++",
    "#",
    ".",
    ",",
    "-",
    "_",
    "&",
    "'",
    "’",
    "\"",
    " ",
    " ",
    " ",
    "\n",
    "\t",
    "/",
    "(",
    "ʼ",
    "ʻ",
    "café",
    "cafe\u{301}",
    "naïve",
    "Straße",
    "İstanbul'da",
    "ısparta",
    "çocukların",
    "Łódź",
    "właściwości",
    "ﬁne",
    "ＡＢＣ",
    "①",
    "½",
    "m²",
    "Ⅷ",
    "Москва",
    "ёлка",
    "за\u{301}мок",
    "й",
    "и\u{306}",
    "їжак",
    "Αθήνα",
    "ΟΔΟΣ",
    "ὁδός",
    "שָׁלוֹם",
    "צה\"ל",
    "צה״ל",
    "مُحَمَّد",
    "كـــتاب",
    "می\u{200c}خواهم",
    "کتاب",
    "١٩٩٠",
    "हिन्दी",
    "क़लम",
    "தமிழ்",
    "বাংলা",
    "สวัสดี",
    "ประเทศไทย",
    "ทำไม",
    "กขค",
    "๑๒",
    "ภาษาไทยง่ายนิดเดียว",
    "ភាសាខ្មែរ",
    "ພາສາລາວ",
    "မြန်မာဘာသာ",
    "清华大学",
    "東京都",
    "の",
    "コンピューター",
    "ｶﾞｷﾞ",
    "が",
    "か\u{3099}",
    "々",
    "한국어",
    "사람은",
    "\u{1112}\u{1161}\u{11ab}",
    "ㅋㅋㅋ",
    "⼈",
    "豈",
    "🍐",
    "⭐\u{fe0f}",
    "❤",
    "❤\u{fe0f}",
    "👩\u{200d}👩\u{200d}👧",
    "👍🏽",
    "🏽",
    "🤷\u{200d}♀\u{fe0f}",
    "🇩🇪",
    "🇩",
    "1\u{fe0f}\u{20e3}",
    "🏴\u{e0067}\u{e0062}\u{e007f}",
    "\u{200d}",
    "\u{ad}",
    "\u{200b}",
    "\u{301}",
    "\u{feff}",
    "\u{0}",
    "™",
    "col·lecció",
    "የአማርኛ",
    "ქართული",
    "𝐀𝐁",
    "\u{fdfa}",
];

fn text(dice: &mut Dice) -> String {
    let mut text = String::new();
    for _ in 0..=dice.roll(12) {
        match dice.roll(12) {
            0 => text.extend(char::from_u32(dice.roll(0x11_0000) as u32)),
            1 => text.extend(char::from_u32(dice.roll(0x3000) as u32)),
            2 => {
                // Pieces of scraps put marks and signs where nobody writes them.
                let chars: Vec<char> = dice.pick(SCRAPS).chars().collect();
                let from = dice.roll(chars.len());
                text.extend(&chars[from..=from + dice.roll(chars.len() - from)]);
            }
            _ => text.push_str(dice.pick(SCRAPS)),
        }
        if dice.roll(3) == 0 {
            text.push(' ');
        }
    }
    text
}

fn tokens(text: &str, language: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    Analyzer::new().document(text, language, &mut |token| tokens.push(token));
    tokens
}

fn terms(text: &str, language: &str) -> Vec<String> {
    tokens(text, language).into_iter().map(|token| token.text).collect()
}

fn finds(query: &str, document: &str, languages: &[&str], language: &str) -> bool {
    let terms = terms(document, language);
    let words = Analyzer::new().query(query, languages);
    !words.is_empty() && words.iter().all(|word| word.forms.iter().any(|form| terms.contains(form)))
}

#[test]
fn a_query_cut_out_of_a_document_has_only_terms_of_the_document() {
    let mut dice = Dice(1);
    let analyzer = Analyzer::new();
    for _ in 0..10_000 {
        let text = text(&mut dice);
        let language = dice.pick(LANGUAGES);
        let tokens = tokens(&text, language);
        if tokens.is_empty() {
            assert!(analyzer.query(&text, &[language]).is_empty(), "{text:?}");
            continue;
        }
        let known: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        for _ in 0..4 {
            let first = dice.pick(&tokens).start;
            let Some(last) =
                tokens.iter().map(|token| token.end).filter(|end| *end > first).nth(dice.roll(4))
            else {
                continue;
            };
            let query = &text[first..last];
            let words = analyzer.query(query, &[language]);
            assert!(!words.is_empty(), "{query:?} of {text:?} in {language:?} is empty");
            for term in words.iter().flat_map(|word| word.forms.iter().chain(&word.by_language)) {
                assert!(
                    known.contains(&term.as_str()),
                    "{term:?} of {query:?} is not in {text:?} in {language:?}: {known:?}"
                );
            }
        }
    }
}

#[test]
fn ranges_ascend_at_character_borders_of_the_original() {
    let mut dice = Dice(2);
    for _ in 0..5_000 {
        let text = text(&mut dice);
        let tokens = tokens(&text, dice.pick(LANGUAGES));
        let mut before = (0, 0);
        for token in &tokens {
            assert!(
                text.is_char_boundary(token.start) && text.is_char_boundary(token.end),
                "{text:?} {token:?}"
            );
            assert!(token.start < token.end && token.text.len() <= MAX_TOKEN_BYTES && !token.text.is_empty());
            assert!(
                (token.position, token.start) >= before || token.start >= before.1,
                "{text:?} {tokens:?}"
            );
            assert!(token.position >= before.0 && token.start + 1 >= before.1, "{text:?} {tokens:?}");
            before = (token.position, token.start);
        }
        let words = Analyzer::new().query(&text, &["en", "zh"]);
        assert!(
            words.iter().all(|word| text.is_char_boundary(word.start) && text.is_char_boundary(word.end))
        );
        assert!(words.iter().all(|word| !word.forms.is_empty() && word.by_language.len() == 2));
        assert!(words.windows(2).all(|pair| pair[0].position <= pair[1].position), "{text:?} {words:?}");
    }
}

#[test]
fn no_bytes_panic() {
    let mut dice = Dice(3);
    let analyzer = Analyzer::new();
    for _ in 0..5_000 {
        let bytes: Vec<u8> = (0..dice.roll(80)).map(|_| dice.roll(256) as u8).collect();
        let text = String::from_utf8_lossy(&bytes);
        let language = dice.pick(LANGUAGES);
        tokens(&text, language);
        analyzer.query(&text, &[language, "en"]);
        analyzer.fold(&text);
        analyzer.detect(&text);
        language_code(&text);
    }
}

#[test]
fn over_long_words_are_dropped_and_counted_and_the_rest_is_found() {
    let blob = "QUJD".repeat(1 << 18);
    let text = format!("before {blob} after {} end", "\u{434}".repeat(200));
    let mut found = Vec::new();
    let dropped =
        Analyzer::new().document(&text, "en", &mut |token| found.push((token.text, token.position)));
    assert_eq!(dropped, 2);
    assert_eq!(found, [("befor".into(), 0), ("after".into(), 2), ("end".into(), 4)]);
    assert!(Analyzer::new().query(&blob, &["en"]).is_empty());
    let marks = format!("か{}", "\u{301}".repeat(1 << 16));
    assert_eq!(Analyzer::new().document(&marks, "ja", &mut |_| ()), 1);
}

#[test]
fn short_words_of_all_scripts_are_found() {
    for (query, document, language) in [
        ("认证", "用户认证失败", "zh"),
        ("猫", "我的小猫咪", "zh"),
        ("日本", "日本語の本", "ja"),
        ("사람", "그 사람은 학생이다", "ko"),
        ("책", "책을 읽다", "ko"),
        ("🍐", "a ripe 🍐 pear", "en"),
        ("⭐", "five ⭐\u{fe0f} hotel", "en"),
        ("⭐\u{fe0f}", "five ⭐ hotel", "en"),
        ("👍", "👍🏽 nice", "en"),
        ("👩\u{200d}👩\u{200d}👧", "our family👩\u{200d}👩\u{200d}👧!", "en"),
        ("שלום", "שָׁלוֹם עולם", "he"),
        ("مرحبا", "مَرْحَبًا بالعالم", "ar"),
        ("ภาษา", "ภาษาไทยง่าย", "th"),
        ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", "ko"),
    ] {
        assert!(
            finds(query, document, &[language], language),
            "{query} in {document}: {:?}",
            terms(document, language)
        );
    }
}

#[test]
fn spellings_of_one_word_find_each_other() {
    for (a, b, language) in [
        ("email", "e-mail", "en"),
        ("nodejs", "node.js", "en"),
        ("node js", "node.js", "en"),
        ("wifi", "Wi-Fi", "en"),
        ("USA", "U.S.A.", "en"),
        ("1000", "1,000", "en"),
        ("café", "cafe", "fr"),
        ("généralité", "generalite", "fr"),
        ("running", "run", "en"),
        ("dont", "don’t", "en"),
        ("John", "John's", "en"),
        ("amour", "l’amour", "fr"),
        ("İstanbul", "istanbul'da", "tr"),
        ("ελλάδα", "ΕΛΛΑΔΑ", "el"),
        ("елка", "ёлка", "ru"),
        ("strasse", "Straße", "de"),
        ("Abc", "ＡＢＣ", "en"),
        ("1990", "١٩٩٠", "ar"),
        ("hà nội", "ha noi", "vi"),
        ("read to string", "read_to_string", "en"),
    ] {
        assert!(finds(a, b, &[language], language), "{a} in {b}: {:?}", terms(b, language));
        assert!(
            finds(b, a, &[language], language) || a.contains(' '),
            "{b} in {a}: {:?}",
            terms(a, language)
        );
    }
}

#[test]
fn technical_words_stay_apart() {
    assert_eq!(terms("C++ c C# .NET", "en"), ["c++", "c", "c#", ".net", "net"]);
    assert_eq!(terms("3.14 v1.2.3 1,2", "en"), ["3.14", "v1.2.3", "1", "2"]);
    assert_eq!(terms("JavaScript", "en"), ["javascript"]);
    assert_eq!(terms("node.js", "en"), ["node", "nodej", "js"]);
    assert!(!finds("C++", "C", &["en"], "en") && !finds("java", "JavaScript", &["en"], "en"));
    // Letters of other scripts keep their marks.
    assert_eq!(terms("हिन्दी", ""), ["हिन्दी"]);
    assert_eq!(terms("їжак й", ""), ["їжак", "й"]);
}

#[test]
fn stop_words_are_flagged_and_kept() {
    let words = Analyzer::new().query("to be or not to be", &["en"]);
    assert_eq!(words.len(), 6);
    assert!(words.iter().all(|word| word.stop && !word.forms.is_empty()));
    let words = Analyzer::new().query("the Who's next", &["en", "fr"]);
    assert_eq!(words.iter().map(|word| word.stop).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(words[2].by_language.len(), 2);
    let words = Analyzer::new().query("谁是什么", &["zh"]);
    assert!(!words.is_empty() && words.iter().all(|word| word.stop));
}

#[test]
fn pairs_are_the_words_and_characters_are_extra() {
    let words = Analyzer::new().query("清华大学 test", &["zh"]);
    let plain: Vec<_> =
        words.iter().filter(|word| !word.extra).map(|word| (word.forms[0].as_str(), word.position)).collect();
    assert_eq!(plain, [("清华", 0), ("华大", 1), ("大学", 2), ("test", 4)]);
    assert_eq!(words.iter().filter(|word| word.extra).count(), 4);
}

#[test]
fn codes_and_detection() {
    for (given, want) in [
        ("en-US", "en"),
        ("zh-Hant", "zh"),
        ("pt-br", "pt"),
        ("DEU", "de"),
        ("nb_NO", "no"),
        ("English", "en"),
        ("qx", "qx"),
    ] {
        assert_eq!(language_code(given).as_deref(), Some(want), "{given}");
    }
    for bad in ["", "x", "1", "und", "*", "english language"] {
        assert_eq!(language_code(bad), None, "{bad}");
    }
    let analyzer = Analyzer::new();
    for (text, want) in [
        ("ok", None),
        ("Berlin 2024", None),
        ("用户认证失败", Some("zh")),
        ("これはペンです", Some("ja")),
        ("한국어 문장", Some("ko")),
        ("ภาษาไทย", Some("th")),
        ("Αθήνα", Some("el")),
        (
            "The quick brown fox jumps over the lazy dog while the children were watching it from the garden",
            Some("en"),
        ),
        (
            "Der schnelle braune Fuchs springt über den faulen Hund, während die Kinder ihm aus dem Garten zusehen",
            Some("de"),
        ),
    ] {
        assert_eq!(analyzer.detect(text), want, "{text}");
    }
}

/// Terms of a fixed text. When this fails, the same text gives other terms than before: versions built by another build
/// could not be searched any more, so the id must change with it.
#[test]
fn the_id_names_these_rules() {
    let mut all = String::new();
    for (language, scrap) in
        LANGUAGES.iter().flat_map(|language| SCRAPS.iter().map(move |scrap| (language, scrap)))
    {
        for token in tokens(scrap, language) {
            all.extend([&token.text, "@", &token.position.to_string(), " "]);
        }
    }
    let digest = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(all.as_bytes()));
    assert_eq!(
        (Analyzer::id(), digest.as_str()),
        ("a1", "d25a80b6a7183f93"),
        "bump Analyzer::id() and this line"
    );
}

#[test]
fn the_spelling_is_the_folded_word_before_stemming() {
    let pairs = |language: &str, text: &str| {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut each = |token: Token| found.push((token.spelling, token.text));
        // twice: the second time from the table of recent words
        Analyzer::new().document(text, language, &mut |_| {});
        Analyzer::new().document(text, language, &mut each);
        found.retain(|(spelling, _)| !spelling.is_empty());
        let each = found.into_iter().map(|(spelling, term)| format!("{spelling}>{term}"));
        each.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(pairs("en", "The Replication"), "the>the replication>replic");
    assert_eq!(pairs("de", "Häuser der Straße"), "hauser>haus der>der strasse>strass");
    assert_eq!(pairs("ru", "Книги"), "книги>книг");
    assert_eq!(pairs("", "Replication Häuser"), "replication>replication hauser>hauser");
    assert_eq!(pairs("en", "e-mails"), "e>e emails>email mails>mail");
    assert_eq!(pairs("en", ".net"), ".net>.net net>net");
    assert_eq!(pairs("ja", "東京"), "東>東 東京>東京 京>京");
    assert_eq!(pairs("th", "ภาษา"), "ภาษา>ภาษา");
    // a second term has no spelling of its own
    assert_eq!(pairs("fr", "généralité").matches('>').count(), 1);
    assert_eq!(pairs("vi", "tiếng"), "tieng>tieng");
}
