//! Trees of real processes: one `canopy` binary per node, started from a configuration file, stopped by signals. What
//! they log is kept and shown when a test fails.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use canopy_cli::config::Config;
use canopy_common::net::NetIo;
use canopy_topology::config::{NodeConfig, Role};

use crate::{api::Api, cluster::Shape, proxy::Proxy, wait::wait_for};

/// Lines of a node's log that a failing test shows.
const TAIL: usize = 30;

/// What is done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Dies at once.
    Kill,
    /// Is asked to leave.
    Terminate,
    /// Stands still: its sockets stay open and nothing answers.
    Stop,
    /// Goes on.
    Continue,
    /// Reads its configuration again.
    Hangup,
}

/// The `canopy` binary of this build, built if it is not there or older than its sources.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "canopy-cli", "--bin", "canopy"]);
        if cfg!(feature = "etcd") {
            build.args(["--features", "etcd"]);
        }
        build.arg("--target-dir").arg(profile.parent().expect("target"));
        let name = profile.file_name().unwrap_or_default().to_string_lossy().into_owned();
        build.args(["--profile", if name == "debug" { "dev" } else { &name }]);
        build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"));
        let output = build.output().expect("cargo runs");
        assert!(
            output.status.success(),
            "canopy can't be built: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        profile.join("canopy")
    })
}

/// Returns once a stopped child stands: its threads go on for a moment after the signal was sent.
fn stands(pid: i32) {
    // SAFETY: the structure is written by the call and not read; the child was not waited for yet, so its id is its own.
    unsafe {
        let mut told: libc::siginfo_t = std::mem::zeroed();
        let waited = libc::waitid(
            libc::P_PID,
            pid.unsigned_abs(),
            &raw mut told,
            libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT,
        );
        assert_eq!(waited, 0, "{pid}: {}", std::io::Error::last_os_error());
    }
}

/// Runs a command of the binary to its end.
pub async fn run(arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let running = tokio::task::spawn_blocking(move || {
        Command::new(binary()).args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
    });
    running.await.expect("an output")
}

struct Process {
    child: Child,
    log: PathBuf,
}

/// A tree of processes. Dropped, all of them are killed.
pub struct Fleet {
    dir: tempfile::TempDir,
    config: Config,
    processes: BTreeMap<String, Process>,
}

/// Ports below those that the system gives to connections: else a connection of another test takes one before its node does.
const PORTS: std::ops::Range<u32> = 10_000..32_000;

/// Addresses of this machine that nobody listens on. None is given twice.
pub async fn free_addresses(count: usize) -> Vec<String> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let net = NetIo::tcp();
    let mut free = Vec::new();
    while free.len() < count {
        let turn = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(turn < PORTS.len() as u32, "no port is left");
        // Tests that run at the same time begin elsewhere.
        let offset = std::process::id().wrapping_mul(251).wrapping_add(turn) % PORTS.len() as u32;
        let address = format!("127.0.0.1:{}", PORTS.start + offset);
        if net.bind(&address).await.is_ok() {
            free.push(address);
        }
    }
    free
}

impl Fleet {
    /// Starts a tree over `store` and waits until every node would answer. `adjust` may change the configuration.
    pub async fn start(
        store: &Path,
        shape: &Shape,
        corpora: &[(&str, u32)],
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut fleet = Self::prepare(store, shape, corpora, adjust).await;
        fleet.spawn_all();
        fleet.wait_all_ready().await;
        fleet
    }

    /// Starts every node.
    pub fn spawn_all(&mut self) {
        for node in self.config.topology.nodes.clone() {
            self.spawn(&node.id, &[]);
        }
    }

    /// Waits until every node would answer.
    pub async fn wait_all_ready(&mut self) {
        for node in self.config.topology.nodes.clone() {
            self.wait_ready(&node.id).await;
        }
    }

    /// The same without starting anything.
    pub async fn prepare(
        store: &Path,
        shape: &Shape,
        corpora: &[(&str, u32)],
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = shape.config(corpora);
        let mut free = free_addresses(2 * config.topology.nodes.len()).await.into_iter();
        for node in &mut config.topology.nodes {
            node.address = free.next().expect("as many as nodes");
            node.admin = free.next().expect("as many as nodes");
        }
        config.store.url = store.to_string_lossy().into_owned();
        adjust(&mut config);
        let dir = tempfile::Builder::new().prefix("canopy-fleet-").tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("canopy.toml"), text(&config)).expect("written");
        Self { dir, config, processes: BTreeMap::new() }
    }

    /// Puts a proxy in front of a node that does not run yet: the others reach it only through that.
    pub async fn behind_proxy(&mut self, id: &str) -> Proxy {
        let dir = self.dir.path();
        std::fs::write(dir.join(format!("{id}.toml")), text(&self.config)).expect("written");
        let node = self.config.topology.nodes.iter_mut().find(|node| node.id == id);
        let node = node.unwrap_or_else(|| panic!("no node {id}"));
        let proxy = Proxy::to(&node.address, 1).await;
        node.address.clone_from(&proxy.address);
        std::fs::write(dir.join("canopy.toml"), text(&self.config)).expect("written");
        proxy
    }

    /// Starts a node; `set` overrides values of its configuration.
    pub fn spawn(&mut self, id: &str, set: &[String]) {
        let role = self.node(id).role.as_str();
        let log = self.dir.path().join(format!("{id}.log"));
        let out = File::options().create(true).append(true).open(&log).expect("a log");
        let mut command = Command::new(binary());
        let own = self.dir.path().join(format!("{id}.toml"));
        let file = if own.exists() { own } else { self.config_file() };
        command.arg(role).arg("-c").arg(file).args(["--node", id]);
        for assignment in set {
            command.args(["--set", assignment]);
        }
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a log")).stderr(out);
        command.current_dir(self.dir.path());
        let child = command.spawn().expect("the binary starts");
        self.processes.insert(id.to_owned(), Process { child, log });
    }

    /// Waits until a node would answer.
    pub async fn wait_ready(&mut self, id: &str) {
        let api = self.admin(id);
        let process = self.processes.get_mut(id).expect("a started node");
        let ended = || process.child.try_wait().expect("a child");
        let mut ended = ended;
        wait_for(&format!("{id} to be ready"), Duration::from_mins(3), || {
            let gone = ended();
            assert!(gone.is_none(), "{id} ended: {gone:?}");
            let api = api.clone();
            async move { (api.try_get("/healthz/ready").await?.status == 200).then_some(()) }
        })
        .await;
    }

    /// A node of the topology.
    pub fn node(&self, id: &str) -> &NodeConfig {
        self.config.topology.nodes.iter().find(|node| node.id == id).unwrap_or_else(|| panic!("no node {id}"))
    }

    /// The admin pages of a node; the whole API for a root.
    pub fn admin(&self, id: &str) -> Api {
        Api::new(&self.node(id).admin)
    }

    /// The API of the first root.
    pub fn root(&self) -> Api {
        let root = self.config.topology.nodes.iter().find(|node| node.role == Role::Root).expect("a root");
        Api::new(&root.admin)
    }

    /// Where its processes run.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id of a running node.
    pub fn pid(&self, id: &str) -> u32 {
        self.processes.get(id).unwrap_or_else(|| panic!("{id} does not run")).child.id()
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("canopy.toml")
    }

    /// Sends a signal to a node.
    pub fn signal(&mut self, id: &str, signal: Signal) {
        let process = self.processes.get_mut(id).unwrap_or_else(|| panic!("{id} does not run"));
        let number = match signal {
            Signal::Kill => libc::SIGKILL,
            Signal::Terminate => libc::SIGTERM,
            Signal::Stop => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
            Signal::Hangup => libc::SIGHUP,
        };
        let pid = i32::try_from(process.child.id()).expect("a process id");
        // SAFETY: kill has no memory effects; the child was not waited for yet, so its id is its own.
        let sent = unsafe { libc::kill(pid, number) };
        assert_eq!(sent, 0, "{signal:?} to {id}: {}", std::io::Error::last_os_error());
        if signal == Signal::Stop {
            stands(pid);
        }
    }

    /// Waits for a node to end.
    pub async fn ended(&mut self, id: &str) -> ExitStatus {
        wait_for(&format!("{id} to end"), Duration::from_mins(2), || {
            let ended = self.try_ended(id);
            async move { ended }
        })
        .await
    }

    /// How a node ended, when it has.
    pub fn try_ended(&mut self, id: &str) -> Option<ExitStatus> {
        let process = self.processes.get_mut(id).unwrap_or_else(|| panic!("{id} does not run"));
        let ended = process.child.try_wait().expect("a child");
        if ended.is_some() {
            self.processes.remove(id);
        }
        ended
    }

    /// What a node logged.
    pub fn log(&self, id: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{id}.log"))).unwrap_or_default()
    }
}

/// The parts of a configuration that a fleet sets, as a file. Values that are the defaults stay out.
fn text(config: &Config) -> String {
    fn section<T: serde::Serialize + Default>(name: &str, value: &T, out: &mut toml::Table) {
        let table = |value: &T| toml::Table::try_from(value).expect("a section");
        let defaults = table(&T::default());
        let mut changed = table(value);
        changed.retain(|key, value| defaults.get(key) != Some(value));
        if !changed.is_empty() {
            out.insert(name.to_owned(), toml::Value::Table(changed));
        }
    }
    let mut out = toml::Table::new();
    section("telemetry", &config.telemetry, &mut out);
    section("rpc", &config.rpc, &mut out);
    section("store", &config.store, &mut out);
    section("topology", &config.topology, &mut out);
    section("root", &config.root, &mut out);
    section("gather", &config.gather, &mut out);
    section("aggregator", &config.aggregator, &mut out);
    section("leaf", &config.leaf, &mut out);
    section("ingest", &config.ingest, &mut out);
    out.to_string()
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (id, process) in &mut self.processes {
            let _it_may_have_ended = process.child.kill();
            let _it_may_have_ended = process.child.wait();
            if std::thread::panicking() {
                let log = std::fs::read_to_string(&process.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!(
                    "--- {id}, last lines of its log\n{}",
                    lines[lines.len().saturating_sub(TAIL)..].join("\n")
                );
            }
        }
    }
}
