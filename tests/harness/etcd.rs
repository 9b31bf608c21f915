//! A real etcd server for tests: one member, its data in a directory of its own, on free ports of the loopback interface. It can
//! be killed and started again over the same data. A machine without the server fails the test: what is claimed of etcd is
//! claimed of a real one.

use std::{
    fs::File,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{api::Api, process::free_addresses, wait::wait_for};

/// A server. Dropped, it is killed.
pub struct Etcd {
    dir: tempfile::TempDir,
    client: String,
    peer: String,
    child: Option<Child>,
}

impl Etcd {
    /// Starts one and waits until it answers.
    pub async fn start() -> Self {
        let mut free = free_addresses(2).await.into_iter();
        let mut address = || free.next().expect("an address");
        let dir = tempfile::Builder::new().prefix("canopy-etcd-").tempdir().expect("a temporary directory");
        let mut etcd = Self { dir, client: address(), peer: address(), child: None };
        etcd.run().await;
        etcd
    }

    /// Starts it again over what it stored.
    pub async fn run(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let log = self.dir.path().join("log");
        let out = File::options().create(true).append(true).open(&log).expect("a log");
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--initial-cluster", &format!("one={peer}")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--data-dir").arg(self.dir.path().join("data"));
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a log")).stderr(out);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("no etcd server: {error}; install etcd-server, as tests/run.sh does")
        });
        self.child = Some(child);
        let api = Api::new(&self.client);
        let child = self.child.as_mut();
        let mut ended = child.map(|child| move || child.try_wait().expect("a child"));
        wait_for("etcd to answer", Duration::from_mins(1), || {
            let gone = ended.as_mut().and_then(|ended| ended());
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(gone.is_none(), "etcd ended: {gone:?}: {said}");
            let api = api.clone();
            async move { (api.try_get("/health").await?.status == 200).then_some(()) }
        })
        .await;
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _it_may_have_ended = child.kill();
            let _it_may_have_ended = child.wait();
        }
    }

    /// `host:port` for clients.
    pub fn address(&self) -> &str {
        &self.client
    }

    /// The store of a topology service, with a prefix.
    pub fn store(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.client)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
