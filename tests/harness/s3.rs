//! S3 for tests: a server in this process over a directory, which can go away, come back and count what is read of it; and, as a
//! second opinion, another program that speaks the same protocol (moto, from PyPI; `tests/run.sh` installs it).

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    config::{Secret, Time},
    net::NetIo,
};
use canopy_format::store::StoreConfig;
use futures::StreamExt;
use hyper::service::{Service, service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use tokio::{
    sync::Mutex,
    task::{JoinHandle, JoinSet},
};

use crate::{process::free_addresses, wait::wait_for};

/// The bucket of every server.
pub const BUCKET: &str = "search";
/// Keys that the servers take.
const KEYS: (&str, &str) = ("canopy-test-access", "canopy-test-secret-4711");

/// What was asked of a server.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads of files of shards.
    pub shards: AtomicU64,
    /// Everything.
    pub all: AtomicU64,
}

/// A server in this process. Dropped, it ends.
pub struct S3 {
    directory: tempfile::TempDir,
    address: String,
    serving: Option<JoinHandle<()>>,
    /// What was asked of it.
    pub counts: Arc<Counts>,
}

/// Settings of a store in the bucket of a server at `address`.
fn config(address: &str, prefix: &str) -> StoreConfig {
    StoreConfig {
        endpoint: format!("http://{address}"),
        allow_http: true,
        access_key: Secret::new(KEYS.0),
        secret_key: Secret::new(KEYS.1),
        connect_timeout: Time::ms(500),
        timeout: Time::ms(10_000),
        retries: 2,
        ..StoreConfig::at(&format!("s3://{BUCKET}/{prefix}"))
    }
}

impl S3 {
    /// A server with an empty bucket.
    pub async fn start() -> Self {
        let directory =
            tempfile::Builder::new().prefix("canopy-s3-").tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join(BUCKET)).expect("a bucket");
        let mut server =
            Self { directory, address: "127.0.0.1:0".to_owned(), serving: None, counts: Arc::default() };
        server.come_back().await;
        server
    }

    /// Answers again, where it did before.
    pub async fn come_back(&mut self) {
        let files = s3s_fs::FileSystem::new(self.directory.path()).expect("a readable directory");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(KEYS.0, KEYS.1));
        let service = service.build();
        let mut bound = NetIo::tcp().bind(&self.address).await.expect("its own port");
        self.address = bound.address.to_string();
        let counts = self.counts.clone();
        // This server looks whether an object is there and then writes it; a real one does both at once.
        let turns: Arc<Mutex<()>> = Arc::default();
        self.serving = Some(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Some(Ok(io)) = bound.incoming.next().await {
                let (service, counts, turns) = (service.clone(), counts.clone(), turns.clone());
                let counted = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    counts.all.fetch_add(1, Ordering::Relaxed);
                    if request.method() == http::Method::GET && request.uri().path().contains("/shards/") {
                        counts.shards.fetch_add(1, Ordering::Relaxed);
                    }
                    let turn =
                        request.headers().contains_key(http::header::IF_NONE_MATCH).then(|| turns.clone());
                    let answered = Service::call(&service, request);
                    async move {
                        let _turn = match turn {
                            Some(turns) => Some(turns.lock_owned().await),
                            None => None,
                        };
                        answered.await
                    }
                });
                connections.spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    let _the_caller_may_go = server.serve_connection(TokioIo::new(io), counted).await;
                });
            }
        }));
    }

    /// Answers nobody any more, not even on connections that stand.
    pub async fn go_away(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _aborted = serving.await;
        }
    }

    /// Settings of a store in its bucket.
    pub fn config(&self, prefix: &str) -> StoreConfig {
        config(&self.address, prefix)
    }

    /// The same for another process: keys in files.
    pub fn config_with_files(&self, prefix: &str) -> StoreConfig {
        let file = |name: &str, key: &str| {
            let path = self.directory.path().join(name);
            std::fs::write(&path, key).expect("a key file");
            path.display().to_string()
        };
        StoreConfig {
            access_key: Secret::default(),
            secret_key: Secret::default(),
            access_key_file: file("access", KEYS.0),
            secret_key_file: file("secret", KEYS.1),
            ..self.config(prefix)
        }
    }

    /// Where the objects of a store lie.
    pub fn directory(&self, prefix: &str) -> PathBuf {
        self.directory.path().join(BUCKET).join(prefix)
    }

    /// Reads of files of shards so far.
    pub fn shard_reads(&self) -> u64 {
        self.counts.shards.load(Ordering::Relaxed)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// The other program. Dropped, it is killed.
pub struct Moto {
    child: Child,
    address: String,
}

/// Where `tests/run.sh` installs it: beside the build.
fn moto() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).map(Path::to_owned).expect("target/PROFILE/deps");
    target.join("moto/bin/moto_server")
}

impl Moto {
    /// Starts it with an empty bucket. Fails when it is not installed, and says how it is.
    pub async fn start() -> Self {
        let program = moto();
        let at = program.ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
        assert!(
            program.exists(),
            "{} is missing; tests/run.sh installs it, or: python3 -m venv {at} && {at}/bin/pip install 'moto[server]==5.2.5'",
            program.display(),
            at = at.display()
        );
        let address = free_addresses(1).await.remove(0);
        let port = address.rsplit(':').next().unwrap_or_default().to_owned();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("moto starts");
        let server = Self { child, address };
        wait_for("moto to make a bucket", Duration::from_mins(1), || server.make_bucket()).await;
        server
    }

    async fn make_bucket(&self) -> Option<()> {
        let io = NetIo::tcp().connect(&self.address).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::put(format!("/{BUCKET}")).header("host", &self.address);
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).ok()?;
        sender.send_request(request).await.ok()?.status().is_success().then_some(())
    }

    /// Settings of a store in its bucket.
    pub fn config(&self, prefix: &str) -> StoreConfig {
        config(&self.address, prefix)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _it_may_have_ended = self.child.wait();
    }
}

/// What no text may hold.
pub fn secret() -> &'static str {
    KEYS.1
}
