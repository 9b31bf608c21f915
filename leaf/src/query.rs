//! From the query as it travels to what runs on a shard.
//!
//! One message is compiled once per shard into a [`Plan`]: fields resolved, weights computed from the request's
//! statistics. A plan then runs in one of two ways. [`matcher`] walks the postings document by document, asks the
//! clock as it goes, and scores in the canonical way; every shape of query can do that. [`pruned`] hands flat unions and
//! intersections of terms to the engine, which skips blocks of postings that can't reach the page; what it selects is
//! scored again by [`crate::rescore`]. Both give the same list to the bit.
//!
//! **The canonical score** of a document: the sum in double precision, over the scoring leaves that match it, in
//! preorder of the message (`must` before `should`; the tokens of a term in order; the alternatives of a phrase in
//! order), of `boost * idf * (k1+1) * tf / (tf + k1*(1-b+b*length/average))`, plus the static prior; rounded once to
//! single precision. A leaf counts when all the nodes above it match. `length` is the engine's one-byte length of the
//! field; `idf` and `average` are of the corpus, from the request.

pub mod anyof;
pub mod boolean;
pub mod compile;
pub mod fields;
pub mod interval;
pub mod matcher;
pub mod numbers;
pub mod phrase;
pub mod plan;
pub mod pruned;
pub mod range;
pub mod sets;
pub mod slop;
pub mod term;
pub mod window;

pub use compile::compile;
pub use matcher::Matcher;
pub use numbers::Numbers;
pub use plan::{Leaf, Node, Plan};
