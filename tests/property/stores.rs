//! What every store of the topology service keeps to, asked of each of them in the same words: the file, and etcd, a real
//! server, with the feature of that name.

use canopy_topology::{
    error::{Error, Result},
    service::store::{Documents, FileStore, Store},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A handle to one store. Where one handle shuts the other out, opening fails; else the one before leads no more.
type Open<'a> = &'a mut dyn FnMut() -> Result<Box<dyn Store>>;

fn documents(names: impl IntoIterator<Item = u32>, byte: u8, length: usize) -> Documents {
    names.into_iter().map(|name| (format!("node/{name:04}"), vec![byte; length])).collect()
}

fn again(store: &mut Option<Box<dyn Store>>, open: Open) -> Documents {
    // A file has to be let go first.
    *store = None;
    store.insert(open().expect("it opens")).read().expect("it is read")
}

/// Everything that a store keeps to.
fn contract(open: Open) {
    let mut store = None;
    assert_eq!(again(&mut store, open), Documents::new(), "nothing at first");
    let held = |store: &mut Option<Box<dyn Store>>| store.take().expect("an open store");
    let mut now = held(&mut store);
    assert!(now.audit(9).expect("a log").is_empty());

    let first = documents(0..3, 1, 40);
    let line = |text: &str| format!("{{\"what\":\"{text}\"}}");
    now.write(&Documents::new(), &first, &[line("one"), line("two")]).expect("written");
    let mut second = documents(1..5, 2, 50);
    second.insert("corpus/web".to_owned(), Vec::new());
    now.write(&first, &second, &[line("three")]).expect("written");
    assert_eq!(now.audit(2).expect("a log"), [line("two"), line("three")]);
    drop(now);
    assert_eq!(again(&mut store, open), second, "what was put, changed and removed");
    large(&mut store, open, &second);
    random(&mut store, open);
    fenced(&mut store, open);
}

/// One change of more documents than a transaction may have operations, and of one larger than a request may be.
fn large(store: &mut Option<Box<dyn Store>>, open: Open, from: &Documents) {
    let mut much = documents(10..600, 3, 300);
    much.insert("corpus/web".to_owned(), (0..3_000_000_u32).map(|at| (at % 251) as u8).collect());
    let lines: Vec<String> = (0..300).map(|number| format!("line {number}")).collect();
    store.as_mut().expect("open").write(from, &much, &lines).expect("written");
    assert!(again(store, open) == much, "all of a large change");
    let held = store.as_mut().expect("open");
    assert_eq!(held.audit(300).expect("a log"), lines);
    assert_eq!(held.audit(1000).expect("a log").len(), 303);
    held.write(&much, &Documents::new(), &[]).expect("written");
    assert_eq!(again(store, open), Documents::new(), "all of it removed");
}

/// Any changes, and other handles in between.
fn random(store: &mut Option<Box<dyn Store>>, open: Open) {
    let mut dice = ChaCha8Rng::seed_from_u64(7);
    let (mut model, mut lines) = (Documents::new(), 303);
    for step in 0..60 {
        let mut next = model.clone();
        for _ in 0..dice.random_range(0..8) {
            let key = format!("corpus/{}", dice.random_range(0..6));
            if dice.random_range(0..3) == 0 {
                next.remove(&key);
            } else {
                next.insert(key, vec![step; dice.random_range(0..300_000)]);
            }
        }
        let audit: Vec<String> = (0..dice.random_range(0..3)).map(|line| format!("{step}.{line}")).collect();
        lines += audit.len();
        store.as_mut().expect("open").write(&model, &next, &audit).expect("written");
        model = next;
        if dice.random_range(0..4) == 0 {
            assert!(again(store, open) == model, "step {step}");
        }
        assert_eq!(store.as_mut().expect("open").audit(5000).expect("a log").len(), lines, "step {step}");
    }
    let held = store.as_mut().expect("open");
    held.write(&model, &documents(0..2, 9, 9), &[]).expect("written");
}

/// Of two handles one writes.
fn fenced(store: &mut Option<Box<dyn Store>>, open: Open) {
    let (mut first, before) = (store.take().expect("open"), documents(0..2, 9, 9));
    let Ok(mut second) = open() else {
        // The first keeps it.
        assert_eq!(first.read().expect("read"), before);
        return;
    };
    assert_eq!(second.read().expect("read"), before);
    for large in [false, true] {
        let other = documents(0..if large { 400 } else { 3 }, 8, 8);
        assert!(matches!(first.write(&before, &other, &["late".to_owned()]), Err(Error::Deposed)));
        assert!(matches!(first.read(), Err(Error::Deposed)));
    }
    second.write(&before, &documents(0..1, 7, 7), &["in time".to_owned()]).expect("written");
    assert_eq!(second.read().expect("read"), documents(0..1, 7, 7));
    assert_eq!(second.audit(1).expect("a log"), ["in time"]);
}

#[test]
fn a_file_keeps_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("topology.redb").to_string_lossy().into_owned();
    contract(&mut || Ok(Box::new(FileStore::open(&path)?)));
}

#[cfg(feature = "etcd")]
mod etcd {
    use canopy_tests::etcd::Etcd as Server;
    use canopy_topology::{
        config::{TopologyConfig, store::StoreAddress},
        service::store::{
            etcd::{Etcd, EtcdKeys, LEADER},
            shared::SharedStore,
        },
    };
    use etcd_client::{Client, Permission, PermissionType};
    use tokio::runtime::Runtime;

    use super::*;

    fn reached(store: &str, user: &str, password_file: &str) -> Etcd {
        let config = TopologyConfig {
            store: store.to_owned(),
            store_user: user.to_owned(),
            store_password_file: password_file.to_owned(),
            ..TopologyConfig::default()
        };
        let Ok(StoreAddress::Etcd(address)) = StoreAddress::parse(&config.store) else { panic!("{store}") };
        Etcd::new(&config, address).expect("a password")
    }

    /// Leads, whoever led before.
    async fn elect(etcd: &Etcd, client: &Client) -> SharedStore<EtcdKeys> {
        let mut kv = client.kv_client();
        kv.delete(etcd.key(LEADER), None).await.expect("deleted");
        let put = kv.put(etcd.key(LEADER), "{}", None).await.expect("put");
        let term = put.header().expect("a header").revision();
        SharedStore::new(EtcdKeys::new(etcd.clone()), term, "one")
    }

    #[test]
    fn etcd_keeps_to_it() {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start());
        let etcd = reached(&server.store("trees/web"), "", "");
        let client = runtime.block_on(etcd.client()).expect("a client");
        contract(&mut || Ok(Box::new(runtime.block_on(elect(&etcd, &client)))));
        // Another tree in the same cluster is not touched, and begins with nothing.
        let other = reached(&server.store("trees/web-2"), "", "");
        let mut store = runtime.block_on(elect(&other, &client));
        assert_eq!(store.read().expect("read"), Documents::new());
    }

    #[test]
    fn etcd_asks_for_a_password_where_it_has_users() {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start());
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.to_string_lossy().into_owned()
        };
        let (right, wrong) = (file("right", "open sesame\n"), file("wrong", "open"));
        let store = server.store("canopy");
        runtime.block_on(async {
            let mut auth = reached(&store, "", "").client().await.expect("a client").auth_client();
            auth.role_add("root").await.expect("a role");
            auth.role_add("canopy").await.expect("a role");
            let own = Permission::new(PermissionType::Readwrite, "/canopy/").with_prefix();
            auth.role_grant_permission("canopy", own).await.expect("granted");
            for user in ["root", "canopy"] {
                auth.user_add(user, "open sesame", None).await.expect("a user");
                auth.user_grant_role(user, user).await.expect("granted");
            }
            auth.auth_enable().await.expect("enabled");
        });
        let refused = |user: &str, password: &str| {
            let etcd = reached(&store, user, password);
            let client = runtime.block_on(etcd.client());
            let mut keys = runtime.block_on(async { SharedStore::new(EtcdKeys::new(etcd), 1, "one") });
            let error = client.err().unwrap_or_else(|| keys.read().map(|_| ()).expect_err("refused"));
            error.to_string()
        };
        let error = refused("canopy", &wrong);
        assert!(error.contains("authentication failed") && error.contains(&store), "{error}");
        let error = refused("", "");
        assert!(error.contains("user name is empty") && error.contains(&store), "{error}");
        let etcd = reached(&store, "canopy", &right);
        runtime.block_on(async {
            let client = etcd.client().await.expect("a client");
            let mut store = elect(&etcd, &client).await;
            tokio::task::spawn_blocking(move || {
                store.read().expect("read");
                store.write(&Documents::new(), &documents(0..300, 1, 9), &["a".to_owned()]).expect("written");
                assert_eq!(store.read().expect("read").len(), 300);
            })
            .await
            .expect("done");
        });
    }
}
