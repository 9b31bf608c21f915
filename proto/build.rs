//! Compiles the protos in pure Rust: no protoc needs to be installed.
use std::{env, error::Error, fs, path::PathBuf};

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script by environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let files = [
        "canopy/search/v1/query.proto",
        "canopy/search/v1/node.proto",
        "canopy/search/v1/public.proto",
        "canopy/topology/v1/topology.proto",
        "canopy/ingest/v1/ingest.proto",
    ];
    let descriptors = protox::compile(files, ["protos"])?;
    fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".canopy.topology.v1.RoutingUpdate.document")
        .btree_map(".canopy.topology.v1.JudgedQuery.gains")
        .btree_map(".canopy.topology.v1.StartRollout.shards")
        .bytes(".canopy.search.v1.SearchRequest.query_id")
        .bytes(".canopy.ingest.v1")
        .compile_fds(descriptors)?;
    Ok(())
}
