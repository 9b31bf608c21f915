//! Configuration: one typed TOML file with a section per role; every value has a unit, a default and a bound. Order:
//! default < file < `CANOPY__LEAF__THREADS` < `--set leaf.threads=8`. Unknown keys and nonsense are refused with all
//! problems listed, and every value knows where it came from.

pub mod layers;
pub mod live;
pub mod overrides;
pub mod secret;
pub mod shape;
pub mod units;
pub mod who;

pub use layers::{Layers, Origin, Problem, Section, settings};
pub use live::Live;
pub use overrides::Overrides;
pub use secret::Secret;
pub use shape::Checked;
pub use units::{Size, Time};
pub use who::user_and_machine;
