//! Tests of `tail`: what its module comment promises.

use canopy_log::Log;
use canopy_proto::ingest::PartitionFrom;
use prost::Message;

use super::*;
use crate::testing::{Bench, put};

fn request(from: &[(u32, u64)]) -> TailRequest {
    let from = from.iter().map(|(partition, from)| PartitionFrom { partition: *partition, from: *from });
    TailRequest {
        corpus: "web".to_owned(),
        from: from.collect(),
        node: "leaf-1".to_owned(),
        ..TailRequest::default()
    }
}

const ALL: [(u32, u64); 4] = [(0, 0), (1, 0), (2, 0), (3, 0)];

fn follow(bench: &Bench, request: &TailRequest) -> mpsc::Receiver<std::result::Result<TailReply, Status>> {
    let feed = bench.feed();
    let wish = wish(&feed, request).unwrap();
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(run(feed, wish, sender, bench.drain.clone()));
    receiver
}

fn keys(reply: &TailReply) -> Vec<String> {
    let records = reply.partitions.iter().flat_map(|part| &part.records);
    records.map(|record| canopy_proto::ingest::Record::decode(record.record.clone()).unwrap().key).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_there_comes_first_then_news_and_in_between_a_message_a_second() {
    let bench = Bench::new().await;
    bench.write(&(0..20).map(|n| put(&n.to_string(), "T")).collect::<String>()).await;
    let mut tail = follow(&bench, &request(&ALL));
    let first = tail.recv().await.unwrap().unwrap();
    assert_eq!((first.epoch.as_str(), first.partitions.len(), keys(&first).len()), ("e1", 4, 20));
    let began = Instant::now();
    let heartbeat = tail.recv().await.unwrap().unwrap();
    assert_eq!((began.elapsed(), keys(&heartbeat).len()), (HEARTBEAT, 0));
    assert!(heartbeat.partitions.iter().all(|part| part.next == part.end && part.oldest_us == 0));
    bench.write(&put("news", "T")).await;
    let news = tail.recv().await.unwrap().unwrap();
    assert_eq!((keys(&news), news.partitions.len()), (vec!["news".to_owned()], 1));
    assert_eq!(bench.feed().followers.status(&bench.feed().ends(), 0)[0]["operations_behind"], 0);
    bench.drain.start();
    while tail.recv().await.is_some() {}
    assert_eq!(bench.feed().followers.status(&bench.feed().ends(), 0)[0]["connected"], false);
}

#[tokio::test]
async fn only_wanted_slots_are_sent_and_the_others_are_passed() {
    let bench = Bench::new().await;
    bench.write(&(0..50).map(|n| put(&n.to_string(), "T")).collect::<String>()).await;
    let mut slots = Slots::none();
    slots.set(canopy_format::layout::slot("7"));
    let slots = slots.as_bytes().to_vec().into();
    let mut tail = follow(&bench, &TailRequest { slots, ..request(&ALL) });
    let reply = tail.recv().await.unwrap().unwrap();
    assert_eq!(keys(&reply), ["7"]);
    assert_eq!(reply.partitions.iter().map(|part| part.next).sum::<u64>(), 50);
}

#[tokio::test]
async fn a_long_log_comes_in_messages_of_bounded_size_and_says_how_old_the_rest_is() {
    let bench = Bench::new().await;
    let text = "word ".repeat(700);
    let line = |n| format!(r#"{{"op":"put","key":"{n}","document":{{"body":"{text}","lang":"en"}}}}"#);
    let lines: Vec<String> = (0..1200).map(line).collect();
    assert_eq!(bench.write(&lines.join("\n")).await.1["applied"], 1200);
    let mut tail = follow(&bench, &request(&ALL));
    let (mut seen, mut messages) = (0, 0);
    while seen < 1200 {
        let reply = tail.recv().await.unwrap().unwrap();
        let bytes: usize =
            reply.partitions.iter().flat_map(|part| &part.records).map(|one| one.record.len()).sum();
        assert!(bytes < MESSAGE_BYTES + 32_000, "{bytes}");
        let behind = |part: &&TailPartition| part.next < part.end;
        assert!(reply.partitions.iter().filter(behind).all(|part| part.oldest_us == 1_000_000));
        seen += keys(&reply).len();
        messages += 1;
    }
    assert!(messages >= 4, "{messages}");
}

#[tokio::test]
async fn offsets_that_can_not_be_had_end_the_stream_with_the_reason() {
    let bench = Bench::new().await;
    bench.write(&(0..20).map(|n| put(&n.to_string(), "T")).collect::<String>()).await;
    let lost = async |request: TailRequest| {
        let mut tail = follow(&bench, &request);
        let reply = tail.recv().await.unwrap().unwrap();
        assert!(tail.recv().await.is_none());
        reply.lost
    };
    assert!(lost(TailRequest { epoch: "e0".to_owned(), ..request(&ALL) }).await.contains("\"e0\""));
    assert!(lost(request(&[(0, 99)])).await.contains("99"));
    bench.log.trim(BTreeMap::from([(0, 2)])).await.unwrap();
    assert!(lost(request(&[(0, 1)])).await.contains("trimmed"));
}

#[tokio::test]
async fn a_wrong_wish_is_refused_by_field() {
    let bench = Bench::new().await;
    let feed = bench.feed();
    let refused =
        |request: TailRequest| wish(&feed, &request).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused(request(&[])).contains("no partition"));
    assert!(refused(request(&[(4, 0)])).contains("partition 4 of 4"));
    assert!(refused(request(&[(1, 0), (1, 2)])).contains("twice"));
    assert!(refused(TailRequest { slots: vec![1].into(), ..request(&ALL) }).contains("512"));
}

#[tokio::test]
async fn who_does_not_read_is_seen_to_be_behind() {
    let bench = Bench::new().await;
    let mut tail = follow(&bench, &request(&ALL));
    tail.recv().await.unwrap().unwrap();
    let lines: String = (0..200).map(|n| put(&format!("k{n}"), "T")).collect();
    let until_refused = async {
        // Each line is a batch of its own, so that the reading goes on in between.
        for line in lines.lines() {
            if bench.write(line).await.0 == 429 {
                return;
            }
            tokio::time::sleep(TOGETHER * 2).await;
        }
        panic!("200 operations behind, 100 are allowed");
    };
    until_refused.await;
    while bench.write(&put("again", "T")).await.0 == 429 {
        tail.recv().await.unwrap().unwrap();
    }
}
