//! What a role needs from outside, handed to its `serve(config, deps, drain)`: production passes the real things, tests
//! pass a simulated network, a set clock and seeded dice.

use std::sync::Arc;

use crate::{clock::WallClock, net::NetIo, rng::Dice, telemetry::Telemetry};

/// Clock, dice, network, telemetry. Cloning shares them.
#[derive(Clone)]
pub struct Deps {
    /// The network.
    pub net: NetIo,
    /// Wall time.
    pub clock: Arc<dyn WallClock>,
    /// Random numbers.
    pub dice: Dice,
    /// Metrics and slow-query ring of this process.
    pub telemetry: Telemetry,
}
