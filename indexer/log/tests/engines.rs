//! Both engines against one contract; JetStream on a real server, which is also killed and started again.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_log::{
    Append, Error, Log, Range, Slots,
    embedded::{self, Embedded},
    jetstream::{self, JetStream},
};

/// A server of its own; its port stays the same when it is started again.
struct Nats {
    dir: tempfile::TempDir,
    port: String,
    child: Child,
}

impl Nats {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = spawn(dir.path(), "-1");
        let ports = dir.path().join(format!("nats-server_{}.ports", child.id()));
        let text = loop {
            match std::fs::read_to_string(&ports) {
                Ok(text) if text.ends_with('}') => break text,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let url = json["nats"][0].as_str().unwrap();
        let port = url.rsplit(':').next().unwrap().to_owned();
        Self { dir, port, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self) {
        self.child = spawn(self.dir.path(), &self.port);
    }

    fn config(&self, corpus: &str) -> jetstream::Config {
        let config = jetstream::Config::new(format!("nats://127.0.0.1:{}", self.port), corpus, 2);
        jetstream::Config { give_up: Duration::from_mins(1), ..config }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, port: &str) -> Child {
    Command::new("nats-server")
        .args(["-a", "127.0.0.1", "-p", port, "-js", "-sd"])
        .arg(dir.join("store"))
        .arg("--ports_file_dir")
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server is installed (tests/run.sh does that)")
}

fn record(partition: u32, slot: u16, key: &str, text: &str) -> Append {
    Append {
        partition,
        slot,
        key: KeyHash::of(key),
        delete: text.is_empty(),
        id: 0,
        at_us: 1000 + i64::from(slot),
        record: Bytes::from(text.to_owned()),
    }
}

async fn texts(log: &dyn Log, partition: u32, from: u64, slots: Slots, most: usize) -> Vec<(u64, String)> {
    let (mut at, mut found) = (from, Vec::new());
    loop {
        let chunk = log.read(partition, at, slots.clone(), most).await.unwrap();
        let text = |entry: &canopy_log::Entry| String::from_utf8(entry.record.to_vec()).unwrap();
        found.extend(chunk.entries.iter().map(|entry| (entry.offset, text(entry))));
        assert!(chunk.next > at || chunk.next == chunk.end, "a read goes on");
        at = chunk.next;
        if at == chunk.end {
            return found;
        }
    }
}

fn all(found: &[(u64, String)]) -> Vec<(u64, &str)> {
    found.iter().map(|(offset, text)| (*offset, text.as_str())).collect()
}

/// What whoever uses a log relies on. The log is new and has two partitions.
async fn contract(log: &dyn Log) {
    assert_eq!(log.ranges().await.unwrap(), [Range::default(); 2]);
    let batch = vec![record(0, 8, "a", "a1"), record(1, 9, "b", "b1"), record(0, 10, "c", "c1")];
    assert_eq!(log.append(batch).await, [Ok(0), Ok(0), Ok(1)]);
    let wrong =
        log.append(vec![record(2, 0, "a", "x"), record(0, 4096, "a", "x"), record(0, 8, "a", "a2")]).await;
    assert!(matches!(wrong[0], Err(Error::Invalid { field: "partition", .. })), "{wrong:?}");
    assert!(matches!(wrong[1], Err(Error::Invalid { field: "slot", .. })), "{wrong:?}");
    assert_eq!(wrong[2], Ok(2));

    assert_eq!(all(&texts(log, 0, 0, Slots::all(), 1).await), [(0, "a1"), (1, "c1"), (2, "a2")]);
    let mut slots = Slots::none();
    slots.set(10);
    assert_eq!(all(&texts(log, 0, 0, slots.clone(), 1 << 20).await), [(1, "c1")]);
    let chunk = log.read(0, 0, Slots::all(), 1).await.unwrap();
    assert_eq!((chunk.entries.len(), chunk.next, chunk.end, chunk.oldest_us), (1, 1, 3, 1010));
    assert_eq!((chunk.entries[0].slot, chunk.entries[0].at_us), (8, 1008));
    let idle = log.read(0, 3, Slots::all(), 1).await.unwrap();
    assert_eq!((idle.entries.len(), idle.next, idle.oldest_us), (0, 3, 0));
    let beyond = log.read(0, 4, Slots::all(), 1).await;
    assert_eq!(beyond, Err(Error::Lost { partition: 0, wanted: 4, first: 0, end: 3 }));

    let same = Append { id: 77, ..record(1, 9, "b", "b2") };
    assert_eq!(log.append(vec![same.clone()]).await, [Ok(1)]);
    assert_eq!(log.append(vec![same, record(1, 9, "b", "b3")]).await, [Ok(1), Ok(2)]);

    let ((), offsets) = futures::join!(log.wait(0, 3), log.append(vec![record(0, 8, "a", "")]));
    assert_eq!(offsets, [Ok(3)]);
    assert_eq!(log.append(vec![record(0, 8, "a", "a3")]).await, [Ok(4)]);
    assert_eq!(log.erase(0, KeyHash::of("a")).await, Ok(2));
    assert_eq!(all(&texts(log, 0, 0, Slots::all(), 1 << 20).await), [(1, "c1"), (3, ""), (4, "a3")]);
    assert_eq!(log.erase(1, KeyHash::of("b")).await, Ok(0));

    log.trim([(1, 2)].into()).await.unwrap();
    let range = log.ranges().await.unwrap()[1];
    assert!(range.first <= 2 && range.end == 3, "{range:?}");
    assert_eq!(all(&texts(log, 1, 2, Slots::all(), 1).await), [(2, "b3")]);
    assert_eq!(log.partitions(), 2);
}

#[tokio::test]
async fn embedded_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let config = embedded::Config { reserve_bytes: 0, ..embedded::Config::new(dir.path(), 2) };
    let log = Embedded::open(config.clone()).unwrap();
    contract(&log).await;
    let epoch = log.epoch();
    drop(log);
    let again = Embedded::open(config).unwrap();
    assert_eq!(again.epoch(), epoch);
    assert_eq!(all(&texts(&again, 0, 0, Slots::all(), 1).await), [(1, "c1"), (3, ""), (4, "a3")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn jetstream_keeps_the_contract_and_its_epoch() {
    let nats = Nats::start().await;
    let log = JetStream::open(nats.config("web")).await.unwrap();
    contract(&log).await;
    let again = JetStream::open(nats.config("web")).await.unwrap();
    assert_eq!(again.epoch(), log.epoch());
    assert_eq!(all(&texts(&again, 0, 0, Slots::all(), 1).await), [(1, "c1"), (3, ""), (4, "a3")]);
    let other = jetstream::Config { partitions: 1, ..nats.config("web") };
    assert!(matches!(JetStream::open(other).await.err(), Some(Error::Invalid { field: "partitions", .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_and_doubles_nothing() {
    let mut nats = Nats::start().await;
    let log = JetStream::open(nats.config("web")).await.unwrap();
    let mut sure = Vec::new();
    for round in 0..4 {
        // Four of each key: on their way at once, but never in another order than the batch's.
        let key = |at: usize| format!("k{}", at % 50);
        let texts: Vec<String> = (0..200).map(|at| format!("{round} {at}")).collect();
        let batch = texts.iter().enumerate().map(|(at, text)| record(0, 1, &key(at), text)).collect();
        let (offsets, ()) = futures::join!(log.append(batch), async {
            if round > 0 {
                nats.kill();
                nats.again();
            }
        });
        let offsets: Vec<u64> = offsets.into_iter().map(Result::unwrap).collect();
        assert!(offsets.iter().zip(&offsets[50..]).all(|(earlier, later)| earlier < later), "{offsets:?}");
        sure.extend(offsets.into_iter().zip(texts));
    }
    sure.sort();
    assert_eq!(texts(&log, 0, 0, Slots::all(), 1 << 20).await, sure);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_made_anew_is_another_log() {
    let nats = Nats::start().await;
    let log = JetStream::open(nats.config("web")).await.unwrap();
    let writer = JetStream::open(nats.config("web")).await.unwrap();
    assert_eq!(log.append(vec![record(0, 1, "k", "one"), record(1, 1, "k", "kept")]).await, [Ok(0), Ok(0)]);
    let client = async_nats::connect(format!("127.0.0.1:{}", nats.port)).await.unwrap();
    async_nats::jetstream::new(client).delete_stream("canopy_web_0").await.unwrap();
    let again = JetStream::open(nats.config("web")).await.unwrap();
    assert_ne!(again.epoch(), log.epoch());
    assert!(matches!(log.read(0, 0, Slots::all(), 1).await, Err(Error::Replaced { .. })));
    assert!(matches!(log.append(vec![record(0, 1, "k", "two")]).await[0], Err(Error::Replaced { .. })));
    // One that has not looked yet, and writes: it must not land in the new stream.
    assert!(matches!(writer.append(vec![record(0, 1, "k", "two")]).await[0], Err(Error::Replaced { .. })));
    assert_eq!(again.append(vec![record(0, 1, "k", "two")]).await, [Ok(0)]);
    assert_eq!(all(&texts(&again, 1, 0, Slots::all(), 1).await), [(0, "kept")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_takes_deletes_only() {
    let nats = Nats::start().await;
    let config = jetstream::Config { max_bytes: 40_000, reserve_bytes: 20_000, ..nats.config("web") };
    let log = JetStream::open(config).await.unwrap();
    let long = "x".repeat(8_000);
    assert_eq!(log.append(vec![record(0, 1, "k", &long)]).await, [Ok(0)]);
    let refused = log.append(vec![record(0, 1, "k", &long)]).await.remove(0).unwrap_err();
    assert!(matches!(refused, Error::Full { .. }) && refused.again(), "{refused}");
    assert_eq!(log.append(vec![record(0, 1, "k", "")]).await, [Ok(1)]);
    log.trim([(0, 2)].into()).await.unwrap();
    assert_eq!(log.append(vec![record(0, 1, "k", &long)]).await, [Ok(2)]);
}
