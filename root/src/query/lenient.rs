//! The lenient text to clauses: the tree is walked once from its first node to its last (children stand before
//! parents), so no nesting can exhaust the stack.
//!
//! What a clause becomes where it stands plain: words, patterns and fuzzy words are plain words; phrases and words of
//! a named text field are required; values and ranges of other fields are filters. `+` requires, `-` excludes.
//! Alternatives that are all plain words dissolve into the flat list of words, which is the same and faster.

use canopy_format::schema::{SEARCH_FIELD, Schema};
use canopy_proto::v1::{BoolQuery, Query, query::Node as Message};

use super::{
    clauses::{self, Built, Group},
    conditions::Refusal,
    lexer::{self, Ask, Atom, Comparison, Sign, by_dictionary},
    syntax::{self, Clause, Node, Tree},
    target::Target,
    warnings::Warnings,
    words::{Plain, Words},
};

/// Reads the tree of a text.
pub fn read<'a>(text: &'a str, schema: &Schema, warnings: &mut Warnings) -> Tree<'a> {
    let lexed = lexer::lex(text, schema, warnings);
    syntax::tree(lexed.tokens, warnings)
}

/// Makes the message of a tree. `narrowed` are the request's filters; `blank` when the text held nothing at all.
pub fn compile(
    tree: &Tree<'_>,
    narrowed: Group,
    min_should_match: u32,
    blank: bool,
    words: &mut Words<'_>,
) -> Query {
    let mut compiler = Compiler { tree, flat: min_should_match < 2, groups: Vec::new(), words };
    for node in &tree.nodes {
        let group = match node {
            Node::Atom { .. } => Group::default(),
            Node::List(clauses) => compiler.list(clauses),
            Node::Any(clauses) => compiler.any(clauses),
            Node::All(clauses) => compiler.all(clauses),
        };
        compiler.groups.push(group);
    }
    let group = compiler.groups.pop().unwrap_or_default();
    clauses::finish(group, narrowed, min_should_match, blank, &mut words.warnings)
}

struct Compiler<'t, 'a, 'w, 'c> {
    tree: &'t Tree<'a>,
    flat: bool,
    /// What became of each node so far; taken by the parent.
    groups: Vec<Group>,
    words: &'w mut Words<'c>,
}

impl Compiler<'_, '_, '_, '_> {
    fn list(&mut self, clauses: &[Clause]) -> Group {
        let mut group = Group::default();
        for clause in clauses {
            self.clause(clause, clause.sign, &mut group);
        }
        group
    }

    /// All of them: whatever is not excluded is required.
    fn all(&mut self, clauses: &[Clause]) -> Group {
        let mut group = Group::default();
        for clause in clauses {
            let sign = if clause.sign == Sign::Plain { Sign::Must } else { clause.sign };
            self.clause(clause, sign, &mut group);
        }
        group
    }

    /// Any of them.
    fn any(&mut self, clauses: &[Clause]) -> Group {
        let each: Vec<Group> = clauses.iter().map(|clause| self.list(&[*clause])).collect();
        let mut group = Group::default();
        if self.flat && each.iter().all(Group::is_plain) {
            for part in each {
                group.absorb(part);
            }
            return group;
        }
        let plain = each.iter().all(Group::is_plain);
        let mut alternatives = Vec::with_capacity(each.len());
        for part in each {
            let excludes = !part.must_not.is_empty();
            match part.into_built(&mut self.words.warnings) {
                Some(built) => alternatives.push(built),
                None if excludes => {
                    let message = "an excluded word cannot be an alternative; it was ignored";
                    self.words.warnings.add("negative_in_or", message);
                }
                None => {}
            }
        }
        match clauses::any(alternatives, &mut self.words.warnings) {
            Some(any) if plain => group.should.push(Plain::new(any.query)),
            any => group.require(any),
        }
        group
    }

    fn clause(&mut self, clause: &Clause, sign: Sign, into: &mut Group) {
        if let Some(Node::Atom { atom, grouped }) = self.tree.nodes.get(clause.node) {
            self.atom(atom, *grouped, sign, clause.boost * atom.boost, into);
            return;
        }
        let mut group = self.groups.get_mut(clause.node).map(std::mem::take).unwrap_or_default();
        group.scale(clause.boost);
        match sign {
            Sign::Plain => into.absorb(group),
            Sign::Must => into.require(group.into_built(&mut self.words.warnings)),
            Sign::Not if group.finds() => {
                into.must_not.extend(group.into_built(&mut self.words.warnings));
            }
            // excluding what only excludes wants one of what it excludes
            Sign::Not => into.require(clauses::any(group.must_not, &mut self.words.warnings)),
        }
    }

    fn atom(&mut self, atom: &Atom<'_>, grouped: bool, sign: Sign, boost: f32, into: &mut Group) {
        let text = match &atom.target {
            Some(target) if !target.is_text() => return self.condition(atom, target, grouped, sign, into),
            Some(target) => target.name.as_str(),
            None => SEARCH_FIELD,
        };
        let loose = sign == Sign::Plain && (grouped || atom.target.is_none());
        if loose && !matches!(atom.ask, Ask::Phrase(..)) {
            return self.loose(text, &atom.ask, boost, into);
        }
        let Some(query) = self.tight(text, atom, sign, boost) else { return };
        match sign {
            Sign::Not => into.must_not.push(Built::new(query)),
            _ => into.must.push(Built::new(query)),
        }
    }

    /// A plain word, pattern or fuzzy word: one or more clauses that each may match.
    fn loose(&mut self, field: &str, ask: &Ask<'_>, boost: f32, into: &mut Group) {
        let found = match *ask {
            Ask::Pattern(typed) => self.words.pattern(field, typed, boost).ok_or(typed),
            Ask::Fuzzy(typed, distance) => self.words.fuzzy(field, typed, distance, boost).ok_or(typed),
            _ => Err(""),
        };
        match found {
            Ok(query) => into.should.push(Plain::new(query)),
            Err(typed) => {
                if !typed.is_empty() {
                    self.words.no_expansion(typed);
                }
                let plain = self.words.plain(field, words_of(ask), boost);
                into.should.extend(self.beside_newer(field, ask, boost, plain));
            }
        }
    }

    /// The words that a pattern was read as, beside the newer words that it may stand for: then they are one clause.
    fn beside_newer(&mut self, field: &str, ask: &Ask<'_>, boost: f32, mut plain: Vec<Plain>) -> Vec<Plain> {
        let Ask::Pattern(typed) = *ask else { return plain };
        if plain.len() > 1 {
            return plain;
        }
        let (stop, words) = plain.pop().map_or((false, None), |plain| (plain.stop, Some(plain.query)));
        let query = self.words.or_newer(field, typed, boost, words);
        query.map(|query| Plain { stop, ..Plain::new(query) }).into_iter().collect()
    }

    /// One clause for all of an atom's words.
    fn tight(&mut self, field: &str, atom: &Atom<'_>, sign: Sign, boost: f32) -> Option<Query> {
        let found = match atom.ask {
            Ask::Phrase(text, slop) => return self.words.phrase(field, text, slop, boost),
            Ask::Pattern(typed) => self.words.pattern(field, typed, boost).ok_or(typed),
            Ask::Fuzzy(typed, distance) => self.words.fuzzy(field, typed, distance, boost).ok_or(typed),
            _ => Err(""),
        };
        let typed = match found {
            Ok(query) => return Some(query),
            Err(typed) => typed,
        };
        if !typed.is_empty() {
            self.words.no_expansion(typed);
        }
        let read = self.required(field, words_of(&atom.ask), sign, boost);
        match atom.ask {
            Ask::Pattern(typed) => self.words.or_newer(field, typed, boost, read),
            _ => read,
        }
    }

    /// All words of a text: in a row, but where a dictionary may part a document's run otherwise.
    fn required(&mut self, field: &str, text: &str, sign: Sign, boost: f32) -> Option<Query> {
        if sign == Sign::Not || !text.contains(by_dictionary) {
            return self.words.phrase(field, text, 0, boost);
        }
        let words = self.words.plain(field, text, boost).into_iter();
        let mut must: Vec<Query> = words.filter(|plain| !plain.extra).map(|plain| plain.query).collect();
        if must.len() < 2 {
            return must.pop();
        }
        Some(Query { node: Some(Message::Bool(BoolQuery { must, ..BoolQuery::default() })) })
    }

    /// A value or range of a field without text.
    fn condition(&mut self, atom: &Atom<'_>, target: &Target, grouped: bool, sign: Sign, into: &mut Group) {
        let found = match atom.ask {
            Ask::Compare(Comparison::Equal, text) if text.ends_with('*') && text.len() > 1 => {
                self.words.beginning(target, &text[..text.len() - 1])
            }
            Ask::Compare(comparison, text) => self.words.compared(target, comparison, text),
            Ask::Between(lower, upper) => self.words.between(target, lower, upper),
            Ask::Exact(text) | Ask::Words(text) | Ask::Phrase(text, _) | Ask::Pattern(text) => {
                self.words.one_of(target, &[text])
            }
            Ask::Fuzzy(text, _) => self.words.one_of(target, &[text]),
        };
        match found {
            Ok(query) => match sign {
                Sign::Not => into.must_not.push(Built::new(query)),
                Sign::Plain if grouped => into.should.push(Plain::new(query)),
                _ => into.filter.push(Built::new(query)),
            },
            Err(Refusal::Full) => {}
            Err(refusal) => {
                let code = if matches!(refusal, Refusal::Range(_)) { "bad_range" } else { "bad_value" };
                self.words.warnings.add(code, format!("{}; it was read as words", refusal.reason()));
                if sign != Sign::Not {
                    into.should.extend(self.words.plain(SEARCH_FIELD, atom.typed, 1.0));
                }
            }
        }
    }
}

/// The text of an atom that is read as words after all.
fn words_of<'a>(ask: &Ask<'a>) -> &'a str {
    match *ask {
        Ask::Words(text)
        | Ask::Phrase(text, _)
        | Ask::Pattern(text)
        | Ask::Fuzzy(text, _)
        | Ask::Compare(_, text)
        | Ask::Exact(text) => text,
        Ask::Between(..) => "",
    }
}
