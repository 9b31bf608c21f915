//! The rollout of a version over the replicas of a corpus: `step(state, event) -> (state, effects)`.
//!
//! ```text
//! stage -> shadow -> canary 1 % -> 10 % -> 50 % -> full -> retain -> (ended: serving)
//!   |         |          |   pause, halt at any of these: it stays where it is, and goes on by resume
//!   +---------+----------+--------------> rolling back -> (ended: rolled back, failed, aborted, superseded)
//! ```
//!
//! A bad version must not reach everybody before anybody notices, and must be gone in a second when it is noticed.
//! So it is loaded beside the old one row by row (a row: one replica of every shard), gets a growing share of the queries,
//! and is judged after each step; the old version stays resident everywhere until the new one has served for a while.
//! To turn back is to change the pins and nothing else.
//!
//! Rules:
//! * Queries go to the new version only while every ready root holds its statistics and every shard has a replica of it;
//!   above 1 % only when every shard has two (a shard with a single replica: its only one, and the dry run warns).
//! * Of no shard are more than `max_unavailable` replicas on leaves that load, and never all of them.
//! * A soft breach halts, a hard breach turns back, also while paused. A halt that nobody ends turns back by itself.
//! * A replica that can't load is passed over while three quarters of the rows, and two, can; then it halts. A version
//!   that no leaf can load (checksum, signature, format, schema) has failed at once.
//! * A later request supersedes one that answered no query yet, else it waits; of those that wait the last is kept.
//! * A rollback while the old version is held flips the pins. To a version that was dropped it is a rollout, step by step or
//!   at once. Without a version's name it undoes the last rollout, never a rollback.
//! * What is tried is judged as long as queries go to it, after its pass too.
//!
//! Everything is a value; the service stores the state, then does the effects.

mod advance;
mod command;
pub mod dry_run;
pub mod event;
pub mod load;
mod pace;
pub mod policy;
pub mod route;
pub mod seen;
pub mod state;
mod step;
mod waits;

pub use event::{Effect, Event, Verdict};
pub use policy::{Policy, Step};
pub use route::{Candidate, Route};
pub use seen::{Hold, Replica, Report};
pub use state::{Baseline, Outcome, Phase, State, Stop};
pub use step::step;

#[cfg(test)]
mod tests;
