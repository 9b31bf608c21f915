//! Chaos: real processes that are frozen, killed, asked to leave or given damaged files, while queries go on. Figures are
//! printed; the bounds asserted are wider, because they must hold on a loaded machine.

mod canary;
mod cut_off;
mod damage;
mod down;
mod frozen;
mod gone;
mod kills;
mod leave;
mod load;
mod loss;
mod operators;
mod placing;
mod policies;
mod quickstart;
mod rollbacks;
mod rolling;
mod served;
#[cfg(feature = "etcd")]
mod several;
mod stage;
mod swap;
mod swaps;
mod vitals;
mod wire;
