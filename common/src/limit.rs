//! How much to take on: the parts of admission that leaf, aggregator and root share.
//!
//! [`gradient`] decides how many calls may run at once, [`pressure`] whether a queue stands, [`times`] how long a call
//! takes, [`admission`] puts the first and the last around the calls of a node, and [`gate`] adds a small queue before
//! them. The first three are plain values: numbers and `now` in, a decision out. Rule: whatever is refused is refused
//! before any work, at once, and says how long to stay away.

pub mod admission;
pub mod gate;
pub mod gradient;
pub mod metrics;
pub mod pressure;
pub mod times;

pub use admission::{Admission, Place, Refusal};
pub use gate::{Gate, Pass};
pub use gradient::{Bounds, Gradient};
pub use metrics::AdmissionMetrics;
pub use pressure::{Pressure, bearable};
pub use times::Times;
