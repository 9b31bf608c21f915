//! The engine over NATS JetStream.
