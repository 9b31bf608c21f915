//! Text to tokens, in one pass. There is no text it refuses: a sign, quote or bracket that opens nothing is a part of
//! a word or is skipped, with a warning where someone may have meant it.
//!
//! Why by hand: what people paste is not a language. The rules that keep a paste a search: a quote right behind a
//! letter or digit is an inch or an abbreviation mark, and quotes between the brackets and colons of data mean nothing;
//! `-` and `+` are signs only between a space and a word, so `--help` and `C++` are words; a name with a colon is a
//! field only when the schema has it, so addresses and log lines are words; `?` is a wildcard only inside a word; `*`
//! needs a letter beside it.
//!
//! Linear: every look-ahead is bounded (names by 64 characters, ranges by 256) or consumes what it looked at; a search
//! for a closing quote can fail once only, since no quote is left then. `steps` counts the characters looked at.

use canopy_format::schema::{Kind, Schema};

use super::{
    target::{Target, resolve, short},
    warnings::Warnings,
};

mod prose;
mod shape;
mod token;

use shape::{Spelling, spaceless};
pub use shape::{between, by_dictionary};
pub use token::{Ask, Atom, Comparison, End, Sign, Token};

/// Longest field name, characters.
const MAX_NAME: usize = 64;
/// Longest `[a TO b]`, characters.
const MAX_RANGE: usize = 256;
/// Largest distance of phrase words; the leaves' own bound.
pub const MAX_SLOP: u32 = 64;

/// The tokens of a text.
#[derive(Debug)]
pub struct Lexed<'a> {
    /// In order.
    pub tokens: Vec<Token<'a>>,
    /// Characters looked at.
    pub steps: usize,
}

/// Splits a text.
pub fn lex<'a>(text: &'a str, schema: &Schema, warnings: &mut Warnings) -> Lexed<'a> {
    let mut lexer = Lexer { text, at: 0, steps: 0, tokens: Vec::new(), schema, warnings };
    while let Some(c) = lexer.look(lexer.at) {
        match c {
            '(' => lexer.push(1, Token::Open(None)),
            ')' => lexer.close(),
            '+' | '-' => lexer.sign(c),
            _ if is_quote(c) => lexer.quote(None, lexer.at),
            _ if is_blank(c) => lexer.at += c.len_utf8(),
            _ => lexer.word(),
        }
    }
    let (mut tokens, steps) = (lexer.tokens, lexer.steps);
    prose::settle(text, &mut tokens, warnings);
    Lexed { tokens, steps }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '“' | '”' | '„' | '＂')
}

struct Lexer<'a, 's> {
    text: &'a str,
    at: usize,
    steps: usize,
    tokens: Vec<Token<'a>>,
    schema: &'s Schema,
    warnings: &'s mut Warnings,
}

impl<'a> Lexer<'a, '_> {
    fn look(&mut self, at: usize) -> Option<char> {
        self.steps += 1;
        self.text[at..].chars().next()
    }

    /// Where `stop` first holds at or after `from`, among the next `most` characters; the end of the text counts.
    fn scan(&mut self, from: usize, most: usize, mut stop: impl FnMut(char) -> bool) -> Option<usize> {
        let mut seen = 0;
        for (offset, c) in self.text[from..].char_indices() {
            seen += 1;
            if stop(c) {
                self.steps += seen;
                return Some(from + offset);
            }
            if seen > most {
                self.steps += seen;
                return None;
            }
        }
        self.steps += seen;
        Some(self.text.len())
    }

    fn push(&mut self, length: usize, token: Token<'a>) {
        self.at += length;
        self.tokens.push(token);
    }

    fn atom(&mut self, target: Option<Target>, ask: Ask<'a>, typed: &'a str, boost: f32) {
        self.tokens.push(Token::Atom(Atom { target, ask, typed, boost }));
    }

    fn close(&mut self) {
        self.at += 1;
        let (_, boost) = self.suffixes();
        self.tokens.push(Token::Close(boost));
    }

    /// One `+` or `-` between a space and a word is a sign; anything else is skipped.
    fn sign(&mut self, c: char) {
        let before = self.text[..self.at].chars().next_back();
        let end = self.scan(self.at, usize::MAX, |c| c != '+' && c != '-').unwrap_or(self.text.len());
        let after = self.look(end);
        let alone = end - self.at == 1 && before.is_none_or(|b| is_blank(b) || b == '(');
        self.at = end;
        if alone && after.is_some_and(|a| !is_blank(a) && a != ')') {
            self.tokens.push(Token::Sign(if c == '+' { Sign::Must } else { Sign::Not }));
        }
    }

    /// A phrase, from its opening quote at `open`. `start` of the atom is where the lexer stands.
    fn quote(&mut self, target: Option<Target>, open: usize) {
        let from = open + self.look(open).map_or(0, char::len_utf8);
        let start = self.at;
        match self.scan(from, usize::MAX, is_quote) {
            Some(end) if end < self.text.len() => {
                let inside = &self.text[from..end];
                self.at = end + self.look(end).map_or(0, char::len_utf8);
                let (slop, boost) = self.suffixes();
                let ask = match &target {
                    Some(target) if target.kind != Kind::Text => Ask::Exact(inside.trim()),
                    None if start == open && self.in_code(open, end) => Ask::Words(inside),
                    _ => Ask::Phrase(inside, slop),
                };
                if !inside.trim().is_empty() {
                    self.atom(target, ask, &self.text[start..end], boost);
                }
            }
            _ => {
                self.stray_quote();
                self.at = from;
            }
        }
    }

    /// Whether quotes belong to pasted data, `{"level":"error"}`, whose pieces nobody wants all to be required.
    fn in_code(&self, open: usize, close: usize) -> bool {
        let before = self.text[..open].chars().next_back();
        let after = self.text[close..].chars().nth(1);
        before.is_some_and(|c| "{[:=".contains(c)) || after.is_some_and(|c| ":=]}".contains(c))
    }

    fn stray_quote(&mut self) {
        self.warnings.add("unbalanced_quote", "a quote without its pair was read as part of the words");
    }

    /// `~3` and `^2` behind a phrase or a group.
    fn suffixes(&mut self) -> (u32, f32) {
        let (mut slop, mut boost) = (0, 1.0);
        for _ in 0..2 {
            let Some(mark) = self.look(self.at).filter(|c| matches!(c, '~' | '^')) else { break };
            let from = self.at + 1;
            let end = self.scan(from, 12, |c| !(c.is_ascii_digit() || c == '.')).unwrap_or(from);
            let number = &self.text[from..end];
            if mark == '~' {
                slop = number.parse().unwrap_or(0).min(MAX_SLOP);
            } else {
                boost = shape::boost(number, self.warnings);
            }
            self.at = end;
        }
        (slop, boost)
    }

    /// Anything that begins with neither sign, quote nor parenthesis.
    fn word(&mut self) {
        let start = self.at;
        if let Some((target, value)) = self.field(start)
            && self.field_value(target, value)
        {
            return;
        }
        let end = self.end_of_word(start);
        self.at = end;
        let typed = &self.text[start..end];
        let signed = matches!(self.tokens.last(), Some(Token::Sign(_)));
        match typed {
            "OR" | "|" if !signed => self.tokens.push(Token::Or(typed)),
            "AND" if !signed => self.tokens.push(Token::And(typed)),
            "NOT" if !signed => self.tokens.push(Token::Not(typed)),
            _ => self.spelled(None, typed, typed),
        }
    }

    /// A name that the schema has, and where its value begins.
    fn field(&mut self, start: usize) -> Option<(Target, usize)> {
        let name_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let colon = self.scan(start, MAX_NAME, |c| !name_char(c))?;
        let name = &self.text[start..colon];
        let value = self.look(colon).filter(|c| *c == ':').map(|_| colon + 1)?;
        let next = self.look(value)?;
        if next == ':' || is_blank(next) || !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let found = resolve(self.schema, name);
        if found.is_none() && (next.is_alphanumeric() || is_quote(next) || "([{<>".contains(next)) {
            let message = format!("there is no field {:?}; its clause was read as words", short(name));
            self.warnings.add("unknown_field", message);
        }
        found.map(|target| (target, value))
    }

    /// What stands behind `name:`. False when it is nothing a field can have; then all of it is words.
    fn field_value(&mut self, target: Target, value: usize) -> bool {
        let target = if target.kind == Kind::Text && !target.searchable {
            let message = format!("{} has no index of its own; all text was searched", target.name);
            self.warnings.add("field_not_searchable", message);
            None
        } else {
            Some(target)
        };
        let start = self.at;
        match self.look(value) {
            Some('(') => {
                self.at = value + 1;
                self.tokens.push(Token::Open(target));
                true
            }
            Some(c) if is_quote(c) => {
                self.quote(target, value);
                true
            }
            Some('[' | '{') => self.range(target.filter(|t| t.kind != Kind::Text), value),
            Some('<' | '>') => self.comparison(target.filter(|t| t.kind != Kind::Text), value),
            _ => {
                let end = self.end_of_value(value);
                let word = self.text[value..end].trim_end_matches([',', ';']);
                if word.is_empty() {
                    return false;
                }
                self.at = end;
                let typed = &self.text[start..end];
                match target {
                    Some(target) if target.kind != Kind::Text => {
                        self.atom(Some(target), Ask::Compare(Comparison::Equal, word), typed, 1.0);
                    }
                    target => self.spelled(target, word, typed),
                }
                true
            }
        }
    }

    fn comparison(&mut self, target: Option<Target>, value: usize) -> bool {
        let Some(target) = target else { return false };
        let rest = &self.text[value..];
        let (comparison, skip) = match rest.as_bytes() {
            [b'>', b'=', ..] => (Comparison::AtLeast, 2),
            [b'<', b'=', ..] => (Comparison::AtMost, 2),
            [b'>', ..] => (Comparison::Above, 1),
            _ => (Comparison::Below, 1),
        };
        let end = self.end_of_value(value + skip);
        let word = self.text[value + skip..end].trim_end_matches([',', ';']);
        if word.is_empty() {
            return false;
        }
        let typed = &self.text[self.at..end];
        self.at = end;
        self.atom(Some(target), Ask::Compare(comparison, word), typed, 1.0);
        true
    }

    /// `[a TO b]`; braces leave the end out.
    fn range(&mut self, target: Option<Target>, open: usize) -> bool {
        let found = self.scan(open, MAX_RANGE, |c| c == ']' || c == '}');
        let inside = found.filter(|end| *end < self.text.len()).map(|end| (&self.text[open + 1..end], end));
        let between = inside.and_then(|(inside, end)| Some((shape::between(inside)?, end)));
        let (Some(target), Some(((lower, upper), end))) = (target, between) else {
            self.warnings.add("bad_range", "a range is written field:[a TO b]; it was read as words");
            return false;
        };
        let typed = &self.text[self.at..=end];
        let lower = (lower, self.text[open..].starts_with('['));
        let upper = (upper, typed.ends_with(']'));
        self.at = end + 1;
        self.atom(Some(target), Ask::Between(lower, upper), typed, 1.0);
        true
    }

    /// A word of a text field, as it is spelled: plain, with wildcards, fuzzy, weighted.
    fn spelled(&mut self, target: Option<Target>, word: &'a str, typed: &'a str) {
        let Spelling { ask, boost } = shape::spelling(word, self.warnings);
        self.atom(target, ask, typed, boost);
    }

    /// End of a word: a space, a parenthesis, or a quote that is not an inch or abbreviation mark.
    fn end_of_word(&mut self, start: usize) -> usize {
        let mut before = ' ';
        let mut stray = false;
        let end = self.scan(start, usize::MAX, |c| {
            let mark = is_quote(c) && before.is_alphanumeric() && !spaceless(before);
            stray |= mark;
            before = c;
            is_blank(c) || c == '(' || c == ')' || (is_quote(c) && !mark)
        });
        if stray {
            self.stray_quote();
        }
        end.unwrap_or(self.text.len())
    }

    fn end_of_value(&mut self, start: usize) -> usize {
        let end = self.scan(start, usize::MAX, |c| is_blank(c) || c == '(' || c == ')');
        end.unwrap_or(self.text.len())
    }
}
