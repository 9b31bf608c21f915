//! An overlay on the leaf's disk, so that a restart replays what came since and not all since the cut. Nothing is written to
//! the log.
//!
//! One file a part (`part-7`), written once since parts do not change, and one file `state` with all else: offsets,
//! keys, hidden bits, tombstones, and which parts belong to it. The failures this prevents: an overlay of another base or another
//! log, and half of one. Rules: every file ends with a checksum of itself, is written under another name, brought to the disk
//! and then renamed; the state goes last and names its parts by checksum; parts that it does not name are removed after
//! it. What does not fit or is damaged is dropped with a warning, and everything replayed.
//!
//! Numbers are little-endian, a length is a u64.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use canopy_common::ids::KeyHash;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    apply::Applied,
    config::OverlayConfig,
    ground::Ground,
    part::Part,
    state::{Fields, Keys, Known, Spot},
};

mod bytes;

use bytes::{Reader, put};

const MAGIC: &[u8] = b"canopy overlay 1\n";
const STATE: &str = "state";

/// Which overlay a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Of {
    /// Corpus.
    pub corpus: String,
    /// Version.
    pub version: u64,
    /// Shard.
    pub shard: String,
    /// Says that the base is the same: derived from the checksums of its files.
    pub base: String,
}

/// The beginning of a state.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    of: Of,
    epoch: String,
    offsets: BTreeMap<u32, u64>,
    /// Number and checksum.
    parts: Vec<(u32, String)>,
    keys: u64,
}

/// What is to be written.
pub struct Snapshot {
    state: Vec<u8>,
    /// Parts that may have to be written.
    parts: Vec<(u32, Vec<u8>)>,
    keep: Vec<u32>,
}

/// What was written before, and so need not be again: checksums by part.
#[derive(Debug, Default)]
pub struct Written(BTreeMap<u32, String>);

impl Written {
    /// Takes down an overlay whose pending part is closed; small beside the writing of it.
    pub fn snapshot(&mut self, applied: &Applied, of: &Of, epoch: &str) -> crate::error::Result<Snapshot> {
        let (mut parts, mut named) = (Vec::new(), Vec::new());
        for part in &applied.parts {
            let checksum = if let Some(checksum) = self.0.get(&part.number) {
                checksum.clone()
            } else {
                let file = part_file(part)?;
                let checksum = checksum(&file);
                parts.push((part.number, file));
                self.0.insert(part.number, checksum.clone());
                checksum
            };
            named.push((part.number, checksum));
        }
        let keep: Vec<u32> = named.iter().map(|(number, _)| *number).collect();
        self.0.retain(|number, _| keep.contains(number));
        let head = Head {
            of: of.clone(),
            epoch: epoch.to_owned(),
            offsets: applied.offsets.clone(),
            parts: named,
            keys: applied.keys.len() as u64,
        };
        Ok(Snapshot { state: state_file(&head, applied), parts, keep })
    }

    /// A write failed: nothing is known of what is there.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

impl Snapshot {
    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        (self.state.len() + self.parts.iter().map(|(_, file)| file.len()).sum::<usize>()) as u64
    }

    /// Writes it.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        for (number, file) in &self.parts {
            write_file(dir, &part_name(*number), file)?;
        }
        write_file(dir, STATE, &self.state)?;
        fs::File::open(dir)?.sync_all()?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let kept = name == STATE || self.keep.iter().any(|number| name == part_name(*number).as_str());
            if !kept && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn part_name(number: u32) -> String {
    format!("part-{number}")
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (temp, path) = (dir.join(format!(".{name}.new")), dir.join(name));
    let mut file = fs::File::create(&temp)?;
    file.write_all(bytes)?;
    file.write_all(&xxh3_128(bytes).to_le_bytes())?;
    file.sync_all()?;
    fs::rename(temp, path)
}

/// Reads a file that [`write_file`] wrote; else what is wrong with it.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = fs::read(path).map_err(|error| error.to_string())?;
    let content = bytes.len().checked_sub(16).ok_or("it is cut short")?;
    if bytes[content..] != xxh3_128(&bytes[..content]).to_le_bytes() {
        return Err("its checksum is wrong".to_owned());
    }
    bytes.truncate(content);
    Ok(bytes)
}

fn part_file(part: &Part) -> crate::error::Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    let files = part.to_files()?;
    put::u64(&mut out, files.len() as u64);
    for (name, bytes) in files {
        put::bytes(&mut out, name.as_bytes());
        put::bytes(&mut out, &bytes);
    }
    Ok(out)
}

fn state_file(head: &Head, applied: &Applied) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put::bytes(&mut out, &serde_json::to_vec(head).unwrap_or_default());
    put::bitmap(&mut out, &applied.tombstones);
    for part in &applied.parts {
        put::bitmap(&mut out, &part.hidden);
        out.push(u8::from(part.deleted.is_some()));
    }
    out.reserve(applied.keys.len() * 48);
    for (key, known) in applied.keys.all() {
        put::u128(&mut out, key.0);
        put::stamp(&mut out, known.stamp);
        let (tag, part, doc) = match known.spot {
            Spot::Gone => (0, 0, 0),
            Spot::Base(doc) => (1, 0, doc),
            Spot::Part { part, doc } => (2, part, doc),
            Spot::Deferred => (3, 0, 0),
        };
        out.push(tag);
        put::u32(&mut out, part);
        put::u32(&mut out, doc);
        let fields = known.fields.as_deref();
        put::u32(&mut out, fields.map_or(0, |fields| fields.len() as u32));
        for (field, stamp) in fields.into_iter().flatten() {
            put::u32(&mut out, u32::from(*field));
            put::stamp(&mut out, *stamp);
        }
    }
    out
}

/// What a checkpoint held.
pub struct Read {
    /// The overlay.
    pub applied: Applied,
    /// The log that its offsets are of.
    pub epoch: String,
    /// What need not be written again.
    pub written: Written,
}

/// Reads a checkpoint; `None`: there is none. Errors: why it can't be used.
pub fn read(
    dir: &Path,
    of: &Of,
    ground: &Arc<Ground>,
    config: &OverlayConfig,
) -> Result<Option<Read>, String> {
    let state = dir.join(STATE);
    if !state.exists() {
        return Ok(None);
    }
    let wrong = |error: String| format!("{}: {error}", state.display());
    let bytes = read_file(&state).map_err(wrong)?;
    let mut reader = Reader::new(&bytes, MAGIC).map_err(wrong)?;
    let head: Head = serde_json::from_slice(reader.bytes().map_err(wrong)?)
        .map_err(|error| wrong(format!("its head: {error}")))?;
    if head.of != *of {
        return Err(wrong(format!("it is of {:?}, not of {of:?}", head.of)));
    }
    let tombstones = reader.bitmap().map_err(wrong)?;
    let mut parts = Vec::new();
    for (number, checksum) in &head.parts {
        let hidden = reader.bitmap().map_err(wrong)?;
        let deleted = reader.byte().map_err(wrong)? != 0;
        parts.push(read_part(dir, *number, checksum, hidden, deleted, ground)?);
    }
    let keys = read_keys(&mut reader, head.keys).map_err(wrong)?;
    let base = ground.view.base.documents;
    if tombstones.max().is_some_and(|last| u64::from(last) >= base) {
        return Err(wrong("it hides a document that the base does not have".to_owned()));
    }
    if !keys.all().all(|(_, known)| holds(&parts, known.spot)) {
        return Err(wrong("it names a document that no part has".to_owned()));
    }
    let applied = Applied::new(ground.clone(), config, head.offsets).restore(keys, parts, tombstones);
    Ok(Some(Read { applied, epoch: head.epoch, written: Written(head.parts.into_iter().collect()) }))
}

fn holds(parts: &[Part], spot: Spot) -> bool {
    match spot {
        Spot::Part { part, doc } => parts
            .iter()
            .any(|held| held.number == part && doc < held.documents() && !held.hidden.contains(doc)),
        _ => true,
    }
}

fn read_part(
    dir: &Path,
    number: u32,
    expected: &str,
    hidden: RoaringBitmap,
    deleted: bool,
    ground: &Ground,
) -> Result<Part, String> {
    let path = dir.join(part_name(number));
    let wrong = |error: String| format!("{}: {error}", path.display());
    let bytes = read_file(&path).map_err(wrong)?;
    if checksum(&bytes) != expected {
        return Err(wrong("it is not the one that the state names".to_owned()));
    }
    let mut reader = Reader::new(&bytes, MAGIC).map_err(wrong)?;
    let mut files = Vec::new();
    for _ in 0..reader.u64().map_err(wrong)? {
        let name = String::from_utf8_lossy(reader.bytes().map_err(wrong)?).into_owned();
        files.push((name, reader.bytes().map_err(wrong)?.to_vec()));
    }
    let view = &ground.view;
    let part = Part::from_files(number, files, &view.shard, &view.base.schema);
    let part = part.map_err(|error| wrong(error.to_string()))?.ok_or_else(|| wrong("it is empty".into()))?;
    if hidden.max().is_some_and(|last| last >= part.documents()) {
        return Err(wrong("more of it is hidden than there is".to_owned()));
    }
    let deleted = deleted.then(tokio::time::Instant::now);
    Ok(Part { hidden: Arc::new(hidden), deleted, ..part })
}

fn read_keys(reader: &mut Reader<'_>, count: u64) -> Result<Keys, String> {
    let mut keys = Keys::default();
    for _ in 0..count {
        let key = KeyHash(reader.u128()?);
        let stamp = reader.stamp()?;
        let (tag, part, doc) = (reader.byte()?, reader.u32()?, reader.u32()?);
        let spot = match tag {
            0 => Spot::Gone,
            1 => Spot::Base(doc),
            2 => Spot::Part { part, doc },
            3 => Spot::Deferred,
            other => return Err(format!("a document is at a place of kind {other}")),
        };
        let mut fields = Fields::new();
        for _ in 0..reader.u32()? {
            let field = u16::try_from(reader.u32()?).map_err(|_| "a field has too large a number")?;
            fields.insert(field, reader.stamp()?);
        }
        let fields = (!fields.is_empty()).then(|| Box::new(fields));
        keys.set(key, Known { stamp, spot, fields });
    }
    reader.end()?;
    Ok(keys)
}

/// Where checkpoints of a leaf are, below its cache.
pub fn root(cache_dir: &Path) -> PathBuf {
    cache_dir.join("overlay")
}

/// Where that of a shard of a version is.
pub fn path(cache_dir: &Path, version_path: &str, shard_dir: &str) -> PathBuf {
    root(cache_dir).join(version_path).join(shard_dir)
}

/// Removes a checkpoint. That there is none is fine.
pub fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
