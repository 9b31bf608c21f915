//! What people ask for: start, abort, withdraw, rollback ([`super::pace`] has the rest). A command that can't be done is
//! refused with what to do instead; one that is done already changes nothing. A kill switch is a rollback of every corpus.

use canopy_common::ids::Version;

use super::{
    event::Effect,
    pace::NOTHING,
    policy::Policy,
    state::{Outcome, Phase, Request, Rollout, State},
    step::Turn,
};
use crate::span;

/// What whoever asks for a rollback named: where to go, what he saw come or serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Asked {
    pub to: Option<Version>,
    pub from: Option<Version>,
}

/// Versions that are being removed at a time at most.
const MOST_REMOVING: usize = 1_000;

impl Turn {
    pub(super) fn start(&mut self, to: Version, by: String, policy: Policy, supersede: bool) {
        let problems = policy.problems();
        if !problems.is_empty() {
            let list: Vec<String> = problems.iter().map(|(key, reason)| format!("{key}: {reason}")).collect();
            return self.refuse(format!("the policy is not valid: {}", list.join("; ")));
        }
        if to.0 == 0 {
            return self.refuse("v0 is no version; versions are numbered from 1");
        }
        let active = self.state.active.as_ref();
        let back = active.is_some_and(|active| matches!(active.phase, Phase::Back { .. }));
        if let Some(active) = active.filter(|active| active.request.to == to && !back) {
            if policy.is_at_once() {
                return self.hurry(&by);
            }
            let (id, label) = (active.request.id, active.label());
            return self.audit(
                id,
                format!("{by}: {to} is rolled out already ({label}), by the plan it began with; nothing was changed"),
            );
        }
        if let Some(waiting) = self.state.waiting.as_mut().filter(|waiting| waiting.to == to && !supersede) {
            let id = waiting.id;
            if policy.is_at_once() && !waiting.policy.is_at_once() {
                waiting.policy = policy;
                return self.audit(id, format!("{by}: {to} goes without steps when its turn comes"));
            }
            return self.audit(id, format!("{by}: {to} waits already; nothing was changed"));
        }
        if self.state.removing.contains(&to) {
            return self.refuse(format!(
                "{to} is being taken out of the store by `canopy index gc`; when that was broken off run it again, and take another version"
            ));
        }
        if self.state.live == Some(to) {
            let hint = if active.is_some() { "; roll back to go on with it alone" } else { "" };
            return self.refuse(format!("{to} is live already{hint}"));
        }
        let retained = active.filter(|active| active.phase == Phase::Retain && active.from == Some(to));
        if retained.is_some() {
            return self.refuse(format!("{to} is still held; `canopy rollback` goes back to it in a second"));
        }
        self.queue(to, by, policy, supersede);
    }

    /// Puts a request behind the rollout under way, in its place, or at once.
    fn queue(&mut self, to: Version, by: String, policy: Policy, supersede: bool) {
        self.state.requests += 1;
        let request = Request { id: self.state.requests, to, by, policy, back: false };
        let (id, by) = (request.id, request.by.clone());
        if let Some(old) = self.state.waiting.replace(request) {
            self.remember(&old, None, Outcome::Superseded, format!("{to} was asked for by {by}"));
        }
        let Some(active) = &self.state.active else {
            return self.audit(id, format!("{by} starts a rollout to {to}"));
        };
        let (before, label) = (active.request.to, active.label());
        let reason = format!("{to} was asked for by {by}");
        match active.phase {
            Phase::Back { .. } => {
                self.audit(id, format!("{by}: {to} waits until {before} is gone ({label})"));
            }
            Phase::Retain if supersede => {
                self.audit(id, format!("{to} ends the retention of the version before {before}"));
                self.end(Outcome::Serving, &reason);
            }
            _ if !active.has_served() => {
                self.audit(id, format!("{to} supersedes {before}, which answered no query yet"));
                self.end(Outcome::Superseded, &reason);
            }
            _ if supersede => {
                self.audit(id, format!("{to} supersedes {before} ({label})"));
                self.turn_back(Outcome::Superseded, &reason);
            }
            Phase::Retain => {
                let from = active.from.map_or_else(|| "no version".to_owned(), |from| from.to_string());
                let left = active.left_ms().map_or_else(|| "0 s".to_owned(), span::words);
                self.audit(
                    id,
                    format!(
                        "{by}: {to} begins when the retention is over, in {left}: {before} serves, and {from} is held for a rollback; \
                         start it with --supersede to end that now, {before} serves on meanwhile"
                    ),
                );
            }
            _ => self.audit(
                id,
                format!(
                    "{by}: {to} waits behind {before} ({label}); start it with --supersede to turn back from that"
                ),
            ),
        }
    }

    pub(super) fn abort(&mut self, by: &str) {
        let Some(rollout) = &self.state.active else {
            return self.refuse(NOTHING);
        };
        let (id, label) = (rollout.request.id, rollout.label());
        match rollout.phase {
            Phase::Back { .. } => self.audit(id, format!("{by}: {label} already; nothing was changed")),
            Phase::Retain => {
                let to = rollout.request.to;
                self.refuse(format!("{to} is live already; `canopy rollback` goes back"));
            }
            _ => self.turn_back(Outcome::Aborted, &format!("aborted by {by}")),
        }
    }

    /// The one that waits ends before it began.
    pub(super) fn withdraw(&mut self, by: &str) {
        match self.state.waiting.take() {
            Some(waiting) => self.remember(&waiting, None, Outcome::Aborted, format!("withdrawn by {by}")),
            None => self.refuse("no rollout waits"),
        }
    }

    pub(super) fn rollback(&mut self, asked: Asked, by: String, reason: &str, policy: Policy) {
        let Asked { to, from } = asked;
        if let Err(reason) = self.state.turns_back(asked) {
            return self.refuse(reason);
        }
        let active = self.state.active.as_ref();
        if let Some(rollout) = active.filter(|rollout| rollout.request.back && asked == Asked::default()) {
            let (id, to, label) = (rollout.request.id, rollout.request.to, rollout.label());
            return self.audit(
                id,
                format!(
                    "{by}: a rollback to {to} is under way already ({label}); nothing was changed; to turn back from it: --from {}",
                    to.0
                ),
            );
        }
        if active.is_some_and(|rollout| to.is_none() || to == rollout.from) {
            return self.flip_back(&by, reason);
        }
        let to = match to.map_or_else(|| self.state.before(from), Ok) {
            Ok(to) if self.state.live == Some(to) => return self.refuse(format!("{to} is live already")),
            Ok(to) => to,
            Err(reason) => return self.refuse(reason),
        };
        // It was dropped: a rollout brings it back.
        let how = if policy.is_at_once() {
            "it takes all queries as soon as it is loaded"
        } else {
            "it is rolled out step by step; `canopy rollout resume --at-once` leaves the steps out"
        };
        let (said, why) = (self.notes.len(), format!("rolled back to by {by}: {reason}"));
        self.start(to, by, policy, true);
        let refused = self.notes[said..].iter().any(|note| matches!(note, Effect::Refused { .. }));
        let id = self.state.requests;
        if let Some(request) = self.state.waiting.as_mut().filter(|request| !refused && request.id == id) {
            request.back = true;
            self.audit(id, format!("{to} is not held any more, so {how} ({why})"));
        }
    }

    /// Whoever removes versions asks here first: from the answer on either nothing goes to it, or it stays.
    pub(super) fn release(&mut self, version: Version, by: &str) {
        if self.state.needed().contains(&version) {
            return self.refuse(format!("{version} serves, comes, or is what a rollback goes to"));
        }
        if self.state.removing.len() >= MOST_REMOVING && !self.state.removing.contains(&version) {
            return self
                .refuse(format!("{MOST_REMOVING} versions are being removed already, which is the limit; run `canopy index gc` again when they are gone"));
        }
        if self.state.removing.insert(version) {
            self.audit(0, format!("{by} takes {version} out of the store"));
        }
    }

    /// Back to what served before, which is resident still.
    fn flip_back(&mut self, by: &str, reason: &str) {
        let Some(rollout) = &self.state.active else { return };
        let why = format!("rolled back by {by}: {reason}");
        match (&rollout.phase, rollout.from) {
            (Phase::Back { .. }, _) => {
                let (id, label) = (rollout.request.id, rollout.label());
                self.audit(id, format!("{why}: {label} already; nothing was changed"));
            }
            (Phase::Retain, Some(from)) if !self.state.seen.answers(from) => {
                self.refuse(format!(
                    "{from} is not resident for every shard; wait until it is loaded again, or roll out another version"
                ));
            }
            (_, None) if matches!(rollout.phase, Phase::Retain) => {
                self.refuse("nothing served before; roll out another version");
            }
            _ => {
                if let Some(waiting) = self.state.waiting.take() {
                    self.remember(&waiting, None, Outcome::Aborted, why.clone());
                }
                self.turn_back(Outcome::RolledBack, &why);
            }
        }
    }

    /// No new query to the new version from now on.
    pub(super) fn turn_back(&mut self, outcome: Outcome, reason: &str) {
        let Some(rollout) = &mut self.state.active else { return };
        let (id, label) = (rollout.request.id, rollout.label());
        if !rollout.has_served() {
            return self.end(outcome, reason);
        }
        if matches!(rollout.phase, Phase::Retain) {
            self.state.live = rollout.from;
        }
        rollout.stop = None;
        let to = rollout.from.map_or_else(|| "nothing".to_owned(), |from| from.to_string());
        rollout.enter(Phase::Back { outcome, reason: reason.to_owned() });
        self.audit(id, format!("turns back to {to} ({label}): {reason}"));
    }

    /// Ends the rollout under way.
    pub(super) fn end(&mut self, outcome: Outcome, reason: &str) {
        let Some(Rollout { request, from, .. }) = self.state.active.take() else { return };
        self.remember(&request, from, outcome, reason.to_owned());
    }
}

impl State {
    /// Whether a rollback turns back what whoever asks for it saw. Errors: that is gone by now; or he named neither what he turns back
    /// from nor where to, and the last rollout was turned back already: he may mean that one, and would go one version too far.
    fn turns_back(&self, Asked { to, from }: Asked) -> Result<(), String> {
        let (coming, serves) = (self.active.as_ref(), self.live);
        let said =
            |version: Option<Version>| version.map_or_else(|| "no version".to_owned(), |it| it.to_string());
        match (from, coming) {
            (Some(from), Some(coming)) if from != coming.request.to => Err(format!(
                "{from} is not what a rollback turns back now: {} is under way ({}), and {} serves; nothing was changed",
                coming.request.to,
                coming.label(),
                said(serves)
            )),
            (Some(from), None) if Some(from) != serves => Err(format!(
                "{from} does not serve any more, and is not rolled out: {} serves; nothing was changed",
                said(serves)
            )),
            (None, None) if to.is_none() => match self.ended.last() {
                // One without a version before it never began.
                Some(last)
                    if last.from.is_some()
                        && !matches!(last.outcome, Outcome::Serving | Outcome::RolledBack) =>
                {
                    Err(format!(
                        "{} was turned back already ({}: {}), and {} serves; to turn back from that too name it: --from {}",
                        last.to,
                        last.outcome.as_str(),
                        last.reason,
                        said(serves),
                        serves.map_or(0, |it| it.0)
                    ))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// What served before `from`; else before the last rollout. Errors: it is not known; or the last one was a rollback itself, so
    /// that twice the same command would be back and forth.
    pub(super) fn before(&self, from: Option<Version>) -> Result<Version, String> {
        let mut ended = self.ended.iter().rev();
        if let Some(version) = from {
            let began = ended.find(|it| it.outcome == Outcome::Serving && it.to == version);
            let before = began.and_then(|it| it.from);
            return before.ok_or_else(|| format!("no version before {version} is known; name one with --to"));
        }
        let mut told = ended.filter(|it| matches!(it.outcome, Outcome::Serving | Outcome::RolledBack));
        let Some(last) = told.next() else {
            return Err("no version before this one is known; name one with --to".to_owned());
        };
        match (last.outcome, last.back, last.from) {
            (Outcome::Serving, false, Some(from)) => Ok(from),
            (Outcome::Serving, false, None) => {
                Err("it is the first version of the corpus; name another with --to".to_owned())
            }
            (Outcome::Serving, ..) => Err(format!(
                "the last rollout was a rollback to {} already; name the version that you want with --to, or turn back from it with \
                 --from {}",
                last.to, last.to.0
            )),
            _ => Err(format!(
                "{} was rolled back already; name the version that you want with --to, or the one to turn back from with --from",
                last.to
            )),
        }
    }
}
