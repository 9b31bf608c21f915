//! Production aggregators over a simulated network with model leaves.
