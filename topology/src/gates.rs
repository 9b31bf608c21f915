//! Is the new version worse than the one that serves? Two arms of equal samples, judged metric by metric.
//!
//! A canary that is watched by eye finds what everybody would find. What slips through is the rest: one per cent of
//! queries that hang (no rank test sees them), a field that is no longer found (errors are zero, latencies are better).
//! And a canary that cries wolf is switched off. So every metric has a test that sees its kind of fault, a limit below
//! which a difference does not matter, and a share of one budget of false alarms.
//!
//! All are values: what was seen in, a judgement with its numbers out.

pub mod agreement;
mod gate;
pub mod judge;
pub mod judged;
pub mod latencies;
mod normal;
pub mod policy;
pub mod rank;
pub mod share;
pub mod spending;
pub mod wire;

pub use gate::{Gate, Kept};
pub use judge::{Arm, Comparison, Finding, Judgement};
pub(crate) use normal::upper_tail;
pub use policy::{GatePolicy, Limits};
pub use spending::Spending;

#[cfg(test)]
mod tests;
