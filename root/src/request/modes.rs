//! Parameters that are one word out of few. An unknown word is answered with the known ones.

use canopy_aggregator::hedge::HedgeMode;
use canopy_common::{error::Failure, request::Priority};
use canopy_proto::v1::{self, completion};

use super::not_enabled;

/// The error for an unknown word.
pub fn unknown(field: &str, word: &str, known: &str) -> Failure {
    let shown: String = word.chars().take(40).collect();
    Failure::invalid(field, format!("{field} {shown:?} is not known; use one of: {known}"))
}

/// `interactive` or `batch`.
pub fn priority(word: &str) -> Result<Priority, Failure> {
    match word {
        "" | "interactive" => Ok(Priority::Interactive),
        "batch" => Ok(Priority::Batch),
        other => Err(unknown("priority", other, "interactive, batch")),
    }
}

/// `exact`, `bounded` or `none`.
pub fn total(word: &str) -> Result<v1::TotalMode, Failure> {
    match word {
        "" | "bounded" => Ok(v1::TotalMode::TotalBounded),
        "exact" => Ok(v1::TotalMode::TotalExact),
        "none" => Ok(v1::TotalMode::TotalNone),
        other => Err(unknown("total", other, "exact, bounded, none")),
    }
}

/// `base`, `indexed` or `realtime`.
pub fn freshness(word: &str) -> Result<v1::Freshness, Failure> {
    match word {
        "" | "realtime" => Ok(v1::Freshness::Realtime),
        "indexed" => Ok(v1::Freshness::Indexed),
        "base" => Ok(v1::Freshness::Base),
        other => Err(unknown("freshness", other, "base, indexed, realtime")),
    }
}

/// `all`, `all_but:K` or `adaptive`, for a corpus of `shards`.
pub fn completion(word: &str, shards: usize) -> Result<v1::Completion, Failure> {
    let mode = |mode: completion::Mode| v1::Completion { mode: mode as i32, ..Default::default() };
    match word.split_once(':') {
        None if word.is_empty() || word == "adaptive" => Ok(mode(completion::Mode::Adaptive)),
        None if word == "all" => Ok(mode(completion::Mode::All)),
        Some(("all_but", number)) => {
            let most = shards.saturating_sub(1) as u64;
            let missing: u32 = number
                .parse()
                .map_err(|_| Failure::invalid("completion", "write all_but:K with a whole number K"))?;
            if u64::from(missing) > most {
                let message = format!(
                    "completion all_but:{missing}: the corpus has {shards} shards, at most {most} may be missing"
                );
                return Err(Failure::invalid("completion", message).with_limit(most));
            }
            Ok(v1::Completion { all_but: missing, ..mode(completion::Mode::AllBut) })
        }
        _ => Err(unknown("completion", word, "all, all_but:K, adaptive")),
    }
}

/// How the search hedges; `None`: as the tree is configured. Modes that multiply the load are refused unless operators'
/// parameters are enabled.
pub fn hedge(word: &str, operators: bool) -> Result<Option<v1::HedgeMode>, Failure> {
    if word.is_empty() {
        return Ok(None);
    }
    let mode: HedgeMode = word.parse().map_err(|why: String| Failure::invalid("hedge", why))?;
    if mode.for_operators() && !operators {
        let message = format!(
            "hedge {mode} is for operators; set operator_parameters in [root], or use hedge=auto or hedge=off"
        );
        return Err(not_enabled("hedge", &message));
    }
    Ok(Some(mode.to_wire()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::error::ErrorClass;

    #[test]
    fn every_word_of_the_contract_is_read() {
        assert!(["", "exact", "bounded", "none"].iter().all(|word| total(word).is_ok()));
        assert!(["", "base", "indexed", "realtime"].iter().all(|word| freshness(word).is_ok()));
        assert!(["", "interactive", "batch"].iter().all(|word| priority(word).is_ok()));
        assert!(
            ["", "all", "adaptive", "all_but:0", "all_but:3"].iter().all(|word| completion(word, 4).is_ok())
        );
        assert_eq!(completion("all_but:2", 4).unwrap().all_but, 2);
        assert_eq!(hedge("", false), Ok(None));
        for word in ["off", "auto"] {
            assert_eq!(hedge(word, false), Ok(Some(word.parse::<HedgeMode>().unwrap().to_wire())), "{word}");
        }
        for word in ["delay:5", "quantile:0.95", "tied", "factor:2"] {
            assert_eq!(hedge(word, false).unwrap_err().class, ErrorClass::FailedPrecondition, "{word}");
            assert_eq!(hedge(word, true), Ok(Some(word.parse::<HedgeMode>().unwrap().to_wire())), "{word}");
        }
    }

    #[test]
    fn other_words_are_answered_with_the_known_ones() {
        assert!(total("all").unwrap_err().message.contains("exact, bounded, none"));
        for word in ["all_but:", "all_but:4", "all_but:-1", "most", "all:1"] {
            assert_eq!(completion(word, 4).unwrap_err().field.as_deref(), Some("completion"), "{word}");
        }
        for word in ["fast", "delay", "delay:0", "quantile:2", "factor:9"] {
            assert_eq!(hedge(word, true).unwrap_err().class, ErrorClass::InvalidArgument, "{word}");
        }
        let long = priority(&"é".repeat(5000)).unwrap_err().message;
        assert!(long.len() < 300);
    }
}
