//! The comparison of two versions as lines for people; what did not change is left out.

use std::fmt;

use super::{Change, DiffReport, DocumentChanges};

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        let step = i128::from(*to) - i128::from(*from);
        if step == 0 { write!(f, "{to}") } else { write!(f, "{from} -> {to} ({step:+})") }
    }
}

impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} -> {}", self.corpus, self.from, self.to)?;
        writeln!(f, "documents  {}", self.documents)?;
        writeln!(f, "bytes      {}", self.bytes)?;
        writeln!(f, "terms      {}", self.terms)?;
        for (what, names) in [
            ("fields added", &self.fields_added),
            ("fields removed", &self.fields_removed),
            ("fields changed", &self.fields_changed),
        ] {
            if !names.is_empty() {
                writeln!(f, "{what}: {}", names.join(", "))?;
            }
        }
        if self.analysis_changed {
            writeln!(f, "the analysis rules changed")?;
        }
        if self.slots_moved > 0 {
            writeln!(f, "slots on another shard: {}", self.slots_moved)?;
        }
        let tokens = self.tokens.iter().map(|(field, change)| (format!("tokens of {field}"), change));
        let languages = self.languages.iter().map(|(code, change)| (format!("documents in {code}"), change));
        let shards = self.shards.iter().map(|(shard, change)| (format!("documents of {shard}"), change));
        for (what, change) in tokens.chain(languages).chain(shards) {
            writeln!(f, "{what}: {change}")?;
        }
        match &self.changes {
            Some(changes) => write!(f, "{changes}"),
            None => write!(f, "documents were not compared: the store is not a local directory"),
        }
    }
}

impl fmt::Display for DocumentChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, removed, changed, unchanged, .. } = self;
        write!(f, "added {added}, removed {removed}, changed {changed}, unchanged {unchanged}")?;
        for (sign, keys) in [("+", &self.added_keys), ("-", &self.removed_keys), ("~", &self.changed_keys)] {
            for key in keys {
                write!(f, "\n{sign} {key:?}")?;
            }
        }
        Ok(())
    }
}
