//! Keys of an etcd cluster: one connection, one patience for every answer, errors that name the store.
//!
//! etcd is the only thing asked here that may be gone for long, so nothing waits for it without a limit, and a connection that
//! failed is made anew by the next call.

use std::{collections::BTreeMap, time::Duration};

use canopy_common::config::Secret;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, GetOptions, KvClient, SortOrder, SortTarget,
    Txn, TxnOp, TxnOpResponse,
};
use tokio::runtime::Handle;

mod tls;

use super::shared::{Guard, Keys, Op, Outcome};
use crate::{
    config::{TopologyConfig, store::EtcdAddress, store_files},
    error::{Error, Result},
};
use tls::Tls;

/// The leader's key.
pub const LEADER: &str = "leader";
/// Keys of one page.
const PAGE: i64 = 256;
/// Largest answer that is taken, bytes: a page of the largest values that are written.
const MOST: usize = 64 << 20;

/// How the cluster is reached.
#[derive(Debug, Clone)]
pub struct Etcd {
    address: EtcdAddress,
    user: Option<(String, Secret)>,
    tls: Option<Tls>,
    timeout: Duration,
}

/// Result of the client.
type Answer<T> = std::result::Result<T, etcd_client::Error>;

impl Etcd {
    /// Of the configuration. Errors: the password or a certificate can't be read.
    pub fn new(config: &TopologyConfig, address: EtcdAddress) -> Result<Self> {
        let user = store_files::password(config)?.map(|password| (config.store_user.clone(), password));
        Ok(Self { address, user, tls: Tls::new(config)?, timeout: config.store_timeout.0 })
    }

    /// A client. Errors: no server answers, or the user is refused.
    pub async fn client(&self) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.timeout)
            .with_keep_alive(self.timeout, self.timeout)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password.reveal());
        }
        if let Some(tls) = self.tls.clone() {
            // A certificate may have been exchanged since.
            let read = tokio::task::spawn_blocking(move || tls.options()).await;
            options = options.with_tls(read.map_err(|error| self.failed(&error.to_string()))??);
        }
        self.answer(Client::connect(&self.address.endpoints, Some(options))).await
    }

    /// An answer within the patience.
    pub async fn answer<T>(&self, asked: impl Future<Output = Answer<T>>) -> Result<T> {
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answered) => answered.map_err(|error| self.failed(&in_words(&error))),
            Err(_) => Err(self.failed(&format!("it did not answer within {:?}", self.timeout))),
        }
    }

    /// An error of the store.
    pub fn failed(&self, reason: &str) -> Error {
        Error::Store { path: self.name(), reason: reason.to_owned() }
    }

    /// The store, for people.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// A key below the prefix.
    pub fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.address.prefix)
    }
}

fn in_words(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => canopy_common::rpc::status::from_status(status).message,
        error => error.to_string(),
    }
}

/// The keys, for threads that may block.
pub struct EtcdKeys {
    etcd: Etcd,
    runtime: Handle,
    /// `None`: to be made.
    client: Option<KvClient>,
}

impl EtcdKeys {
    /// Through a cluster. Must be made on a runtime, which drives it.
    pub fn new(etcd: Etcd) -> Self {
        Self { etcd, runtime: Handle::current(), client: None }
    }

    fn ask<T, F: Future<Output = Answer<T>>>(&mut self, ask: impl FnOnce(KvClient) -> F) -> Result<T> {
        let (etcd, client) = (&self.etcd, self.client.take());
        let asked = self.runtime.block_on(async {
            let client = match client {
                Some(client) => client,
                None => etcd.client().await?.kv_client().max_decoding_message_size(MOST),
            };
            let answered = etcd.answer(ask(client.clone())).await?;
            Ok((answered, client))
        });
        let (answered, client) = asked?;
        self.client = Some(client);
        Ok(answered)
    }

    fn op(&self, op: &Op) -> TxnOp {
        match op {
            Op::Put(key, value) => TxnOp::put(self.etcd.key(key), value.clone(), None),
            Op::Remove(key) => TxnOp::delete(self.etcd.key(key), None),
            Op::RemoveRange(first, end) => {
                let range = DeleteOptions::new().with_range(self.etcd.key(end));
                TxnOp::delete(self.etcd.key(first), Some(range))
            }
        }
    }
}

impl Keys for EtcdKeys {
    fn transact(&mut self, guard: Guard, generation_key: &str, ops: &[Op]) -> Result<Outcome> {
        let leader = self.etcd.key(LEADER);
        let mut conditions = vec![Compare::create_revision(leader.clone(), CompareOp::Equal, guard.term)];
        conditions.extend(guard.generation.map(|generation| {
            Compare::mod_revision(self.etcd.key(generation_key), CompareOp::Equal, generation)
        }));
        let ops: Vec<TxnOp> = ops.iter().map(|op| self.op(op)).collect();
        let txn = Txn::new().when(conditions).and_then(ops).or_else(vec![TxnOp::get(leader, None)]);
        let made = self.ask(|mut client| async move { client.txn(txn).await })?;
        if made.succeeded() {
            return Ok(Outcome::Made(made.header().map_or(0, etcd_client::ResponseHeader::revision)));
        }
        let leads = made.op_responses().iter().any(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().iter().any(|kv| kv.create_revision() == guard.term),
            _ => false,
        });
        Ok(if leads { Outcome::Late } else { Outcome::Deposed })
    }

    fn range(&mut self, prefix: &str, revision: i64) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut found = BTreeMap::new();
        let (mut from, end) = (self.etcd.key(prefix).into_bytes(), end(&self.etcd.key(prefix)));
        let below = self.etcd.key("").len();
        loop {
            let page = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_revision(revision);
            let first = from.clone();
            let mut page = self.ask(|mut client| async move { client.get(first, Some(page)).await })?;
            let more = page.more();
            for kv in page.take_kvs() {
                let (key, value) = kv.into_key_value();
                // The next page begins after this key.
                from = [key.as_slice(), &[0]].concat();
                found
                    .insert(String::from_utf8_lossy(&key).get(below..).unwrap_or_default().to_owned(), value);
            }
            if !more {
                return Ok(found);
            }
        }
    }

    fn last(&mut self, prefix: &str, count: usize) -> Result<Vec<(String, Vec<u8>)>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let newest = GetOptions::new()
            .with_range(end(&self.etcd.key(prefix)))
            .with_sort(SortTarget::Key, SortOrder::Descend)
            .with_limit(i64::try_from(count).unwrap_or(i64::MAX));
        let (from, below) = (self.etcd.key(prefix), self.etcd.key("").len());
        let mut found = self.ask(|mut client| async move { client.get(from, Some(newest)).await })?;
        let mut lines: Vec<_> =
            found.take_kvs().into_iter().map(etcd_client::KeyValue::into_key_value).collect();
        lines.reverse();
        let short = |key: Vec<u8>| String::from_utf8_lossy(&key).get(below..).unwrap_or_default().to_owned();
        Ok(lines.into_iter().map(|(key, value)| (short(key), value)).collect())
    }

    fn name(&self) -> String {
        self.etcd.name()
    }
}

/// The end of all keys that begin so.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
