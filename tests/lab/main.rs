//! The labs: first that they measure right (what has an exact value comes out as it), then what the engine makes of the
//! tail. In short form 5,000 queries an arm (fewer where leaves queue) and wide bounds; in long form 50,000 and the
//! bounds that are claimed.

mod hedged;
mod measuring;
mod overload;
mod queues;
mod rollout;
mod safety;
mod seeds;
