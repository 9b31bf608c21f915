//! What a text is made of: signs, operators, groups and atoms.

use crate::query::target::Target;

/// Required, excluded or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Neither.
    Plain,
    /// `+`.
    Must,
    /// `-`.
    Not,
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `:`.
    Equal,
    /// `>`.
    Above,
    /// `>=`.
    AtLeast,
    /// `<`.
    Below,
    /// `<=`.
    AtMost,
}

/// One end of a range: `None` is open; whether it is part of the range.
pub type End<'a> = (Option<&'a str>, bool);

/// What one atom asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask<'a> {
    /// Words to be analysed.
    Words(&'a str),
    /// Words in a row, at most `slop` apart.
    Phrase(&'a str, u32),
    /// A word with `*` or `?`.
    Pattern(&'a str),
    /// A word and its edit distance; 0: by its length.
    Fuzzy(&'a str, u8),
    /// A value of a keyword, number, boolean or date field.
    Compare(Comparison, &'a str),
    /// A value in quotes: nothing in it is a pattern.
    Exact(&'a str),
    /// A range of such values.
    Between(End<'a>, End<'a>),
}

/// The smallest thing that can match.
#[derive(Debug, Clone, PartialEq)]
pub struct Atom<'a> {
    /// The field; `None`: the search field.
    pub target: Option<Target>,
    /// What.
    pub ask: Ask<'a>,
    /// As typed, to fall back on.
    pub typed: &'a str,
    /// Weight.
    pub boost: f32,
}

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum Token<'a> {
    /// `(` or `title:(`.
    Open(Option<Target>),
    /// `)`, with the boost behind it.
    Close(f32),
    /// `OR` or `|`, as typed.
    Or(&'a str),
    /// `AND`.
    And(&'a str),
    /// `NOT`.
    Not(&'a str),
    /// `+` or `-`.
    Sign(Sign),
    /// The rest.
    Atom(Atom<'a>),
}
