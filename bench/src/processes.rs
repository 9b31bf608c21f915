//! A tree of real processes, for benchmarks that tell the CPU time of one role from that of another: the kernel counts it
//! per process, and nothing inside a shared process can.
//!
//! The binary is the `canopy` beside the benchmark's own, so both are of one build. Ports are asked of the kernel and
//! given back before the processes start; a taken one shows as a process that ends, which is an error here.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use canopy_cli::http::Client;
use canopy_common::net::NetIo;
use canopy_topology::config::{Role, TopologyConfig};

/// How long a tree may take to open its shards.
const PATIENCE: Duration = Duration::from_mins(5);

/// One running role.
pub struct Process {
    /// Its name in the topology.
    pub node: String,
    child: Child,
}

/// A running tree. Dropping it ends the processes.
pub struct Processes {
    /// With the ports it listens on.
    pub topology: TopologyConfig,
    processes: Vec<Process>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Process {
    /// CPU time since the process began, threads that ended included.
    pub fn cpu(&self) -> Duration {
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both calls only write to the variables they are given, which outlive them.
        let failed = unsafe {
            libc::clock_getcpuclockid(self.child.id() as libc::pid_t, &raw mut clock) != 0
                || libc::clock_gettime(clock, &raw mut time) != 0
        };
        if failed {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    }
}

/// The `canopy` of this build.
fn binary() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("canopy");
    ensure!(
        path.exists(),
        "{} is missing; build it with the same profile: cargo build -p canopy-cli",
        path.display()
    );
    Ok(path)
}

impl Processes {
    /// Starts one process per node of `topology`, whose ports are replaced by free ones, over the store in `dir`.
    pub async fn start(dir: &Path, name: &str, mut topology: TopologyConfig) -> Result<Self> {
        let mut held = Vec::new();
        for node in &mut topology.nodes {
            for address in [&mut node.address, &mut node.admin] {
                #[expect(clippy::disallowed_methods, reason = "a free port for another process")]
                let listener = TcpListener::bind("127.0.0.1:0")?;
                *address = listener.local_addr()?.to_string();
                held.push(listener);
            }
        }
        drop(held);
        let file = dir.join(format!("{name}.toml"));
        let store = dir.join("store").display().to_string();
        let cache = dir.join("cache").display().to_string();
        let config = serde_json::json!({
            "store": { "url": store }, "root": { "cache_dir": cache }, "topology": topology,
        });
        std::fs::write(&file, toml::to_string(&config)?)?;
        let mut processes = Vec::new();
        for node in &topology.nodes {
            let log = std::fs::File::create(dir.join(format!("{name}-{}.log", node.id)))?;
            let child = Command::new(binary()?)
                .args([node.role.as_str(), "--config"])
                .arg(&file)
                .args(["--node", &node.id])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()?;
            processes.push(Process { node: node.id.clone(), child });
        }
        let mut tree = Self { topology, processes };
        tree.wait_ready().await?;
        Ok(tree)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        for (node, process) in self.topology.nodes.iter().zip(&mut self.processes) {
            let client = Client::new(NetIo::tcp(), &node.admin, Duration::from_secs(5));
            let ready = client.wait_ready(PATIENCE);
            tokio::pin!(ready);
            loop {
                tokio::select! {
                    biased;
                    ready = &mut ready => break ready.with_context(|| node.id.clone())?,
                    () = tokio::time::sleep(Duration::from_millis(200)) => {}
                }
                if let Some(status) = process.child.try_wait()? {
                    bail!("{} ended: {status}; its log lies beside the store", node.id);
                }
            }
        }
        Ok(())
    }

    /// The first process of a role.
    pub fn one(&self, role: Role) -> Result<&Process> {
        let nodes = self.topology.nodes.iter().zip(&self.processes);
        nodes.into_iter().find(|(node, _)| node.role == role).map(|(_, process)| process).context("a process")
    }

    /// (gRPC, HTTP) address of the first node of a role.
    pub fn address(&self, role: Role) -> Result<(&str, &str)> {
        let node = self.topology.nodes.iter().find(|node| node.role == role).context("a node")?;
        Ok((&node.address, &node.admin))
    }

    /// CPU time of all processes of a role.
    pub fn cpu(&self, role: Role) -> Duration {
        let nodes = self.topology.nodes.iter().zip(&self.processes);
        nodes.filter(|(node, _)| node.role == role).map(|(_, process)| process.cpu()).sum()
    }
}
