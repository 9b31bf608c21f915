//! Words of a query: the same pieces and normal forms as a document's, under every language asked for.
//!
//! A compound is a form of both its words, so that `e-mail` finds `email`, also when both words are required. In runs of
//! Chinese, Japanese and Korean the pairs are the words; single Han characters come along as `extra`: they help ranking
//! (nDCG@10 +.007 on questions over traditional Chinese) and mean nothing to phrases or counts. Kana and Hangul alone
//! say too little and come only when they stand alone.

use super::{
    MAX_TOKEN_BYTES, Word, class,
    forms::Forms,
    language::Language,
    scan::{Kind, Piece, Scanner},
    stop,
    terms::{compound, dotted},
};

/// Words of the text, positions ascending. `languages` must not be empty.
pub(super) fn words(forms: &mut Forms, text: &str, languages: &[Language]) -> Vec<Word> {
    let mut query = Query { forms, text, languages, words: Vec::new(), scratch: String::new() };
    let mut last: Option<Piece> = None;
    let mut run: Vec<(Piece, u32)> = Vec::new();
    for (position, piece) in (0..).zip(Scanner::new(text)) {
        if !(piece.kind == Kind::Pair && piece.joined) {
            query.pair_run(&run);
            run.clear();
        }
        match piece.kind {
            Kind::Plain | Kind::Word => query.word(piece, last.filter(|_| piece.joined), position),
            Kind::Pair => run.push((piece, position)),
            Kind::Dictionary | Kind::Emoji => {
                let term = query.forms.unstemmed(piece.kind, &text[piece.start..piece.end]).to_owned();
                let stop = query.languages.iter().any(|language| stop::word(language.code, &term));
                query.push(term, stop, false, position, (piece.start, piece.end));
            }
        }
        last = Some(piece);
    }
    query.pair_run(&run);
    query.words
}

struct Query<'a> {
    forms: &'a mut Forms,
    text: &'a str,
    languages: &'a [Language],
    words: Vec<Word>,
    scratch: String,
}

fn add(forms: &mut Vec<String>, term: &str) {
    if !term.is_empty() && term.len() <= MAX_TOKEN_BYTES && !forms.iter().any(|form| form == term) {
        forms.push(term.to_owned());
    }
}

impl Query<'_> {
    fn word(&mut self, piece: Piece, joined: Option<Piece>, position: u32) {
        let raw = &self.text[piece.start..piece.end];
        let (mut terms, mut by_language, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        let mut stop = false;
        for &language in self.languages {
            let both = self.forms.word(raw, language);
            if both.first.is_empty() || both.first.len() > MAX_TOKEN_BYTES || raw.len() > MAX_TOKEN_BYTES {
                return;
            }
            by_language.push(both.first.to_owned());
            add(&mut terms, both.first);
            if let Some(second) = both.second {
                add(&mut seconds, second);
            }
            if piece.dotted {
                add(&mut seconds, dotted(both.first, &mut self.scratch));
            }
            stop |= stop::word(language.code, self.forms.bare(raw, language));
        }
        for second in &seconds {
            add(&mut terms, second);
        }
        if let Some(first) = joined {
            self.compound(first, piece, position, &mut terms);
        }
        let Piece { start, end, .. } = piece;
        self.words.push(Word { forms: terms, by_language, position, stop, extra: false, start, end });
    }

    /// Adds the compound with the word before to both.
    fn compound(&mut self, first: Piece, second: Piece, position: u32, terms: &mut Vec<String>) {
        let Some(raw) = compound(self.text, first, second, &mut self.scratch) else { return };
        let mut before = self.words.last_mut().filter(|word| word.position + 1 == position);
        for &language in self.languages {
            let both = self.forms.word(raw, language);
            for term in [Some(both.first), both.second].into_iter().flatten() {
                add(terms, term);
                if let Some(word) = &mut before {
                    add(&mut word.forms, term);
                }
            }
        }
    }

    fn push(&mut self, term: String, stop: bool, extra: bool, position: u32, (start, end): (usize, usize)) {
        if term.is_empty() || term.len() > MAX_TOKEN_BYTES {
            return;
        }
        let by_language = vec![term.clone(); self.languages.len()];
        self.words.push(Word { forms: vec![term], by_language, position, stop, extra, start, end });
    }

    fn pair_run(&mut self, run: &[(Piece, u32)]) {
        let stops = |languages: &[Language], term: &str| languages.iter().any(|l| stop::pair(l.code, term));
        for (i, &(Piece { start, end, .. }, position)) in run.iter().enumerate() {
            let one = self.forms.unstemmed(Kind::Pair, &self.text[start..end]).to_owned();
            if one.is_empty() {
                continue;
            }
            if let Some(&(next, _)) = run.get(i + 1) {
                let other = self.forms.unstemmed(Kind::Pair, &self.text[next.start..next.end]);
                if !other.is_empty() {
                    let two = one.clone() + other;
                    let stop = stops(self.languages, &two);
                    self.push(two, stop, false, position, (start, next.end));
                }
            }
            if run.len() == 1 || one.chars().all(class::han) {
                let stop = stops(self.languages, &one);
                self.push(one, stop, run.len() > 1, position, (start, end));
            }
        }
    }
}
