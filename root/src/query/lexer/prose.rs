//! What looks like a command in a text that gives none. People paste whole sentences into a search box, and headings in
//! capitals; read as commands, a cited name or an `AND` there demands what hardly any document has, and the answer is
//! next to empty.
//!
//! Two rules, each about the whole text:
//! - **Shouting**: in a text all in capitals an operator does not stand out. `OR`, `AND` and `NOT` are words there, unless
//!   nothing but operators stands between the parts (`TCP AND UDP`).
//! - **Citing**: in a text of [`PROSE`] loose words and more, without sign or operator, quotes cite. Their words count like
//!   the others; `+"…"` still demands the phrase.

use super::{Ask, Atom, Token};
use crate::query::warnings::Warnings;

/// Loose words from which on a text is prose.
pub const PROSE: usize = 10;

/// Takes back what was no command.
pub(super) fn settle(text: &str, tokens: &mut [Token<'_>], warnings: &mut Warnings) {
    if shouted(text, tokens) {
        for token in &mut *tokens {
            if let Token::Or(typed @ "OR") | Token::And(typed) | Token::Not(typed) = *token {
                *token = Token::Atom(Atom { target: None, ask: Ask::Words(typed), typed, boost: 1.0 });
            }
        }
    }
    if prose(tokens) {
        for token in tokens {
            let Token::Atom(Atom { target: None, ask, boost: 1.0, .. }) = token else { continue };
            if let Ask::Phrase(inside, 0) = *ask {
                *ask = Ask::Words(inside);
                let message = "quotes in a long text only cite; write +\"…\" to require the words in a row";
                warnings.add("quotes_cite", message);
            }
        }
    }
}

fn operator(token: &Token<'_>) -> bool {
    matches!(token, Token::Or(_) | Token::And(_) | Token::Not(_))
}

/// All in capitals, with operators between some parts and nothing between others.
fn shouted(text: &str, tokens: &[Token<'_>]) -> bool {
    if !tokens.iter().any(operator) || text.chars().any(char::is_lowercase) {
        return false;
    }
    let atoms =
        || tokens.iter().filter_map(|token| if let Token::Atom(atom) = token { Some(atom) } else { None });
    let capitals = |atom: &&Atom<'_>| atom.typed.chars().filter(|c| c.is_uppercase()).nth(1).is_some();
    let side_by_side = |pair: &[Token<'_>]| {
        matches!(pair, [Token::Atom(_) | Token::Close(_), Token::Atom(_) | Token::Open(_)])
    };
    atoms().filter(capitals).count() * 2 > atoms().count() && tokens.windows(2).any(side_by_side)
}

fn prose(tokens: &[Token<'_>]) -> bool {
    let loose =
        |token: &&Token<'_>| matches!(token, Token::Atom(Atom { target: None, ask: Ask::Words(_), .. }));
    tokens.iter().filter(loose).count() >= PROSE
        && !tokens.iter().any(|token| operator(token) || matches!(token, Token::Sign(_)))
}
