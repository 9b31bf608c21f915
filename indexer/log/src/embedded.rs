//! The engine in the process of the ingest.
