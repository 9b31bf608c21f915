//! Documents in a store that several services reach: who may write, and how much at once.
//!
//! Two failures are prevented here. A leader that stood still (a long pause, a cut network) goes on and writes over what the
//! next leader decided; and a change that is larger than one transaction may be is found half made. Rules:
//!
//! * Every transaction is conditional on the leader's key being the very one this service made (`Guard::term`), and on
//!   nobody having written since (`Guard::generation`, a key that every change puts). A write that was given up and comes
//!   late meets another generation, and does nothing.
//! * Reading begins with a new generation, so what is read then stays.
//! * A change that fits is one transaction. A larger one is first laid beside the documents (`next/`, `gone/`), then marked
//!   (`mark`): that one transaction is the moment it is made. Then it is carried over and the copies are removed. Whoever
//!   reads and finds the mark carries it over first; without the mark the copies are removed. All steps may be done twice.
//!
//! Units: bytes; operations of a transaction (etcd takes 128, and 1.5 MiB, as it comes).

use std::collections::BTreeMap;

use super::{Documents, Store, pieces};
use crate::error::{Error, Result};

/// Operations of one transaction, besides the one for the generation and those that tidy up.
const MOST_OPERATIONS: usize = 100;
/// Keys and values of one transaction.
const MOST_BYTES: usize = 1 << 20;
/// Lines of the audit log that are kept.
const AUDIT_KEPT: u64 = 20_000;

const GENERATION: &str = "generation";
const MARK: &str = "mark";
const DOCUMENTS: &str = "documents/";
const AUDIT: &str = "audit/";
const NEXT: &str = "next/";
const GONE: &str = "gone/";

/// Something that a transaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Puts a value.
    Put(String, Vec<u8>),
    /// Removes a key.
    Remove(String),
    /// Removes all keys from the first on that are before the second.
    RemoveRange(String, String),
}

/// What a transaction is conditional on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Revision at which the key of the leader was made.
    pub term: i64,
    /// Revision at which the generation was put; `None`: any.
    pub generation: Option<i64>,
}

/// What came of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Made, at this revision.
    Made(i64),
    /// Not made: another one leads.
    Deposed,
    /// Not made: the generation is another.
    Late,
}

/// Keys with values below a prefix, and transactions. Keys here are without the prefix.
pub trait Keys: Send {
    /// One transaction. Errors: nobody knows whether it was made.
    fn transact(&mut self, guard: Guard, generation_key: &str, ops: &[Op]) -> Result<Outcome>;

    /// All keys that begin so, as they were at a revision.
    fn range(&mut self, prefix: &str, revision: i64) -> Result<BTreeMap<String, Vec<u8>>>;

    /// The last keys that begin so, in order.
    fn last(&mut self, prefix: &str, count: usize) -> Result<Vec<(String, Vec<u8>)>>;

    /// What the store is called in errors.
    fn name(&self) -> String;
}

/// See the module.
pub struct SharedStore<K> {
    keys: K,
    guard: Guard,
    /// Who writes, the value of the generation.
    writer: String,
    /// Number of the last line of the audit log.
    line: u64,
}

impl<K: Keys> SharedStore<K> {
    /// Of `writer`, which leads by a key that was made at revision `term`.
    pub fn new(keys: K, term: i64, writer: &str) -> Self {
        Self { keys, guard: Guard { term, generation: None }, writer: writer.to_owned(), line: 0 }
    }

    /// A transaction; `ends`: with a new generation.
    fn transact(&mut self, mut ops: Vec<Op>, ends: bool) -> Result<()> {
        if ends {
            ops.push(Op::Put(GENERATION.to_owned(), self.writer.clone().into_bytes()));
        }
        match self.keys.transact(self.guard, GENERATION, &ops)? {
            Outcome::Made(revision) => {
                if ends {
                    self.guard.generation = Some(revision);
                }
                Ok(())
            }
            Outcome::Deposed => Err(Error::Deposed),
            Outcome::Late => Err(Error::Store {
                path: self.keys.name(),
                reason: "an earlier write came late; the change was not made, try it again".to_owned(),
            }),
        }
    }

    /// A change that is larger than a transaction.
    fn write_large(&mut self, changes: Vec<Op>) -> Result<()> {
        for batch in batches(changes.clone()) {
            let beside = batch.into_iter().map(|op| match op {
                Op::Put(key, value) => Op::Put(format!("{NEXT}{key}"), value),
                Op::Remove(key) => Op::Put(format!("{GONE}{key}"), Vec::new()),
                range @ Op::RemoveRange(..) => range,
            });
            self.transact(beside.collect(), false)?;
        }
        self.transact(vec![Op::Put(MARK.to_owned(), Vec::new())], true)?;
        self.carry_over(changes).map_err(|error| match error {
            // It is made: whoever follows carries it over. Nobody may take it for undone and ask for it again.
            Error::Deposed => Error::Store {
                path: self.keys.name(),
                reason: "another service leads by now; the change was made all the same, do not repeat it"
                    .to_owned(),
            },
            error => error,
        })
    }

    /// Makes what was laid beside, and removes the copies.
    fn carry_over(&mut self, changes: Vec<Op>) -> Result<()> {
        for batch in batches(changes) {
            self.transact(batch, false)?;
        }
        self.transact(vec![all(NEXT), all(GONE), Op::Remove(MARK.to_owned())], true)
    }

    /// Ends what a leader before, or a write that failed, has left in the middle; the documents' pieces then.
    fn settle(&mut self, revision: i64) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut pieces = self.keys.range(DOCUMENTS, revision)?;
        let next = self.keys.range(NEXT, revision)?;
        let gone = self.keys.range(GONE, revision)?;
        let of = |key: &String, prefix: &str| key.strip_prefix(prefix).unwrap_or(key).to_owned();
        if !self.keys.range(MARK, revision)?.is_empty() {
            let put = next.into_iter().map(|(key, value)| Op::Put(of(&key, NEXT), value));
            let changes: Vec<Op> =
                put.chain(gone.into_keys().map(|key| Op::Remove(of(&key, GONE)))).collect();
            for op in &changes {
                match op {
                    Op::Put(key, value) if key.starts_with(DOCUMENTS) => {
                        pieces.insert(key.clone(), value.clone());
                    }
                    Op::Remove(key) => {
                        pieces.remove(key);
                    }
                    Op::Put(..) | Op::RemoveRange(..) => {}
                }
            }
            self.carry_over(changes)?;
        } else if !next.is_empty() || !gone.is_empty() {
            self.transact(vec![all(NEXT), all(GONE)], true)?;
        }
        Ok(pieces.into_iter().map(|(key, value)| (of(&key, DOCUMENTS), value)).collect())
    }
}

impl<K: Keys> Store for SharedStore<K> {
    fn read(&mut self) -> Result<Documents> {
        self.guard.generation = None;
        self.transact(Vec::new(), true)?;
        let pieces = self.settle(self.guard.generation.unwrap_or(0))?;
        let last = self.keys.last(AUDIT, 1)?;
        let number = last.first().and_then(|(key, _)| key.strip_prefix(AUDIT)?.parse().ok());
        self.line = number.unwrap_or(0);
        pieces::together(pieces)
    }

    fn write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()> {
        let pieces::Changes { put, gone } = pieces::changes(from, to);
        let mut ops: Vec<Op> =
            put.into_iter().map(|(key, value)| Op::Put(format!("{DOCUMENTS}{key}"), value)).collect();
        ops.extend(gone.into_iter().map(|key| Op::Remove(format!("{DOCUMENTS}{key}"))));
        let first = self.line + 1;
        let lines = (first..).zip(audit);
        ops.extend(lines.map(|(number, line)| Op::Put(line_key(number), line.clone().into_bytes())));
        let line = self.line + audit.len() as u64;
        let mut batches = batches(ops);
        if batches.len() > 1 {
            self.write_large(batches.into_iter().flatten().collect())?;
        } else {
            let mut ops = batches.pop().unwrap_or_default();
            if !audit.is_empty() && line > AUDIT_KEPT {
                ops.push(Op::RemoveRange(line_key(0), line_key(first.min(line - AUDIT_KEPT + 1))));
            }
            self.transact(ops, true)?;
        }
        self.line = line;
        Ok(())
    }

    fn audit(&mut self, last: usize) -> Result<Vec<String>> {
        let lines = self.keys.last(AUDIT, last)?;
        Ok(lines.into_iter().map(|(_, line)| String::from_utf8_lossy(&line).into_owned()).collect())
    }
}

fn line_key(number: u64) -> String {
    format!("{AUDIT}{number:020}")
}

fn all(prefix: &str) -> Op {
    // The character after `/`.
    Op::RemoveRange(prefix.to_owned(), format!("{}0", prefix.trim_end_matches('/')))
}

fn size(op: &Op) -> usize {
    match op {
        Op::Put(key, value) => key.len() + value.len(),
        Op::Remove(key) => key.len(),
        Op::RemoveRange(first, end) => first.len() + end.len(),
    }
}

/// Cuts a change into what one transaction takes.
fn batches(ops: Vec<Op>) -> Vec<Vec<Op>> {
    let mut batches: Vec<Vec<Op>> = Vec::new();
    let mut bytes = 0;
    for op in ops {
        bytes += size(&op);
        match batches.last_mut() {
            Some(batch) if batch.len() < MOST_OPERATIONS && bytes <= MOST_BYTES => batch.push(op),
            _ => {
                bytes = size(&op);
                batches.push(vec![op]);
            }
        }
    }
    batches
}

#[cfg(test)]
pub(crate) mod tests;
