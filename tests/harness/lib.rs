//! The harness: what tests of several crates share.

pub mod api;
pub mod cluster;
pub mod corpus;
pub mod etcd;
pub mod faulty_net;
pub mod form;
pub mod invariants;
pub mod model_corpus;
pub mod model_leaf;
pub mod model_tree;
pub mod oracle;
pub mod process;
pub mod proxy;
pub mod publish;
pub mod s3;
pub mod sim_net;
pub mod sim_root;
pub mod sim_tree;
pub mod vocabulary;
pub mod wait;
