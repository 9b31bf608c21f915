//! Tokens of one text packed into one string, and the engine tokenizer that unpacks them.
//!
//! The engine takes analysed text as a `PreTokenizedString`: a heap string per token, copied twice on the way in and
//! written as JSON by its default document. Analysis is ours and done before; so a text goes in as a plain string
//! that holds its tokens, and the "tokenizer" only reads it, without allocating.
//!
//! Format, per token: position step, length in bytes (both in 6-bit groups, low first, bit 6 = more follow, so every
//! byte is ASCII), then the token. The result is valid UTF-8. Malformed input ends the stream; it cannot panic.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// Name of the tokenizer in the engine's schema.
pub const TOKENIZER: &str = "canopy";

/// Positions between the end of one part and the start of the next. Larger than any phrase slop that the query
/// language allows, so that no phrase joins two parts.
pub const PART_GAP: u32 = 100;

/// Packs the tokens of one part.
#[derive(Debug, Default)]
pub struct Packed {
    text: String,
    last: u32,
    tokens: u64,
}

impl Packed {
    /// Adds a token at a word position that does not fall.
    pub fn push(&mut self, token: &str, position: u32) {
        let position = position.saturating_add(PART_GAP);
        number(&mut self.text, position.saturating_sub(self.last));
        number(&mut self.text, token.len() as u32);
        self.text.push_str(token);
        self.last = self.last.max(position);
        self.tokens += 1;
    }

    /// The packed string and the number of tokens in it.
    pub fn finish(self) -> (String, u64) {
        (self.text, self.tokens)
    }
}

fn number(out: &mut String, mut value: u32) {
    while value >= 0x40 {
        out.push(char::from((value & 0x3f) as u8 | 0x40));
        value >>= 6;
    }
    out.push(char::from(value as u8));
}

fn read_number(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(6) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u32::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            return Some(value);
        }
    }
    None
}

/// The engine tokenizer named [`TOKENIZER`].
#[derive(Debug, Clone, Default)]
pub struct Unpack {
    token: Token,
}

/// Tokens of one packed string.
#[derive(Debug)]
pub struct Unpacked<'a> {
    text: &'a str,
    at: usize,
    position: u32,
    token: &'a mut Token,
}

impl Tokenizer for Unpack {
    type TokenStream<'a> = Unpacked<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Unpacked<'a> {
        self.token.reset();
        Unpacked { text, at: 0, position: 0, token: &mut self.token }
    }
}

impl TokenStream for Unpacked<'_> {
    fn advance(&mut self) -> bool {
        let bytes = self.text.as_bytes();
        let Some(step) = read_number(bytes, &mut self.at) else { return false };
        let Some(length) = read_number(bytes, &mut self.at) else { return false };
        let Some(token) = self.text.get(self.at..self.at + length as usize) else { return false };
        self.at += token.len();
        self.position = self.position.saturating_add(step);
        self.token.position = self.position as usize;
        self.token.text.clear();
        self.token.text.push_str(token);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
