//! Queries that leaves warm a version with: a file of queries, one a line, or a root's query log, of which those asked most often are
//! taken. Either way as many as a version holds, each once; what is left out is said.

use std::path::Path;

use anyhow::{Result, bail};
use canopy_common::collections::HashSet;
use canopy_format::{
    manifest::MAX_WARMUP,
    query_log::{is_record, most_asked},
};
use canopy_indexer::build::MAX_WARMUP_BYTES;

use crate::{queries, say::aside};

/// The queries of a file for a corpus.
pub fn read(path: &Path, corpus: &str) -> Result<Vec<String>> {
    if !is_log(path)? {
        return Ok(chosen(queries::read(path)?));
    }
    // Twice as many as are kept: some may be too long, or the same but for spaces.
    let asked = most_asked(path, corpus, 2 * MAX_WARMUP)?;
    if asked.is_empty() {
        bail!(
            "{} holds no query of {corpus} that was answered; hint: --corpus, or a longer log",
            path.display()
        );
    }
    Ok(chosen(asked))
}

/// Whether the first line is one of a query log.
fn is_log(path: &Path) -> Result<bool> {
    use std::io::{BufRead, Read};
    let file = std::fs::File::open(path)
        .map_err(|error| anyhow::anyhow!("{} can't be read: {error}", path.display()))?;
    let mut line = Vec::new();
    std::io::BufReader::new(file).take(MAX_LINE).read_until(b'\n', &mut line)?;
    Ok(is_record(&String::from_utf8_lossy(&line)))
}

/// Longest first line that is looked at, bytes.
const MAX_LINE: u64 = 256 << 10;

/// The first ones, each once.
fn chosen(queries: Vec<String>) -> Vec<String> {
    let given = queries.len();
    let mut seen = HashSet::default();
    let mut kept: Vec<String> = queries
        .into_iter()
        .filter(|query| query.len() <= MAX_WARMUP_BYTES && seen.insert(query.clone()))
        .collect();
    kept.truncate(MAX_WARMUP);
    if kept.len() < given && given <= 2 * MAX_WARMUP {
        tracing::debug!(given, kept = kept.len(), "warm-up queries chosen");
    } else if kept.len() < given {
        aside!("{} of {given} warm-up queries are taken, the first ones", kept.len());
    }
    kept
}

#[cfg(test)]
mod tests {
    use canopy_format::query_log::Record;

    use super::*;

    #[test]
    fn lines_and_logs_are_told_apart_bounded_and_each_query_comes_once() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("queries");
        let many: Vec<String> = (0..100).map(|n| format!("{n}\tquery {}", n / 2)).collect();
        std::fs::write(&file, many.join("\n") + "\n" + &"x".repeat(MAX_WARMUP_BYTES + 1)).unwrap();
        let found = read(&file, "web").unwrap();
        assert_eq!(found.len(), MAX_WARMUP);
        assert_eq!(found[..2], ["query 0", "query 1"]);

        let line = |q: &str, corpus: &str| Record {
            q: q.to_owned(),
            corpus: corpus.to_owned(),
            outcome: "answered".to_owned(),
            ..Record::default()
        };
        let mut log = Vec::new();
        for (q, corpus) in [("rare", "web"), ("often", "web"), ("other", "books"), ("often", "web")] {
            log.extend(line(q, corpus).line());
        }
        log.extend(b"{\"torn");
        std::fs::write(&file, &log).unwrap();
        assert_eq!(read(&file, "web").unwrap(), ["often", "rare"]);
        assert!(read(&file, "none").unwrap_err().to_string().contains("no query of none"));
        assert!(read(&place.path().join("nothing"), "web").is_err());
    }
}
