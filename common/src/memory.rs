//! How much memory this process may still take: what the machine says is available, and what its control group leaves of its
//! limit, whichever is less. Memory that only caches files counts as available. Units: bytes.

use std::fs;

/// Bytes available; `None`: the system does not say.
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let group = read("memory.max")
        .zip(read("memory.current"))
        .and_then(|(max, current)| cgroup(&max, &current, &read("memory.stat").unwrap_or_default()));
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// `MemAvailable` of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Limit less use; file caches that can go at once are no use. `None`: no limit.
fn cgroup(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let caches = stat.lines().filter_map(|line| {
        let bytes = line.strip_prefix("inactive_file ").or_else(move || line.strip_prefix("active_file "))?;
        bytes.trim().parse::<u64>().ok()
    });
    Some(max.saturating_sub(current.saturating_sub(caches.sum())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(meminfo("MemTotal:  9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(meminfo("MemTotal: 9 kB\n"), None);
        assert_eq!(cgroup("1000\n", "800\n", "anon 1\ninactive_file 300\nactive_file 100\n"), Some(600));
        assert_eq!(cgroup("max\n", "800\n", ""), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
