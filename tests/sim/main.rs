//! Production aggregators and the root's engine over a simulated network and clock, with model leaves: partitions,
//! stalls, crashes and drains, each from a seed. A failure prints the seed; `SIM_SEED=n` runs that one alone,
//! `SIM_SEEDS=n` that many.

mod calm;
mod crash;
mod determinism;
mod extra_work;
mod network;
mod newer;
mod root;
mod seeds;
