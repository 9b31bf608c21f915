//! Files of queries: one a line, or an id, a tab and the query. Empty lines are skipped.

use std::path::Path;

use anyhow::{Context, Result, bail};
use canopy_common::bounded;

/// The queries of a file, in order; at least one.
pub fn read(path: &Path) -> Result<Vec<String>> {
    let text = bounded::text(path, bounded::MOST_QUERIES)
        .with_context(|| format!("{} can't be read", path.display()))?;
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_once('\t').map_or(line, |(_, query)| query).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        bail!("{} holds no query; hint: one query a line", path.display());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_empty_lines_are_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "17\tred fox\n\n  blue  \n").unwrap();
        assert_eq!(read(file.path()).unwrap(), ["red fox", "blue"]);
        std::fs::write(file.path(), "\n").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("holds no query"));
    }
}
