//! Everything between a role and the wire: the two layer lists (client, server), the one mapping of error classes to
//! gRPC status, channel and message limits.

pub mod status;
