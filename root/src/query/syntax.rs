//! Tokens to a tree, without recursion: open groups lie on a list, and the tree is a flat list of nodes in which
//! children stand before their parents. So neither building, walking nor dropping it uses the stack, whatever the
//! nesting.
//!
//! Rules: NOT binds before AND, AND before OR, OR before a space. A group of one is that one; a plain group between
//! spaces is its members. An operator without its two sides is a word (`NOT` alone, `Portland OR`). A parenthesis
//! without its pair is skipped. Both with a warning.

use super::{
    lexer::{Ask, Atom, Comparison, Sign, Token},
    target::Target,
    values::language,
    warnings::Warnings,
};

/// A part of a group and how it takes part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clause {
    /// Required, excluded or neither.
    pub sign: Sign,
    /// Weight of the whole part.
    pub boost: f32,
    /// Index in [`Tree::nodes`].
    pub node: usize,
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// A leaf; `grouped`: its field was named for its group, `title:(a b)`.
    Atom {
        /// The leaf.
        atom: Atom<'a>,
        /// Named for the group.
        grouped: bool,
    },
    /// Parts between spaces.
    List(Vec<Clause>),
    /// Parts between `OR`.
    Any(Vec<Clause>),
    /// Parts between `AND`.
    All(Vec<Clause>),
}

/// The tree; the root is the last node and a list.
#[derive(Debug, Default, PartialEq)]
pub struct Tree<'a> {
    /// Children before parents.
    pub nodes: Vec<Node<'a>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Or,
    And,
}

/// An open group: alternatives of conjunctions, three lists deep, as the three bindings are.
struct Frame<'a> {
    target: Option<Target>,
    named: bool,
    parts: Vec<Vec<Vec<Clause>>>,
    operator: Option<(Operator, &'a str)>,
    negations: usize,
    negation: &'a str,
    sign: Sign,
}

impl Frame<'_> {
    fn new(target: Option<Target>, named: bool) -> Self {
        Self {
            target,
            named,
            parts: Vec::new(),
            operator: None,
            negations: 0,
            negation: "",
            sign: Sign::Plain,
        }
    }
}

/// Builds the tree.
pub fn tree<'a>(tokens: Vec<Token<'a>>, warnings: &mut Warnings) -> Tree<'a> {
    let mut builder =
        Builder { nodes: Vec::new(), outer: Vec::new(), frame: Frame::new(None, false), warnings };
    for token in tokens {
        builder.token(token);
    }
    if !builder.outer.is_empty() {
        builder.unbalanced();
    }
    while !builder.outer.is_empty() {
        builder.close(1.0);
    }
    let root = builder.finish();
    builder.nodes.push(Node::List(root));
    Tree { nodes: builder.nodes }
}

struct Builder<'a, 'w> {
    nodes: Vec<Node<'a>>,
    outer: Vec<Frame<'a>>,
    frame: Frame<'a>,
    warnings: &'w mut Warnings,
}

impl<'a> Builder<'a, '_> {
    fn token(&mut self, token: Token<'a>) {
        match token {
            Token::Open(target) => {
                let named = target.is_some();
                let target = target.or_else(|| self.frame.target.clone());
                let inner = Frame::new(target, named);
                self.outer.push(std::mem::replace(&mut self.frame, inner));
            }
            Token::Close(_) if self.outer.is_empty() => self.unbalanced(),
            Token::Close(boost) => self.close(boost),
            Token::Or(typed) => self.operator(Operator::Or, typed),
            Token::And(typed) => self.operator(Operator::And, typed),
            Token::Not(typed) => {
                self.frame.negations += 1;
                self.frame.negation = typed;
            }
            Token::Sign(sign) => self.frame.sign = sign,
            Token::Atom(atom) => {
                let node = self.leaf(atom);
                self.operand(Clause { sign: Sign::Plain, boost: 1.0, node });
            }
        }
    }

    fn unbalanced(&mut self) {
        self.warnings.add("unbalanced_parenthesis", "a parenthesis without its pair was ignored");
    }

    fn leaf(&mut self, mut atom: Atom<'a>) -> usize {
        let mut grouped = false;
        if atom.target.is_none()
            && let Some(target) = &self.frame.target
        {
            grouped = true;
            if !target.is_text() {
                atom.ask = match atom.ask {
                    Ask::Phrase(text, _) => Ask::Exact(text.trim()),
                    Ask::Words(text) | Ask::Pattern(text) => Ask::Compare(Comparison::Equal, text),
                    other => other,
                };
            }
            atom.target = Some(target.clone());
        }
        self.nodes.push(Node::Atom { atom, grouped });
        self.nodes.len() - 1
    }

    /// An operator joins what stands before it with what comes; without a left side it is a word.
    fn operator(&mut self, operator: Operator, typed: &'a str) {
        self.spill_negation();
        let frame = &mut self.frame;
        frame.sign = Sign::Plain;
        if frame.parts.is_empty() || frame.operator.is_some() {
            self.word(typed);
        } else {
            frame.operator = Some((operator, typed));
        }
    }

    /// A `NOT` without anything behind it.
    fn spill_negation(&mut self) {
        if std::mem::take(&mut self.frame.negations) > 0 {
            self.word(self.frame.negation);
        }
    }

    fn word(&mut self, typed: &'a str) {
        if typed != "|" {
            let message = format!("{typed} without its two sides was read as a word");
            self.warnings.add("dangling_operator", message);
        }
        let node = self.leaf(Atom { target: None, ask: Ask::Words(typed), typed, boost: 1.0 });
        self.frame.sign = Sign::Plain;
        self.operand(Clause { sign: Sign::Plain, boost: 1.0, node });
    }

    /// Adds a part to the open group, under the signs and operators that wait for it.
    fn operand(&mut self, mut clause: Clause) {
        let negated = std::mem::take(&mut self.frame.negations) % 2 == 1;
        let sign = match std::mem::replace(&mut self.frame.sign, Sign::Plain) {
            Sign::Not if negated => Sign::Plain,
            _ if negated => Sign::Not,
            sign => sign,
        };
        if sign != Sign::Plain {
            if clause.sign != Sign::Plain {
                self.nodes.push(Node::List(vec![clause]));
                clause = Clause { sign, boost: 1.0, node: self.nodes.len() - 1 };
            }
            clause.sign = sign;
        }
        let parts = &mut self.frame.parts;
        match (self.frame.operator.take(), parts.last_mut()) {
            (Some((Operator::And, _)), Some(any)) => match any.last_mut() {
                Some(all) => all.push(clause),
                None => any.push(vec![clause]),
            },
            (Some((Operator::Or, _)), Some(any)) => any.push(vec![clause]),
            _ => parts.push(vec![vec![clause]]),
        }
    }

    fn close(&mut self, boost: f32) {
        let list = self.finish();
        let named = self.frame.named;
        let Some(outer) = self.outer.pop() else { return };
        self.frame = outer;
        let clause = match list.as_slice() {
            [] => return self.drop_pending(),
            [one] if !named || one.sign == Sign::Not => Clause { boost: one.boost * boost, ..*one },
            [one] => Clause { sign: Sign::Must, boost: one.boost * boost, ..*one },
            _ => {
                self.nodes.push(Node::List(list));
                let sign = if named { Sign::Must } else { Sign::Plain };
                Clause { sign, boost, node: self.nodes.len() - 1 }
            }
        };
        self.operand(clause);
    }

    /// An empty group takes its signs with it; its operator goes on to what comes next.
    fn drop_pending(&mut self) {
        self.frame.negations = 0;
        self.frame.sign = Sign::Plain;
    }

    /// The parts of the open group.
    fn finish(&mut self) -> Vec<Clause> {
        self.spill_negation();
        if let Some((_, typed)) = self.frame.operator.take() {
            self.word(typed);
        }
        let mut list = Vec::new();
        for any in std::mem::take(&mut self.frame.parts) {
            let mut alternatives = Vec::with_capacity(any.len());
            for all in any {
                alternatives.push(self.joined(all, Node::All));
            }
            let clause = self.joined(alternatives, Node::Any);
            match self.nodes.get_mut(clause.node) {
                Some(Node::List(members)) if clause.sign == Sign::Plain && clause.boost == 1.0 => {
                    list.append(members);
                }
                _ => list.push(clause),
            }
        }
        list
    }

    fn joined(&mut self, clauses: Vec<Clause>, node: fn(Vec<Clause>) -> Node<'a>) -> Clause {
        if let [one] = clauses[..] {
            return one;
        }
        self.nodes.push(node(clauses));
        Clause { sign: Sign::Plain, boost: 1.0, node: self.nodes.len() - 1 }
    }
}

impl Tree<'_> {
    /// Codes of the positive `lang:` clauses.
    pub fn languages(&self) -> Vec<String> {
        let mut found = Vec::new();
        for node in &self.nodes {
            let (Node::List(clauses) | Node::Any(clauses) | Node::All(clauses)) = node else { continue };
            for clause in clauses.iter().filter(|clause| clause.sign != Sign::Not) {
                let Some(Node::Atom { atom, .. }) = self.nodes.get(clause.node) else { continue };
                let (Ask::Compare(Comparison::Equal, value) | Ask::Exact(value)) = atom.ask else { continue };
                let code =
                    atom.target.as_ref().filter(|target| target.is_language()).and_then(|_| language(value));
                found.extend(code.filter(|code| !found.contains(code)));
            }
        }
        found.truncate(super::languages::MAX_LANGUAGES);
        found
    }
}
