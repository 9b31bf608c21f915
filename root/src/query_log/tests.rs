//! What is written can be read, is bounded, and costs no query anything, whatever the disk does.

use std::path::Path;

use canopy_common::{
    clock::{self, WallClock},
    config::Size,
};
use canopy_format::query_log::{Reader, most_asked};
use canopy_proto::v1::QueryRequest;

use super::*;
use crate::{
    config::RootConfig,
    fixture::{Mood, Tree, VERSION, tree, until},
};

fn logged(path: &Path, change: impl FnOnce(&mut QueryLogConfig)) -> Tree {
    let mut query_log =
        QueryLogConfig { path: path.to_str().unwrap().to_owned(), sample: 1.0, ..QueryLogConfig::default() };
    change(&mut query_log);
    tree(2, 20, RootConfig { query_log, ..RootConfig::default() })
}

async fn ask(tree: &Tree, change: impl FnOnce(&mut QueryRequest)) -> Result<Answer> {
    let mut request = QueryRequest { corpus: "web".into(), q: "rust".into(), ..Default::default() };
    change(&mut request);
    let query = tree.root.dice.query_id();
    tree.root.search(&Asked { query, arrival: Instant::now(), limit: None, request }).await
}

/// Runs the writer until all that was asked is written.
async fn written(tree: &Tree) {
    tree.root.query_log.close();
    tree.root.query_log.run().await;
}

fn records(path: &Path) -> Vec<Record> {
    let mut reader = Reader::open(path).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        found.push(record);
    }
    found
}

fn count(tree: &Tree, result: &str) -> u64 {
    tree.root.query_log.results.with_label_values(&[result]).get()
}

#[tokio::test]
async fn answers_parts_and_errors_are_logged_with_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/{node}.jsonl");
    let tree = logged(&path, |_| ());
    ask(&tree, |request| request.filter = vec!["lang:en".into()]).await.unwrap();
    let wrong = |request: &mut QueryRequest| {
        (request.q, request.filter) = ("grüße ".repeat(3000), vec![String::new(); 100_000]);
    };
    ask(&tree, wrong).await.unwrap_err();
    *tree.leaves[0].search.lock() = Mood::Fails(canopy_common::error::ErrorClass::DataLoss);
    ask(&tree, |request| request.priority = "batch".into()).await.unwrap();
    let probe = QueryRequest { corpus: "web".into(), q: "own".into(), ..Default::default() };
    let query = tree.root.dice.query_id();
    tree.root.probe(&Asked { query, arrival: Instant::now(), limit: None, request: probe }).await.unwrap();
    written(&tree).await;
    let path = dir.path().join("deep/root-0.jsonl");
    let [whole, wrong, part] = records(&path).try_into().unwrap();
    assert_eq!((whole.q.as_str(), whole.version, whole.outcome.as_str()), ("rust", VERSION, "answered"));
    assert_eq!((whole.hits.len(), whole.filter.len(), whole.k), (10, 1, 10));
    assert!(whole.whole() && whole.phases.contains_key("search") && whole.took_ms > 0.0);
    assert_eq!((wrong.outcome.as_str(), wrong.hits.len()), ("INVALID_ARGUMENT", 0));
    assert!(wrong.q.len() <= MAX_TEXT && wrong.q.starts_with("grüße") && wrong.filter.is_empty());
    assert_eq!((part.degraded.as_slice(), part.priority.as_str()), (&["partial".to_owned()][..], "batch"));
    assert_eq!(part.coverage.map(|covered| (covered.answered, covered.shards)), Some((1, 2)));
    assert_eq!(most_asked(&path, "web", 5).unwrap(), ["rust"], "a build warms with it");
    assert_eq!((count(&tree, "written"), count(&tree, "full")), (3, 0));
}

#[tokio::test]
async fn the_sample_is_a_part_and_off_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.jsonl");
    let tree = logged(&path, |config| config.sample = 0.25);
    for _ in 0..400 {
        ask(&tree, |_| ()).await.unwrap();
    }
    written(&tree).await;
    assert!((60..140).contains(&records(&path).len()), "{}", records(&path).len());
    let off = self::tree(1, 5, RootConfig::default());
    ask(&off, |_| ()).await.unwrap();
    written(&off).await;
    assert_eq!(count(&off, "written"), 0);
}

#[tokio::test]
async fn settings_that_change_hold_from_the_next_query_on() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first.jsonl", "second.jsonl"].map(|name| dir.path().join(name));
    let tree = self::tree(2, 20, RootConfig::default());
    let live = tree.root.query_log.config.clone();
    let at = |path: &Path| QueryLogConfig {
        path: path.to_str().unwrap().to_owned(),
        sample: 1.0,
        ..QueryLogConfig::default()
    };
    let log = &tree.root.query_log;
    let of = &tree;
    let come = |result: &'static str, records: u64| until(result, move || count(of, result) >= records);
    let story = async {
        ask(&tree, |_| ()).await.unwrap();
        live.set(at(&first));
        ask(&tree, |_| ()).await.unwrap();
        come("written", 1).await;
        // A path that can't be written holds up none that can.
        live.set(at(dir.path()));
        ask(&tree, |_| ()).await.unwrap();
        come("failed", 1).await;
        live.set(at(&second));
        ask(&tree, |_| ()).await.unwrap();
        come("written", 2).await;
        // What waits when it is turned off is dropped.
        ask(&tree, |_| ()).await.unwrap();
        live.set(QueryLogConfig::default());
        come("off", 1).await;
        ask(&tree, |_| ()).await.unwrap();
        log.close();
    };
    tokio::join!(log.run(), story);
    assert_eq!((records(&first).len(), records(&second).len()), (1, 1));
    assert_eq!(["written", "failed", "off", "full"].map(|result| count(&tree, result)), [2, 1, 1, 0]);
}

#[tokio::test]
async fn files_are_closed_by_size_and_the_oldest_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.jsonl");
    let files = Files { path: path.clone(), max_file: 100, keep: 2 };
    for number in 0..6 {
        files.append(format!("{number}{}\n", "x".repeat(60)).as_bytes()).unwrap();
    }
    let first = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap()[..1].to_owned();
    let names = ["queries.jsonl", "queries.jsonl.1", "queries.jsonl.2"];
    assert_eq!(names.map(first), ["5", "4", "3"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    let none = Files { keep: 0, ..files };
    none.append(&[b'y'; 90]).unwrap();
    none.append(&[b'z'; 90]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [b'z'; 90]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_torn_line_costs_itself_and_a_moved_file_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.jsonl");
    std::fs::write(&path, "{\"query_id\":\"to").unwrap();
    let files = Files { path: path.clone(), max_file: 1 << 20, keep: 2 };
    let record = Record { q: "next".into(), ..Record::default() };
    files.append(&record.line()).unwrap();
    assert_eq!(records(&path).len(), 1);
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    files.append(&record.line()).unwrap();
    assert_eq!((records(&path).len(), std::fs::read_dir(dir.path()).unwrap().count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_can_not_be_written_is_said_once_and_tried_again_and_queries_go_on() {
    let dir = tempfile::tempdir().unwrap();
    // A directory stands where the file should be.
    let path = dir.path().join("queries.jsonl");
    std::fs::create_dir(&path).unwrap();
    let tree = logged(&path, |_| ());
    let log = &tree.root.query_log;
    let come = async |result: &str, records: u64| {
        let begun = clock::System.now_us();
        while count(&tree, result) < records {
            assert!(clock::System.now_us() - begun < 60_000_000, "it never comes that {records} {result}");
            tokio::time::advance(Duration::from_millis(50)).await;
        }
    };
    let story = async {
        ask(&tree, |_| ()).await.unwrap();
        come("failed", 1).await;
        // While it waits nothing is tried.
        ask(&tree, |_| ()).await.unwrap();
        come("failed", 2).await;
        std::fs::remove_dir(&path).unwrap();
        tokio::time::advance(PAUSE).await;
        ask(&tree, |_| ()).await.unwrap();
        come("written", 1).await;
        log.close();
    };
    tokio::join!(log.run(), story);
    assert_eq!(records(&path).len(), 1);
}

#[tokio::test]
async fn a_writer_that_is_behind_drops_records_and_no_query_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.jsonl");
    let tree = logged(&path, |config| config.max_file = Size(1 << 30));
    for _ in 0..WAITING + 20 {
        tree.root.query_log.put(Record::default());
    }
    ask(&tree, |_| ()).await.unwrap();
    assert_eq!(count(&tree, "full"), 21);
    written(&tree).await;
    assert_eq!((count(&tree, "written"), records(&path).len()), (WAITING as u64, WAITING));
}

#[test]
fn nonsense_is_named() {
    let bad = QueryLogConfig { sample: f64::NAN, max_file: Size(1), keep: 5000, ..QueryLogConfig::default() };
    let keys: Vec<String> = bad.problems().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["query_log.sample", "query_log.max_file", "query_log.keep"]);
    assert!(QueryLogConfig::default().problems().is_empty());
}
