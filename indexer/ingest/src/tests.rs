//! The whole ingest as a process over the embedded log: HTTP and gRPC on real ports, a restart, trimming.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    clock::System,
    config::{Size, Time},
    deps::Deps,
    drain::Drain,
    ids::NodeId,
    net::NetIo,
    rng::Dice,
    rpc::{self, RpcConfig},
    telemetry::Telemetry,
};
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_proto::ingest::{
    DeadLetter, DeadLettersRequest, EndsRequest, Item, Op, PartitionFrom, RefuseRequest, TailRequest,
    WriteReply, WriteRequest, ingest_client::IngestClient, item_reply::Status, log_client::LogClient,
};
use tokio::task::JoinHandle;

use crate::{IngestConfig, IngestServe, serve};

struct Process {
    channel: rpc::ClientChannel,
    drain: Drain,
    served: JoinHandle<crate::error::Result<()>>,
}

async fn start(directory: &std::path::Path) -> Process {
    let store = VersionStore::open(&directory.join("store").display().to_string(), true).unwrap();
    let corpus =
        Corpus { name: "web".to_owned(), schema: Schema::web(), partitions: 4, ordering: Ordering::Log };
    // Made by the first start.
    let _there_after_a_restart = store.create_corpus(&corpus).await;
    let net = NetIo::tcp();
    let deps = Deps {
        net: net.clone(),
        clock: Arc::new(System),
        dice: Dice::seeded(5),
        telemetry: Telemetry::default(),
    };
    let config = IngestConfig {
        directory: directory.join("ingest").display().to_string(),
        reserve: Size(0),
        poll: Time::ms(50),
        ..IngestConfig::default()
    };
    let rpc = RpcConfig { lame_duck: Time::ms(0), ..RpcConfig::default() };
    let grpc = net.bind("127.0.0.1:0").await.unwrap();
    let address = grpc.address.to_string();
    let http = Some(net.bind("127.0.0.1:0").await.unwrap());
    let node = NodeId::from("ingest-1");
    let (drain, channel) = (Drain::new(), rpc::channel(&rpc, &net, &address).unwrap());
    let served =
        tokio::spawn(serve(IngestServe { node, config, rpc, store, grpc, http }, deps, drain.clone()));
    let process = Process { channel, drain, served };
    while process.log().ends(EndsRequest { corpus: "web".to_owned() }).await.is_err() {
        assert!(!process.served.is_finished(), "it ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process
}

impl Process {
    fn log(&self) -> LogClient<rpc::ClientChannel> {
        LogClient::new(self.channel.clone())
    }

    fn ingest(&self) -> IngestClient<rpc::ClientChannel> {
        IngestClient::new(self.channel.clone())
    }

    async fn write(&self, items: Vec<Item>) -> WriteReply {
        let request = WriteRequest { corpus: "web".to_owned(), items };
        let replies = self.ingest().write(tokio_stream::iter([request])).await.unwrap();
        replies.into_inner().message().await.unwrap().unwrap()
    }

    async fn stop(self) {
        self.drain.start();
        self.served.await.unwrap().unwrap();
    }
}

fn item(op: Op, key: &str, document: &str) -> Item {
    let document = document.as_bytes().to_vec().into();
    Item { op: op.into(), key: key.to_owned(), document, order: None }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart_and_leaves_can_follow_it() {
    let directory = tempfile::tempdir().unwrap();
    let process = start(directory.path()).await;
    let reply = process
        .write(vec![
            item(Op::Put, "a", r#"{"title":"A","lang":"en"}"#),
            item(Op::Put, "b", r#"{"published":"2023-02-31"}"#),
            item(Op::Patch, "a", r#"{"title":"B"}"#),
            item(Op::Delete, "c", ""),
            item(Op::Put, "d", "{"),
            item(Op::Unspecified, "e", ""),
        ])
        .await;
    let statuses: Vec<_> = reply.items.iter().map(canopy_proto::ingest::ItemReply::status).collect();
    let (applied, rejected) = (Status::Applied, Status::Rejected);
    assert_eq!(statuses, [applied, rejected, applied, applied, rejected, rejected]);
    let fields: Vec<_> = reply.items.iter().map(|item| item.field.as_str()).collect();
    assert_eq!(fields, ["", "published", "", "", "document", "op"]);
    process.stop().await;

    let process = start(directory.path()).await;
    let ends = process.log().ends(EndsRequest { corpus: "web".to_owned() }).await.unwrap().into_inner();
    assert_eq!(ends.partitions.iter().map(|range| range.end).sum::<u64>(), 3);
    assert!(reply.token.starts_with(&format!("{}:", ends.epoch)), "the same log");
    let from = (0..4).map(|partition| PartitionFrom { partition, from: 0 }).collect();
    let request = TailRequest { corpus: "web".to_owned(), epoch: ends.epoch, from, ..TailRequest::default() };
    let mut tail = process.log().tail(request).await.unwrap().into_inner();
    let mut seen = 0;
    while seen < 3 {
        let reply = tail.message().await.unwrap().unwrap();
        seen += reply.partitions.iter().map(|part| part.records.len()).sum::<usize>();
    }
    let letter = DeadLetter {
        key: "a".to_owned(),
        offset: "1:0".to_owned(),
        by: "leaf-1".to_owned(),
        ..DeadLetter::default()
    };
    let refused = RefuseRequest { corpus: "web".to_owned(), letters: vec![letter] };
    process.log().refuse(refused.clone()).await.unwrap();
    process.log().refuse(refused).await.unwrap();
    let request = DeadLettersRequest { corpus: "web".to_owned(), last: 0 };
    let letters = process.ingest().dead_letters(request).await.unwrap().into_inner().letters;
    let by: Vec<_> = letters.iter().map(|letter| letter.by.as_str()).collect();
    assert_eq!(by, ["ingest", "ingest", "ingest", "leaf-1"], "a second replica's letter is the same one");
    process.drain.start();
    while let Ok(Some(_)) = tail.message().await {}
    process.stop().await;
}
