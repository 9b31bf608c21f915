//! The settings that a query runs under: those of its corpus, as they were when it began. What a corpus has of its own is
//! laid over `[gather]` once for each reload, not for each query.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use canopy_common::config::Live;

use crate::config::GatherConfig;

/// Settings by corpus.
pub struct Policies {
    live: Live<GatherConfig>,
    made: ArcSwap<Made>,
}

/// What was made of `from`.
struct Made {
    from: Arc<GatherConfig>,
    corpora: BTreeMap<String, Arc<GatherConfig>>,
}

impl Made {
    fn of(from: Arc<GatherConfig>) -> Self {
        let corpora = from.for_corpora().into_iter().map(|(corpus, config)| (corpus, Arc::new(config)));
        Self { corpora: corpora.collect(), from }
    }

    fn get(&self, corpus: &str) -> Arc<GatherConfig> {
        self.corpora.get(corpus).unwrap_or(&self.from).clone()
    }
}

impl Policies {
    /// Those of a configuration that may change.
    pub fn new(live: Live<GatherConfig>) -> Self {
        Self { made: ArcSwap::from_pointee(Made::of(live.get())), live }
    }

    /// The settings of a corpus now.
    pub fn of(&self, corpus: &str) -> Arc<GatherConfig> {
        let (live, made) = (self.live.get(), self.made.load());
        if Arc::ptr_eq(&live, &made.from) {
            return made.get(corpus);
        }
        let made = Made::of(live);
        let config = made.get(corpus);
        self.made.store(Arc::new(made));
        config
    }

    /// What single corpora have of their own, for status pages.
    pub fn status(&self) -> serde_json::Value {
        let corpora = self.live.get().for_corpora().into_iter().map(|(corpus, config)| {
            let told = serde_json::json!({
                "hedge": config.hedge.to_string(),
                "extra_work": config.extra_work,
                "enough_coverage": config.enough_coverage,
            });
            (corpus, told)
        });
        corpora.collect::<serde_json::Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hedge::HedgeMode;
    use serde_json::json;

    fn settings(value: serde_json::Value) -> GatherConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_reload_reaches_the_next_query_of_each_corpus() {
        let live = Live::from(settings(json!({ "corpora": { "news": { "hedge": "off" } } })));
        let policies = Policies::new(live.clone());
        let modes = || ["news", "web"].map(|corpus| policies.of(corpus).hedge);
        assert_eq!(modes(), [HedgeMode::Off, HedgeMode::Auto]);
        let before = policies.of("news");
        live.set(settings(json!({ "hedge": "tied", "corpora": { "web": { "extra_work": 0.5 } } })));
        assert_eq!(modes(), [HedgeMode::Tied, HedgeMode::Tied]);
        assert_eq!(["news", "web"].map(|corpus| policies.of(corpus).extra_work), [0.05, 0.5]);
        assert_eq!(before.hedge, HedgeMode::Off);
        assert_eq!(policies.status()["web"]["extra_work"], 0.5);
    }
}
