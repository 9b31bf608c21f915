//! Ranking measures over judged collections, as trec_eval computes them.
//!
//! A run is a ranked list of document ids per query; judgements are gains per (query, document). Queries without a
//! relevant document are left out, queries without hits count 0.

use std::collections::BTreeMap;

use canopy_topology::gates::agreement::ndcg;

/// Gains by query and document.
pub type Judgements = BTreeMap<String, BTreeMap<String, u32>>;

/// Means over the judged queries.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Measures {
    /// Judged queries with at least one relevant document.
    pub queries: usize,
    /// nDCG at 10, gains as judged, discount log2(rank + 1).
    pub ndcg10: f64,
    /// Mean average precision over the whole list.
    pub map: f64,
    /// Mean reciprocal rank of the first relevant document within 10.
    pub mrr10: f64,
    /// Share of queries with a relevant document within 10.
    pub success10: f64,
}

/// Reads `qid 0 docid gain` lines.
pub fn judgements(text: &str) -> Judgements {
    let mut all = Judgements::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split_whitespace().collect();
        if let [query, _, document, gain] = parts.as_slice() {
            let gain = gain.parse::<f64>().map_or(0, |gain| gain.max(0.0) as u32);
            all.entry((*query).to_owned()).or_default().insert((*document).to_owned(), gain);
        }
    }
    all
}

/// Measures a run.
pub fn measure(judged: &Judgements, run: &BTreeMap<String, Vec<String>>) -> Measures {
    let mut sum = Measures::default();
    for (query, gains) in judged {
        let relevant = gains.values().filter(|gain| **gain > 0).count();
        if relevant == 0 {
            continue;
        }
        sum.queries += 1;
        let list = run.get(query).map_or(&[][..], Vec::as_slice);
        let gain = |document: &String| gains.get(document).copied().unwrap_or(0);
        let found_gains: Vec<u32> = list.iter().take(10).map(gain).collect();
        let ideal: Vec<u32> = gains.values().copied().collect();
        sum.ndcg10 += ndcg(&found_gains, &ideal, 10).unwrap_or(0.0);
        let mut found = 0;
        let mut precision = 0.0;
        for (rank, document) in list.iter().enumerate() {
            if gain(document) > 0 {
                found += 1;
                precision += f64::from(found) / (rank + 1) as f64;
            }
        }
        sum.map += precision / relevant as f64;
        if let Some(rank) = list.iter().take(10).position(|document| gain(document) > 0) {
            sum.mrr10 += 1.0 / (rank + 1) as f64;
            sum.success10 += 1.0;
        }
    }
    let n = sum.queries.max(1) as f64;
    Measures {
        ndcg10: sum.ndcg10 / n,
        map: sum.map / n,
        mrr10: sum.mrr10 / n,
        success10: sum.success10 / n,
        ..sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_run_scores_one_and_an_empty_one_nothing() {
        let judged = judgements("1 0 a 2\n1 0 b 1\n2 0 c 1\n3 0 d 0\n");
        let perfect = BTreeMap::from([
            ("1".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("2".to_owned(), vec!["c".to_owned()]),
        ]);
        let all = measure(&judged, &perfect);
        assert_eq!(all, Measures { queries: 2, ndcg10: 1.0, map: 1.0, mrr10: 1.0, success10: 1.0 });
        assert_eq!(measure(&judged, &BTreeMap::new()).ndcg10, 0.0);
    }

    #[test]
    fn rank_two_of_one_relevant() {
        let judged = judgements("1 0 a 1");
        let run = BTreeMap::from([("1".to_owned(), vec!["x".to_owned(), "a".to_owned()])]);
        let got = measure(&judged, &run);
        assert_eq!((got.map, got.mrr10), (0.5, 0.5));
        assert!((got.ndcg10 - 1.0 / 3f64.log2()).abs() < 1e-12);
    }
}
