//! Certificates are made with openssl, and the server is a real etcd.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::*;
use crate::{
    config::store::{EtcdAddress, StoreAddress},
    service::store::etcd::Etcd,
};

/// Certificates of one authority, in a directory.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=canopy test",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        authority
    }

    fn openssl(&self, arguments: &[&str]) {
        let run = Command::new("openssl").args(arguments).current_dir(self.0.path()).output();
        let done =
            run.unwrap_or_else(|error| panic!("no openssl: {error}; install openssl, as tests/run.sh does"));
        assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// `NAME.pem` and `NAME.key`, for the loopback interface and a name.
    fn sign(&self, name: &str, host: &str) {
        let (key, request, out) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        let (subject, extensions) = (format!("/CN={name}"), format!("{name}.ext"));
        std::fs::write(
            self.0.path().join(&extensions),
            format!("subjectAltName={host}\nextendedKeyUsage=serverAuth,clientAuth\n"),
        )
        .unwrap();
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            &subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            &extensions,
            "-out",
            &out,
        ]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// What a service is told of it.
    fn config(&self, own: &str) -> TopologyConfig {
        let own = |end: &str| if own.is_empty() { String::new() } else { self.text(&format!("{own}.{end}")) };
        TopologyConfig {
            store_ca_file: self.text("ca.pem"),
            store_cert_file: own("pem"),
            store_key_file: own("key"),
            store_timeout: canopy_common::config::Time::ms(5000),
            ..TopologyConfig::default()
        }
    }
}

/// A server that asks for certificates.
struct Server {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Server {
    async fn start(authority: &Authority) -> Self {
        let net = canopy_common::net::NetIo::tcp();
        let (one, other) = tokio::try_join!(net.bind("127.0.0.1:0"), net.bind("127.0.0.1:0")).unwrap();
        let (address, peer) = (one.address.to_string(), format!("http://{}", other.address));
        drop((one, other));
        let data = tempfile::tempdir().unwrap();
        let client = format!("https://{address}");
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--initial-cluster", &format!("one={peer}")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--client-cert-auth", "--trusted-ca-file", &authority.text("ca.pem")]);
        command.args(["--cert-file", &authority.text("server.pem")]);
        command.args(["--key-file", &authority.text("server.key")]);
        command.arg("--data-dir").arg(data.path()).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!("no etcd server: {error}; install etcd-server, as tests/run.sh does")
        });
        Self { child, address, _data: data }
    }

    fn reached(&self, config: &TopologyConfig) -> Result<Etcd> {
        let address = EtcdAddress { endpoints: vec![self.address.clone()], prefix: "/tls".to_owned() };
        Etcd::new(config, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _it_may_have_ended = self.child.wait();
    }
}

/// Whether a key can be written and read.
async fn works(etcd: &Etcd) -> Result<()> {
    let mut kv = etcd.client().await?.kv_client();
    etcd.answer(kv.put(etcd.key("a"), "b", None)).await?;
    let found = etcd.answer(kv.get(etcd.key("a"), None)).await?;
    assert_eq!(found.kvs()[0].value(), b"b");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_etcd_is_reached_with_certificates_and_not_without() {
    let authority = Authority::new();
    authority.sign("server", "IP:127.0.0.1");
    authority.sign("own", "DNS:topology");
    let server = Server::start(&authority).await;
    let etcd = server.reached(&authority.config("own")).unwrap();
    assert!(!format!("{etcd:?}").contains("BEGIN"), "the key is not shown");
    let start = Duration::from_mins(1);
    let up = async {
        while works(&etcd).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(start, up).await.expect("etcd answers over TLS");
    // Without a certificate of its own, in the clear, with another authority, for another name.
    let other = Authority::new();
    let short = canopy_common::config::Time::ms(1500);
    let plain = TopologyConfig { store_timeout: short, ..TopologyConfig::default() };
    let nobody = TopologyConfig { store_timeout: short, ..authority.config("") };
    let foreign = TopologyConfig {
        store_ca_file: other.text("ca.pem"),
        store_timeout: short,
        ..authority.config("own")
    };
    let name = TopologyConfig {
        store_server_name: "etcd.example.org".to_owned(),
        store_timeout: short,
        ..authority.config("own")
    };
    for (what, config) in [("plain", plain), ("nobody", nobody), ("foreign", foreign), ("name", name)] {
        let refused = works(&server.reached(&config).unwrap()).await;
        let error = refused.expect_err(what).to_string();
        assert!(error.contains(&server.address), "{what}: {error}");
    }
    // A certificate that is exchanged while the service runs counts for the next connection.
    std::fs::copy(authority.path("own.pem"), authority.path("kept.pem")).unwrap();
    std::fs::write(authority.path("own.pem"), "").unwrap();
    let gone = works(&etcd).await.unwrap_err().to_string();
    assert!(gone.contains("store_cert_file") && gone.contains("holds nothing"), "{gone}");
    std::fs::copy(authority.path("kept.pem"), authority.path("own.pem")).unwrap();
    works(&etcd).await.unwrap();
}

#[test]
fn files_that_hold_something_else_are_named_and_not_shown() {
    let authority = Authority::new();
    authority.sign("own", "DNS:topology");
    assert!(Tls::new(&TopologyConfig::default()).unwrap().is_none());
    assert!(Tls::new(&authority.config("own")).unwrap().is_some());
    let why = |config: TopologyConfig| Tls::new(&config).unwrap_err().to_string();
    let missing = TopologyConfig { store_ca_file: authority.text("no.pem"), ..authority.config("") };
    assert!(why(missing).contains("store_ca_file"));
    let swapped = TopologyConfig {
        store_cert_file: authority.text("own.key"),
        store_key_file: authority.text("own.pem"),
        ..authority.config("own")
    };
    let swapped = why(swapped);
    assert!(swapped.contains("store_cert_file") && swapped.contains("something else"), "{swapped}");
    let key = std::fs::read_to_string(authority.path("own.key")).unwrap();
    assert!(!swapped.contains(key.lines().nth(1).unwrap()), "{swapped}");
    let key = TopologyConfig { store_key_file: authority.text("own.pem"), ..authority.config("own") };
    assert!(why(key).contains("PRIVATE KEY is expected"));
    // A password that is empty is none.
    std::fs::write(authority.path("password"), "\n").unwrap();
    let user = TopologyConfig {
        store: "etcd://h:1/p".to_owned(),
        store_user: "canopy".to_owned(),
        store_password_file: authority.text("password"),
        ..TopologyConfig::default()
    };
    let Ok(StoreAddress::Etcd(address)) = StoreAddress::parse(&user.store) else { panic!("it is etcd") };
    let empty = Etcd::new(&user, address).unwrap_err().to_string();
    assert!(empty.contains("store_password_file") && empty.contains("is empty"), "{empty}");
}
