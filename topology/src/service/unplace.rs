//! A corpus that is placed nowhere any more: its name was mistyped, or it never got a version.
//!
//! The failure this prevents: what was placed once by mistake stays for ever, and every root tells of it. Rule: one that answers is
//! not let go of, since nodes could not tell the order from a service that lost its store and would keep on as they are.

use super::control::Control;
use crate::error::{Error, Result};

impl Control {
    /// Forgets a corpus and its placement. Errors: it is not placed, is in the configuration, answers or is rolled out.
    pub fn unplace(&mut self, corpus: &str, by: &str) -> Result<Vec<String>> {
        if let Some(reason) = self.needs(corpus)? {
            return Err(Error::Refused(format!("{corpus}: {reason}")));
        }
        self.desired.corpora.remove(corpus);
        self.desired.placings.remove(corpus);
        self.desired.gates.remove(corpus);
        self.sizes.retain(|shard, _| *shard.corpus != *corpus);
        let done = format!("{by} places {corpus} nowhere any more");
        self.note_audit(done.clone());
        self.refresh();
        Ok(vec![done])
    }

    /// Why a corpus stays.
    fn needs(&self, corpus: &str) -> Result<Option<String>> {
        let state = self.known(corpus)?;
        Ok(if self.configured.contains(corpus) {
            let out = "its placement is in the configuration of the topology service: take it out of [[topology.placements]] \
                       there and restart the service first";
            Some(out.to_owned())
        } else if let Some(live) = state.live {
            Some(format!(
                "{live} answers its queries; only a corpus of which no version answers is let go of"
            ))
        } else if state.active.is_some() || state.waiting.is_some() {
            Some(format!(
                "a rollout is under way; give it up and wait until it has ended: canopy rollout abort --corpus {corpus}"
            ))
        } else {
            let held = self.said_of(corpus).placed.len();
            (held > 0).then(|| {
                format!(
                    "leaves hold {held} shards of it, and queries are answered from them; if this service has lost its store, place it \
                     as it is and start a rollout of what serves: canopy topology place --corpus {corpus}"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::{Epoch, Version};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        rollout::{Event, Policy, State},
        service::{desired::Desired, placing::Placing},
    };

    #[test]
    fn a_corpus_that_nobody_meant_is_let_go_of_and_one_that_answers_is_not() {
        let corpora =
            [("web", State::serving(Version(1))), ("nope", State::default()), ("new", State::default())];
        let desired = Desired {
            corpora: corpora.map(|(name, state)| (name.to_owned(), state)).into(),
            placings: [("nope".to_owned(), Placing::default())].into(),
            ..Desired::default()
        };
        let mut control = Control::new(desired, Epoch(1), Instant::now());
        let start =
            Event::Start { to: Version(1), by: "ann".into(), policy: Policy::default(), supersede: false };
        control.command("new", start).unwrap();
        let epoch = control.snapshot().epoch;
        assert!(control.snapshot().corpora.contains_key("nope"));
        assert_eq!(control.unplace("nope", "ann").unwrap(), ["ann places nope nowhere any more"]);
        assert!(!control.snapshot().corpora.contains_key("nope") && control.snapshot().epoch > epoch);
        assert!(control.desired().placings.is_empty());
        for (corpus, reason) in
            [("nope", "is not placed"), ("web", "v1 answers its queries"), ("new", "canopy rollout abort")]
        {
            let error = control.unplace(corpus, "ann").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(control.desired().corpora.len(), 2);
    }
}
