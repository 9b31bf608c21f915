//! Judged queries: of each, which documents are how good. A file of them (`judged = "FILE"` in a plan) is asked of both versions
//! before a query of anybody is answered from the new one, and the mean nDCG@10 must not be lower than allowed.
//!
//! The failure this prevents: a version whose answers are full, quick and wrong. No count of live queries sees that.
//!
//! One line a query: `{"q":"capital of france","gains":{"https://a.example/paris":3,"https://b.example/":1}}`. Documents that
//! are not named have no gain. Bounds: 20 to 2,000 queries, 200 documents a query, gains to 1,000, 1 MiB in all: the file is
//! kept with the rollout.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    agreement::{DEPTH, Mean, ndcg},
    normal::upper_tail,
};

/// Largest file, bytes.
pub const MOST_BYTES: usize = 1 << 20;
/// Most queries.
pub const MOST_QUERIES: usize = 2_000;
/// Fewest: of fewer no difference can be told from chance.
pub const FEWEST_QUERIES: usize = 20;
/// Fewest of which an answer came, for the result to count: some of a file may be such as nobody can ask.
pub const FEWEST_PAIRS: u64 = 10;
/// Most documents of a query.
const MOST_GAINS: usize = 200;
/// Largest gain.
const MOST_GAIN: u32 = 1_000;
/// Longest query, bytes.
const LONGEST: usize = 4_096;
/// Chance of a breach in a version that is as good over all queries that could have been judged.
pub const ALPHA: f64 = 0.005;

/// The text of a file of judged queries; empty: none.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Judged(Arc<str>);

/// One judged query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedQuery {
    /// What is asked.
    pub q: String,
    /// Gain by key.
    pub gains: BTreeMap<String, u32>,
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Judged({} bytes)", self.0.len())
    }
}

impl From<&str> for Judged {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Serialize for Judged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Judged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into()))
    }
}

impl Judged {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its queries. Errors: line and field, the limit, and what to do.
    pub fn queries(&self) -> Result<Vec<JudgedQuery>, String> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        if self.0.len() > MOST_BYTES {
            return Err(format!("{} bytes; the limit is {MOST_BYTES}: judge fewer queries", self.0.len()));
        }
        let mut queries: Vec<JudgedQuery> = Vec::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for (at, line) in self.0.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let query = read(line).map_err(|reason| format!("line {}: {reason}", at + 1))?;
            if let Some(first) = lines.insert(query.q.clone(), at + 1) {
                return Err(format!("line {}: q: it is on line {first} too; keep one", at + 1));
            }
            if queries.len() == MOST_QUERIES {
                return Err(format!("line {}: more than {MOST_QUERIES} queries; judge fewer", at + 1));
            }
            queries.push(query);
        }
        if queries.len() < FEWEST_QUERIES {
            let found = queries.len();
            return Err(format!(
                "{found} queries; write {FEWEST_QUERIES} or more, a difference of fewer is chance"
            ));
        }
        Ok(queries)
    }
}

fn read(line: &str) -> Result<JudgedQuery, String> {
    let query: JudgedQuery = serde_json::from_str(line).map_err(|error| {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        format!("column {}: {what}; write {{\"q\":\"…\",\"gains\":{{\"key\":1}}}}", error.column())
    })?;
    if query.q.trim().is_empty() || query.q.len() > LONGEST {
        return Err(format!("q: {} bytes; write 1 to {LONGEST}", query.q.len()));
    }
    if query.gains.len() > MOST_GAINS {
        return Err(format!("gains: {} documents; the limit is {MOST_GAINS}", query.gains.len()));
    }
    if let Some((key, gain)) = query.gains.iter().find(|(_, gain)| **gain > MOST_GAIN) {
        let key: String = key.chars().take(80).collect();
        return Err(format!("gains: {gain} of {key:?} is above the limit {MOST_GAIN}"));
    }
    if query.gains.values().all(|gain| *gain == 0) {
        return Err("gains: no document has a gain above 0, so no answer is better than another".to_owned());
    }
    Ok(query)
}

impl JudgedQuery {
    /// nDCG@10 of an answer: the keys of its hits, in their order.
    pub fn ndcg<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> f64 {
        let gain = |key: K| self.gains.get(key.as_ref()).copied().unwrap_or(0);
        let gains: Vec<u32> = keys.into_iter().take(DEPTH).map(gain).collect();
        let ideal: Vec<u32> = self.gains.values().copied().collect();
        ndcg(&gains, &ideal, DEPTH).unwrap_or(0.0)
    }
}

/// nDCG@10 of both versions over the same queries.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Paired {
    /// Of the version that serves.
    pub before: Mean,
    /// Of the one on trial.
    pub after: Mean,
    /// After less before, query by query.
    pub difference: Mean,
}

impl Paired {
    /// One query, asked of both.
    pub fn record(&mut self, before: f64, after: f64) {
        if before.is_finite() && after.is_finite() {
            self.before.record(before);
            self.after.record(after);
            self.difference.record(after - before);
        }
    }

    /// Chance of so large a mean loss when the versions are alike over all such queries: the paired test of the mean
    /// difference, one-sided. What differs between queries cancels, so it sees losses far below their spread.
    pub fn p(&self) -> f64 {
        let loss = -self.difference.mean();
        upper_tail(loss / self.difference.error().max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl Fn(usize, String) -> String) -> Judged {
        let line =
            |at: usize| change(at, format!("{{\"q\":\"query {at}\",\"gains\":{{\"a\":2,\"b\":1}}}}\n"));
        Judged::from((0..FEWEST_QUERIES).map(line).collect::<String>().as_str())
    }

    #[test]
    fn a_file_is_read_and_errors_name_line_and_field() {
        let good = file(|at, line| if at == 3 { format!("\n{line}") } else { line });
        assert_eq!(good.queries().unwrap().len(), FEWEST_QUERIES);
        assert_eq!(Judged::default().queries(), Ok(Vec::new()));
        let third = |text: &str| {
            let text = format!("{text}\n");
            file(|at, line| if at == 2 { text.clone() } else { line }).queries().unwrap_err()
        };
        for (text, said) in [
            (r#"{"gains":{"a":1}}"#, "line 3: column 17: missing field `q`"),
            (r#"{"q":"x","gain":{"a":1}}"#, "unknown field `gain`"),
            (r#"{"q":"x","gains":{"a":-1}}"#, "line 3: column"),
            (r#"{"q":" ","gains":{"a":1}}"#, "line 3: q: 1 bytes"),
            (r#"{"q":"x","gains":{"a":0}}"#, "line 3: gains: no document"),
            (r#"{"q":"x","gains":{"a":1001}}"#, "above the limit 1000"),
            (r#"{"q":"query 1","gains":{"a":1}}"#, "line 3: q: it is on line 2 too"),
            ("nonsense", "line 3: column 2: expected"),
        ] {
            assert!(third(text).contains(said), "{}", third(text));
        }
        assert!(
            Judged::from("{\"q\":\"x\",\"gains\":{\"a\":1}}").queries().unwrap_err().contains("20 or more")
        );
        let long = Judged::from("x".repeat(MOST_BYTES + 1).as_str());
        assert!(long.queries().unwrap_err().contains("the limit is 1048576"));
        let json = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<Judged>(&json).unwrap(), good);
    }

    #[test]
    fn a_loss_is_told_from_chance_by_pairs() {
        let query = JudgedQuery { q: "x".into(), gains: [("a".into(), 2), ("b".into(), 1)].into() };
        assert_eq!((query.ndcg(["a", "b"]), query.ndcg::<&str>([])), (1.0, 0.0));
        assert!(query.ndcg(["b", "a"]) < 1.0);
        let (mut same, mut worse, mut mixed) = (Paired::default(), Paired::default(), Paired::default());
        for at in 0..40 {
            let before = f64::from(at) / 40.0;
            same.record(before, before);
            worse.record(before, (before - 0.05).max(0.0));
            mixed.record(before, if at % 2 == 0 { before + 0.2 } else { before - 0.21 });
        }
        assert!(same.p() > 0.4 && mixed.p() > 0.3, "{} {}", same.p(), mixed.p());
        assert!(worse.p() < 1e-9);
    }
}
