//! Properties of the gather engine over random trees, requests and faults: more than 10,000 patterns a run. A failing
//! pattern is printed whole and shrunk; `PROPTEST_CASES` sets the number of patterns of each.

mod account;
mod killed;
mod merge;
mod patterns;
mod stores;
