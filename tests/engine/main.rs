//! The scatter-gather engine on in-process model leaves under paused time: what it does when leaves are late, fail, lie
//! or vanish, and when the caller leaves. No sockets, no waiting: minutes of model time take milliseconds, and a sleep
//! sets an instant on that clock (when a caller comes or leaves). One module, `service`, serves an aggregator over real
//! sockets.

mod cancel;
mod connections;
mod deadline;
mod eject;
mod fetch;
mod hedge;
mod hedge_auto;
mod levels;
mod lies;
mod memory;
mod narrow;
mod newer;
mod pick;
mod retry;
mod service;
mod tied;
mod versions;
