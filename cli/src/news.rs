//! What is shown again and again (`status --watch`, `rollout watch`), one way for all: the whole screen anew on a terminal, and
//! elsewhere, in a log, only lines that were not there the last time. Rule: time that goes by and counts that only grow are no
//! news in a log; on a terminal they are shown.

use std::{collections::BTreeSet, io::IsTerminal};

use serde_json::Value;

use crate::say::{self, say};

/// To the top left of an empty terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Where it is shown, and what was shown last.
pub struct News {
    terminal: bool,
    last: Vec<String>,
}

impl News {
    /// On standard output.
    pub fn of_stdout() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), last: Vec::new() }
    }

    /// For whoever reads it as a log, wherever it goes.
    pub fn of_a_log() -> Self {
        Self { terminal: false, last: Vec::new() }
    }

    /// Shows what is new, or all of it anew.
    pub fn show(&mut self, lines: Vec<String>) {
        if lines == self.last {
            return;
        }
        if self.terminal {
            // In one piece, so that it does not flicker.
            say::write(format_args!("{CLEAR}{}\n", lines.join("\n")));
        } else {
            self.fresh(&lines).for_each(|line| say!("{line}"));
        }
        self.last = lines;
    }

    /// Lines that were not there the last time.
    fn fresh<'a>(&self, lines: &'a [String]) -> impl Iterator<Item = &'a String> {
        let known: BTreeSet<&String> = self.last.iter().collect();
        lines.iter().filter(move |line| !known.contains(line)).collect::<Vec<_>>().into_iter()
    }

    /// A corpus of the service's status without what is no news here.
    pub fn settled(&self, corpus: &mut Value) {
        if self.terminal {
            return;
        }
        for (part, key) in [("rollout", "left_ms"), ("judgement", "sample")] {
            if let Some(part) = corpus.get_mut(part).and_then(Value::as_object_mut) {
                part.remove(key);
            }
        }
        // What moves wait for has the time in brackets.
        if let Some(Value::String(waits)) = corpus.get_mut("placement").and_then(|part| part.get_mut("waits"))
            && let Some(end) = waits.find(" (")
        {
            waits.truncate(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_log_gets_what_is_new_and_neither_time_nor_counts_that_grow() {
        let lines = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut news = News::of_a_log();
        let (first, second) = (lines(&["live v1", "stage"]), lines(&["live v1", "canary 1 %"]));
        assert_eq!(news.fresh(&first).count(), 2);
        news.show(first);
        assert_eq!(news.fresh(&second).collect::<Vec<_>>(), ["canary 1 %"]);
        let waits = "the rollout to v2 is over (retain, 7 s left)";
        let corpus = json!({
            "rollout": { "to": 2, "left_ms": 7 }, "judgement": { "sample": 3 }, "placement": { "waits": waits }
        });
        let (mut log, mut screen) = (corpus.clone(), corpus.clone());
        news.settled(&mut log);
        let waits = "the rollout to v2 is over";
        assert_eq!(log, json!({ "rollout": { "to": 2 }, "judgement": {}, "placement": { "waits": waits } }));
        News { terminal: true, ..news }.settled(&mut screen);
        assert_eq!(screen, corpus);
        // Neither is there: nothing is made up.
        let mut none = json!({ "rollout": null });
        News::of_a_log().settled(&mut none);
        assert!(none["rollout"].is_null());
    }
}
