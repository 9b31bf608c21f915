//! Properties of the gather engine over random trees, requests and faults: more than 10,000 patterns a run. A failing
//! pattern is printed whole and shrunk; `PROPTEST_CASES` raises the numbers.

mod account;
mod killed;
mod merge;
mod patterns;
