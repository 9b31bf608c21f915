//! The words as written of a shard with their terms, for the statistics: distinct pairs in memory up to a budget, then
//! as sorted runs in files of the same form as those of [`super::terms`] (the count says nothing).

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use super::terms::put;
use crate::error::{Error, Result};

/// Memory of one pair beside its bytes: the vector, the entry and the allocator's share.
const ENTRY_BYTES: usize = 64;

/// Gathers pairs.
pub(crate) struct Spellings<'a> {
    directory: &'a Path,
    /// Most memory, bytes.
    budget: usize,
    pairs: BTreeSet<Vec<u8>>,
    bytes: usize,
    runs: Vec<PathBuf>,
}

impl<'a> Spellings<'a> {
    pub(crate) fn new(directory: &'a Path, budget: usize) -> Self {
        Self { directory, budget, pairs: BTreeSet::new(), bytes: 0, runs: vec![] }
    }

    /// Adds pairs: spelling, 0x1F, term.
    pub(crate) fn add(&mut self, pairs: Vec<Vec<u8>>) -> Result<()> {
        for pair in pairs {
            let bytes = pair.len() + ENTRY_BYTES;
            if self.pairs.insert(pair) {
                self.bytes += bytes;
            }
            if self.bytes > self.budget {
                self.write_run()?;
            }
        }
        Ok(())
    }

    fn write_run(&mut self) -> Result<()> {
        let pairs = std::mem::take(&mut self.pairs);
        self.bytes = 0;
        let path = self.directory.join(format!("spellings-{:04}", self.runs.len()));
        let mut out = BufWriter::new(File::create(&path).map_err(Error::io(&path))?);
        pairs.iter().try_for_each(|pair| put(&mut out, pair, 1)).map_err(Error::io(&path))?;
        out.flush().map_err(Error::io(&path))?;
        self.runs.push(path);
        Ok(())
    }

    /// The sorted runs.
    pub(crate) fn finish(mut self) -> Result<Vec<PathBuf>> {
        if !self.pairs.is_empty() {
            self.write_run()?;
        }
        Ok(self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::terms::Terms;

    #[test]
    fn runs_are_sorted_and_together_hold_every_pair() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut spellings = Spellings::new(directory.path(), 2000);
        let pair = |n: u32| format!("w{n:03}\x1fw").into_bytes();
        for n in 0..300 {
            spellings.add(vec![pair(n * 7 % 100), pair(n % 3)]).expect("added");
        }
        let runs = spellings.finish().expect("runs");
        assert!(runs.len() > 3, "{}", runs.len());
        let mut all = vec![];
        for run in &runs {
            let pairs: Vec<_> = Terms::open(run).expect("run").map(|entry| entry.expect("pair").0).collect();
            assert!(pairs.is_sorted());
            all.extend(pairs);
        }
        all.sort();
        all.dedup();
        assert_eq!(all, (0..100).map(pair).collect::<Vec<_>>());
        assert!(Spellings::new(directory.path(), 10).finish().expect("nothing").is_empty());
    }
}
