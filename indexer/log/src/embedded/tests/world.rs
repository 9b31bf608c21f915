//! A file system in memory. What was not synced may be lost, wholly or in part, when its power goes.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use canopy_common::rng::Dice;
use parking_lot::Mutex;

use crate::embedded::disk::{Disk, DiskFile, Found};

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Default)]
struct Faults {
    free: Option<u64>,
    syncs: u32,
    most: Option<usize>,
    /// Operations until everything fails.
    power: Option<u64>,
}

impl Faults {
    fn step(&mut self) -> io::Result<()> {
        match &mut self.power {
            Some(0) => Err(io::Error::other("no power")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

type Files = BTreeMap<PathBuf, Arc<Mutex<Content>>>;

/// See above.
#[derive(Clone, Default)]
pub struct World {
    names: Arc<Mutex<(Files, Files)>>,
    dirs: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<Faults>>,
}

struct Open(Arc<Mutex<Content>>, Arc<Mutex<Faults>>);

impl World {
    pub fn set_free(&self, bytes: u64) {
        self.faults.lock().free = Some(bytes);
    }

    pub fn fail_syncs(&self, next: u32) {
        self.faults.lock().syncs = next;
    }

    /// Writes take so many bytes, then the disk is full.
    pub fn write_at_most(&self, bytes: Option<usize>) {
        self.faults.lock().most = bytes;
    }

    pub fn power_for(&self, operations: Option<u64>) {
        self.faults.lock().power = operations;
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        let content = Content { now: bytes.to_vec(), durable: bytes.to_vec() };
        let content = Arc::new(Mutex::new(content));
        let mut names = self.names.lock();
        names.0.insert(path.into(), Arc::clone(&content));
        names.1.insert(path.into(), content);
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        self.names.lock().0[Path::new(path)].lock().now.clone()
    }

    pub fn make_dir(&self, name: &str) {
        self.dirs.lock().push(name.to_owned());
    }

    pub fn anywhere(&self, wanted: &[u8]) -> bool {
        let names = self.names.lock();
        names.0.values().any(|content| content.lock().now.windows(wanted.len()).any(|part| part == wanted))
    }

    /// Another one with the same files.
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        for (path, content) in &self.names.lock().0 {
            copy.put(&path.display().to_string(), &content.lock().now);
        }
        copy
    }

    /// The power goes, and comes back; nothing is left that was not durable.
    pub fn crash_hard(&self) {
        *self.faults.lock() = Faults::default();
        let mut names = self.names.lock();
        names.0 = names.1.clone();
        for content in names.0.values() {
            let mut content = content.lock();
            content.now = content.durable.clone();
        }
    }

    /// The power goes, and comes back.
    pub fn crash(&self, dice: &Dice) {
        *self.faults.lock() = Faults::default();
        let mut names = self.names.lock();
        if dice.below(2) == 0 {
            names.0 = names.1.clone();
        }
        let mut files = Files::new();
        for (path, content) in &names.0 {
            let mut content = content.lock();
            let same = content.now.starts_with(&content.durable);
            if same {
                let extra = content.now.len() - content.durable.len();
                let kept = content.durable.len() + dice.below(extra as u64 + 1) as usize;
                content.now.truncate(kept);
                // Blocks are written in any order.
                let from = content.durable.len();
                if kept > from && dice.below(3) == 0 {
                    let hole = from + dice.below((kept - from) as u64) as usize;
                    let end = (hole + 16).min(kept);
                    content.now[hole..end].fill(0);
                }
            } else {
                content.now = content.durable.clone();
            }
            content.durable = content.now.clone();
            let fresh = Content { now: content.now.clone(), durable: content.durable.clone() };
            files.insert(path.clone(), Arc::new(Mutex::new(fresh)));
        }
        *names = (files.clone(), files);
    }
}

impl DiskFile for Open {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let content = self.0.lock();
        let rest = content.now.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let mut faults = self.1.lock();
        faults.step()?;
        let count = match &mut faults.most {
            Some(0) => return Err(io::ErrorKind::StorageFull.into()),
            Some(left) => {
                let count = bytes.len().min(*left);
                *left -= count;
                count
            }
            None => bytes.len(),
        };
        let mut content = self.0.lock();
        let end = at as usize + count;
        if content.now.len() < end {
            content.now.resize(end, 0);
        }
        content.now[at as usize..end].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        let mut faults = self.1.lock();
        faults.step()?;
        if faults.syncs > 0 {
            faults.syncs -= 1;
            return Err(io::Error::other("a sync that fails"));
        }
        let mut content = self.0.lock();
        content.durable = content.now.clone();
        Ok(())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.1.lock().step()?;
        self.0.lock().now.truncate(length as usize);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }
}

impl Disk for World {
    fn take(&self, _: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn list(&self, _: &Path) -> io::Result<Vec<Found>> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let files =
            self.names.lock().0.keys().map(|path| Found { name: name(path), file: true }).collect::<Vec<_>>();
        let dirs =
            self.dirs.lock().iter().map(|name| Found { name: name.clone(), file: false }).collect::<Vec<_>>();
        Ok(files.into_iter().chain(dirs).collect())
    }

    fn make(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.faults.lock().step()?;
        let content = Arc::new(Mutex::new(Content::default()));
        self.names.lock().0.insert(path.to_owned(), Arc::clone(&content));
        Ok(Arc::new(Open(content, Arc::clone(&self.faults))))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let names = self.names.lock();
        let content = names.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Open(Arc::clone(content), Arc::clone(&self.faults))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.lock().step()?;
        let mut names = self.names.lock();
        let content = names.0.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.0.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.lock().step()?;
        self.names.lock().0.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.faults.lock().step()?;
        let mut names = self.names.lock();
        names.1 = names.0.clone();
        Ok(())
    }

    fn free(&self, _: &Path) -> io::Result<u64> {
        Ok(self.faults.lock().free.unwrap_or(u64::MAX))
    }
}
