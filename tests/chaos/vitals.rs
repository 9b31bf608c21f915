//! What a process takes of the machine, by `/proc`.

use std::{fs, path::Path};

use canopy_tests::process::Fleet;

/// What one process takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// Files and sockets that are open.
    pub handles: usize,
    /// Memory that is no file's, KiB.
    pub own_kib: u64,
    /// Mapped files.
    pub mapped: usize,
    /// Mapped files that were deleted.
    pub deleted: usize,
    /// Lines of `/metrics` with a value.
    pub series: usize,
}

impl Vitals {
    /// Of a node.
    pub async fn of(fleet: &Fleet, id: &str) -> Self {
        let metrics = fleet.admin(id).get("/metrics").await.body;
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let proc = Path::new("/proc").join(fleet.pid(id).to_string());
        let text = |name: &str| fs::read_to_string(proc.join(name)).expect("a process of ours");
        let own = text("status")
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        let maps = text("maps");
        // Of the cache of shards; the binary itself may be built anew while it runs.
        let files = maps.lines().filter(|line| line.contains("/shards/"));
        Self {
            handles: fs::read_dir(proc.join("fd")).expect("a process of ours").count(),
            own_kib: own.expect("RssAnon"),
            mapped: files.clone().count(),
            deleted: files.filter(|line| line.ends_with("(deleted)")).count(),
            series: metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count(),
        }
    }
}

/// Versions of which a leaf that copies has files.
pub fn versions(fleet: &Fleet, id: &str) -> Vec<u64> {
    let at = fleet.dir().join("cache").join(id).join("corpora/web/versions");
    let entries = fs::read_dir(at).into_iter().flatten().flatten();
    let mut found: Vec<u64> =
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect();
    found.sort_unstable();
    found
}
