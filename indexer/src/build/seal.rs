//! Gives a shard's segments names derived from their content, so that two builds of the same input give the same
//! files. The engine names segments at random and notes names in its table of contents; both are replaced here, along
//! with its list of managed files, which only a writer needs.
//!
//! Segment id = first 16 bytes of BLAKE3 over (extension, BLAKE3 of the file) of its files, by extension.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use canopy_format::manifest::FileEntry;
use serde_json::{Value, json};
use tantivy::{Index, SegmentMeta};

use crate::error::{Error, Result};

/// The engine's table of contents.
const META: &str = "meta.json";

/// A shard's engine files.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) directory: PathBuf,
    /// Names, sorted.
    pub(crate) files: Vec<String>,
}

/// An engine index on disk and where it is.
pub(crate) struct Segmented {
    pub(crate) path: PathBuf,
    pub(crate) index: Index,
}

/// Moves the segments of each index, and `kept` ones whose files lie in a directory, into `directory` under their new names.
/// `template` is an empty index of the same schema and settings.
pub(crate) fn seal(
    template: &Index,
    indexes: &[Segmented],
    kept: &[(PathBuf, SegmentMeta)],
    directory: &Path,
) -> Result<Sealed> {
    fs::create_dir(directory).map_err(Error::io(directory))?;
    let mut files = vec![META.to_owned()];
    let mut segments = vec![];
    for (path, meta) in kept {
        segments.push(move_segment(path, meta, directory, &mut files)?);
    }
    for Segmented { path, index } in indexes {
        for meta in index.searchable_segment_metas().map_err(Error::engine("read segment"))? {
            segments.push(move_segment(path, &meta, directory, &mut files)?);
        }
    }
    write_meta(template, segments, &directory.join(META))?;
    files.sort_unstable();
    Ok(Sealed { directory: directory.to_owned(), files })
}

fn move_segment(from: &Path, meta: &SegmentMeta, to: &Path, files: &mut Vec<String>) -> Result<Value> {
    let mut parts = BTreeMap::new();
    let prefix = format!("{}.", meta.id().uuid_string());
    for entry in fs::read_dir(from).map_err(Error::io(from))? {
        let path = entry.map_err(Error::io(from))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(extension) = name.strip_prefix(&prefix).map(str::to_owned) {
            let entry = FileEntry::of_file(&path, &extension)?;
            parts.insert(extension, (path, entry.blake3));
        }
    }
    let mut hasher = blake3::Hasher::new();
    for (extension, (_, hash)) in &parts {
        hasher.update(extension.as_bytes()).update(b"=").update(hash.as_bytes()).update(b"\n");
    }
    let id = hasher.finalize().to_hex();
    let id = &id[..32];
    for (extension, (path, _)) in parts {
        let name = format!("{id}.{extension}");
        let target = to.join(&name);
        fs::rename(&path, &target).map_err(Error::io(&target))?;
        files.push(name);
    }
    let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
    Ok(json!({ "segment_id": parts.join("-"), "max_doc": meta.max_doc(), "deletes": null }))
}

fn write_meta(template: &Index, segments: Vec<Value>, path: &Path) -> Result<()> {
    let meta = template.load_metas().map_err(Error::engine("read index layout"))?;
    let damaged = |error: serde_json::Error| Error::Damaged { what: META.into(), reason: error.to_string() };
    let mut meta = serde_json::to_value(meta).map_err(damaged)?;
    meta["segments"] = Value::Array(segments);
    let bytes = serde_json::to_vec_pretty(&meta).map_err(damaged)?;
    let file = fs::File::create(path).map_err(Error::io(path))?;
    std::io::Write::write_all(&mut &file, &bytes).map_err(Error::io(path))?;
    file.sync_all().map_err(Error::io(path))
}
