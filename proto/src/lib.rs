//! The wire: generated messages, the [`SearchNode`] interface that leaf and aggregator both serve, its adapters to
//! gRPC, validation of what comes in, and conversions to the vocabulary of `canopy-common`.

pub mod client;
pub mod convert;
pub mod node;
pub mod server;
pub mod topology_peer;
pub mod validate;

pub use node::{ReplyStream, SearchNode};

/// Generated from `protos/canopy/search/v1`.
#[expect(missing_docs, clippy::pedantic, reason = "generated; documented in the protos")]
pub mod v1 {
    tonic::include_proto!("canopy.search.v1");
}

/// Generated from `protos/canopy/topology/v1`.
#[expect(missing_docs, clippy::pedantic, reason = "generated; documented in the protos")]
pub mod topology {
    tonic::include_proto!("canopy.topology.v1");
}

/// Generated from `protos/canopy/ingest/v1`.
#[expect(missing_docs, clippy::pedantic, reason = "generated; documented in the protos")]
pub mod ingest {
    tonic::include_proto!("canopy.ingest.v1");
}

/// Encoded descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
