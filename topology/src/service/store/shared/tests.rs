//! Every history of two leaders over a store in memory: a crash before or after any transaction, writes that come late, and a
//! leader that was deposed. What is read is what was stored, whole.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

/// Keys with the revisions at which they were made and put.
#[derive(Clone, Default)]
struct Memory {
    revision: i64,
    keys: BTreeMap<String, (Vec<u8>, i64, i64)>,
}

/// A store in memory, shared by its clones.
#[derive(Clone, Default)]
pub(crate) struct ModelKeys {
    memory: Arc<Mutex<Memory>>,
    fault: Arc<Mutex<Fault>>,
}

/// What happens to a transaction.
#[derive(Default)]
struct Fault {
    /// Transactions that go well from now on; `None`: all.
    left: Option<usize>,
    /// Whether the one that fails is made all the same.
    made: bool,
    /// It is made later: what and under which conditions.
    late: Option<(Guard, Vec<Op>)>,
    /// Another one leads from this transaction on.
    usurped: Option<usize>,
    count: usize,
    largest: (usize, usize),
}

impl Memory {
    fn transact(&mut self, guard: Guard, ops: &[Op]) -> Outcome {
        if self.keys.get("leader").map_or(0, |(_, made, _)| *made) != guard.term {
            return Outcome::Deposed;
        }
        let generation = self.keys.get(GENERATION).map_or(0, |(_, _, put)| *put);
        if guard.generation.is_some_and(|wanted| wanted != generation) {
            return Outcome::Late;
        }
        self.revision += 1;
        for op in ops {
            match op {
                Op::Put(key, value) => {
                    let made = self.keys.get(key).map_or(self.revision, |(_, made, _)| *made);
                    self.keys.insert(key.clone(), (value.clone(), made, self.revision));
                }
                Op::Remove(key) => {
                    self.keys.remove(key);
                }
                Op::RemoveRange(first, end) => self.keys.retain(|key, _| key < first || key >= end),
            }
        }
        Outcome::Made(self.revision)
    }
}

impl ModelKeys {
    /// Somebody leads from now on, whoever led before.
    pub(crate) fn elect(&self, node: &str) -> SharedStore<Self> {
        let mut memory = self.memory.lock();
        memory.revision += 1;
        let revision = memory.revision;
        memory.keys.insert("leader".to_owned(), (node.as_bytes().to_vec(), revision, revision));
        *self.fault.lock() = Fault::default();
        SharedStore::new(self.clone(), revision, node)
    }

    /// Somebody else leads, and did nothing yet.
    fn usurp(&self) {
        let mut memory = self.memory.lock();
        memory.revision += 1;
        let revision = memory.revision;
        memory.keys.insert("leader".to_owned(), (b"usurper".to_vec(), revision, revision));
    }
}

impl Keys for ModelKeys {
    fn transact(&mut self, guard: Guard, _: &str, ops: &[Op]) -> Result<Outcome> {
        let mut fault = self.fault.lock();
        fault.count += 1;
        let bytes = ops.iter().map(size).sum();
        if fault.usurped == Some(fault.count) {
            self.usurp();
        }
        fault.largest = (fault.largest.0.max(ops.len()), fault.largest.1.max(bytes));
        let lost = || Error::Store { path: "model".to_owned(), reason: "it did not answer".to_owned() };
        match &mut fault.left {
            Some(0) => {
                if std::mem::take(&mut fault.made) {
                    self.memory.lock().transact(guard, ops);
                } else if fault.late.is_none() {
                    fault.late = Some((guard, ops.to_vec()));
                }
                return Err(lost());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(self.memory.lock().transact(guard, ops))
    }

    fn range(&mut self, prefix: &str, revision: i64) -> Result<BTreeMap<String, Vec<u8>>> {
        let memory = self.memory.lock();
        assert!(revision <= memory.revision);
        let found = memory.keys.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, (value, ..))| (key.clone(), value.clone())).collect())
    }

    fn last(&mut self, prefix: &str, count: usize) -> Result<Vec<(String, Vec<u8>)>> {
        let all: Vec<_> = self.range(prefix, 0)?.into_iter().collect();
        Ok(all[all.len().saturating_sub(count)..].to_vec())
    }

    fn name(&self) -> String {
        "model".to_owned()
    }
}

fn documents(count: usize, of: u8) -> Documents {
    (0..count).map(|number| (format!("node/{number:04}"), vec![of; 40])).collect()
}

#[test]
fn a_large_change_is_made_whole_or_not_at_all_wherever_it_breaks_off() {
    let small = documents(3, 1);
    let large: Documents =
        documents(420, 2).into_iter().skip(1).chain([("corpus/web".to_owned(), vec![3; 3 << 20])]).collect();
    let lines = ["a line".to_owned()];
    let (mut kept, mut made) = (0, 0);
    for broken in 0.. {
        for answered in [false, true] {
            let keys = ModelKeys::default();
            let mut store = keys.elect("a");
            assert_eq!(store.read().unwrap(), Documents::new());
            store.write(&Documents::new(), &small, &[]).unwrap();
            *keys.fault.lock() = Fault { left: Some(broken), made: answered, ..Fault::default() };
            if store.write(&small, &large, &lines).is_ok() {
                let fault = keys.fault.lock();
                println!(
                    "{} transactions, the largest of {:?} (operations, bytes)",
                    fault.count, fault.largest
                );
                assert!(fault.largest.0 <= 128 && fault.largest.1 < 3 << 19, "etcd would not take it");
                assert!(kept > 0 && made > 0, "{kept} {made}");
                return;
            }
            // The next leader finds one of the two, and nothing else is left.
            let late = keys.fault.lock().late.take();
            let mut next = keys.elect("b");
            let found = next.read().unwrap();
            if let Some((guard, ops)) = late {
                assert_eq!(keys.memory.lock().transact(guard, &ops), Outcome::Deposed);
            }
            assert!(found == small || found == large, "broken at {broken}: neither");
            let whole = found == large;
            assert_eq!(next.audit(5).unwrap().len(), usize::from(whole));
            kept += usize::from(!whole);
            made += usize::from(whole);
            let beside =
                keys.memory.lock().keys.keys().any(|key| key.starts_with("next") || key.starts_with("gone"));
            assert!(!beside && !keys.memory.lock().keys.contains_key(MARK));
            next.write(&found, &small, &lines).unwrap();
            assert_eq!(keys.elect("c").read().unwrap(), small);
            assert_eq!(store.write(&small, &large, &[]).unwrap_err().to_string(), Error::Deposed.to_string());
        }
    }
}

#[test]
fn who_is_deposed_in_the_middle_of_a_large_change_says_undone_only_when_it_is() {
    let (small, large) = (documents(3, 1), documents(420, 2));
    let (mut kept, mut made) = (0, 0);
    for usurped in 1.. {
        let keys = ModelKeys::default();
        let mut store = keys.elect("a");
        store.read().unwrap();
        store.write(&Documents::new(), &small, &[]).unwrap();
        *keys.fault.lock() = Fault { usurped: Some(usurped), ..Fault::default() };
        let Err(error) = store.write(&small, &large, &[]) else { break };
        let found = keys.elect("b").read().unwrap();
        if matches!(error, Error::Deposed) {
            assert!(found == small, "deposed at {usurped}: whoever asked for it would ask again");
            kept += 1;
        } else {
            assert!(found == large && error.to_string().contains("do not repeat it"), "{usurped}: {error}");
            made += 1;
        }
    }
    assert!(kept > 0 && made > 0, "{kept} {made}");
}

#[test]
fn a_write_that_was_given_up_does_nothing_when_it_comes_late() {
    for large in [false, true] {
        let keys = ModelKeys::default();
        let mut store = keys.elect("a");
        let (first, second) = (documents(if large { 300 } else { 2 }, 1), documents(2, 2));
        store.read().unwrap();
        *keys.fault.lock() = Fault { left: Some(0), ..Fault::default() };
        store.write(&Documents::new(), &first, &[]).unwrap_err();
        let (guard, ops) = keys.fault.lock().late.take().unwrap();
        keys.fault.lock().left = None;
        // It is read again, as after every failure; what comes now comes too late.
        assert_eq!(store.read().unwrap(), Documents::new());
        assert_eq!(keys.memory.lock().transact(guard, &ops), Outcome::Late);
        store.write(&Documents::new(), &second, &[]).unwrap();
        assert_eq!(keys.memory.lock().transact(guard, &ops), Outcome::Late);
        assert_eq!(store.read().unwrap(), second);
    }
}

#[test]
fn a_leader_that_was_deposed_writes_and_reads_nothing() {
    let keys = ModelKeys::default();
    let mut first = keys.elect("a");
    first.read().unwrap();
    first.write(&Documents::new(), &documents(1, 1), &[]).unwrap();
    let mut second = keys.elect("b");
    for _ in 0..2 {
        assert!(matches!(
            first.write(&documents(1, 1), &documents(2, 1), &["x".into()]),
            Err(Error::Deposed)
        ));
        assert!(matches!(first.read(), Err(Error::Deposed)));
        assert_eq!(second.read().unwrap(), documents(1, 1));
    }
    second.write(&documents(1, 1), &documents(3, 2), &["y".into()]).unwrap();
    assert_eq!(second.audit(9).unwrap(), ["y"]);
}

#[test]
fn the_audit_log_forgets_its_oldest_lines() {
    let keys = ModelKeys::default();
    let mut store = keys.elect("a");
    store.read().unwrap();
    store.line = AUDIT_KEPT - 1;
    for line in ["a", "b", "c"] {
        store.write(&Documents::new(), &Documents::new(), &[line.to_owned()]).unwrap();
    }
    assert_eq!(store.audit(9).unwrap(), ["a", "b", "c"]);
    store.line = 3 * AUDIT_KEPT;
    store.write(&Documents::new(), &Documents::new(), &["d".to_owned()]).unwrap();
    assert_eq!(store.audit(9).unwrap(), ["d"]);
    let mut next = keys.elect("b");
    next.read().unwrap();
    assert_eq!(next.line, 3 * AUDIT_KEPT + 1);
}
