//! Queries for benchmarks: lines of a file, or else words of titles of the corpus itself, so that every query finds
//! something and a run needs nothing but its corpus.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// The bundled sample corpus, seen from the repository.
pub const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/sample/web.jsonl.gz");

/// Corpus and queries of a benchmark.
#[derive(clap::Args)]
pub struct Asked {
    /// Corpus: JSONL, plain or .gz, with `url`, `title`, `body`; the bundled sample when left out
    #[arg(long, default_value = SAMPLE)]
    pub input: PathBuf,
    /// Documents read of it at most
    #[arg(long, default_value_t = usize::MAX)]
    pub documents: usize,
    /// One query a line (or ID and query, tab between); words of titles when left out
    #[arg(long)]
    pub from: Option<PathBuf>,
    /// Queries
    #[arg(long, default_value_t = 500)]
    pub queries: usize,
}

fn lines(path: &Path) -> Result<impl Iterator<Item = std::io::Result<String>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let plain: Box<dyn Read> = match path.extension() {
        Some(end) if end == "gz" => Box::new(flate2::read::MultiGzDecoder::new(file)),
        _ => Box::new(file),
    };
    Ok(BufReader::with_capacity(1 << 16, plain).lines())
}

impl Asked {
    /// The corpus as a file of at most `documents` lines in `dir`, or the input itself.
    pub fn corpus(&self, dir: &Path) -> Result<PathBuf> {
        if self.documents == usize::MAX {
            return Ok(self.input.clone());
        }
        let path = dir.join("pages.jsonl");
        let mut out = std::io::BufWriter::new(File::create(&path)?);
        for line in lines(&self.input)?.take(self.documents) {
            std::io::Write::write_all(&mut out, line?.as_bytes())?;
            std::io::Write::write_all(&mut out, b"\n")?;
        }
        std::io::Write::flush(&mut out)?;
        Ok(path)
    }

    /// The queries.
    pub fn texts(&self) -> Result<Vec<String>> {
        let found: Vec<String> = match &self.from {
            Some(file) => lines(file)?
                .map(|line| line.map(|line| line.rsplit('\t').next().unwrap_or_default().trim().to_owned()))
                .filter(|line| !line.as_ref().is_ok_and(String::is_empty))
                .take(self.queries)
                .collect::<Result<_, _>>()?,
            None => self.titles()?,
        };
        ensure!(!found.is_empty(), "there are no queries");
        Ok(found)
    }

    /// Two words of titles, spread over the corpus.
    fn titles(&self) -> Result<Vec<String>> {
        let mut titles = Vec::new();
        for line in lines(&self.input)?.take(self.documents) {
            let page: serde_json::Value = serde_json::from_str(&line?)?;
            let title = page["title"].as_str().unwrap_or_default();
            let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 2);
            let words: Vec<&str> = words.take(2).collect();
            titles.push(words.join(" "));
        }
        titles.retain(|title| !title.is_empty());
        titles.dedup();
        let step = titles.len().div_ceil(self.queries.max(1)).max(1);
        Ok(titles.into_iter().step_by(step).collect())
    }
}
