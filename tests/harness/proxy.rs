//! A wire between two processes that can be slow, lossy or dead: a TCP proxy in front of a node.
//!
//! What `tc netem` does to packets is done here to bytes, without rights or kernel modules, so that the same test runs
//! everywhere (`bench/netem.sh` has the kernel do it, where it can). A lost segment shows itself to a program as silence
//! for one retransmission timeout, of it and of everything behind it; so that is what a loss is here. A dead wire takes
//! connections and bytes and carries none; what was under way arrives when it is mended.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use canopy_common::{
    net::{BoxIo, NetIo},
    rng::Dice,
};
use futures::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// Bytes of one segment.
const SEGMENT: usize = 1448;
/// Segments under way in one direction.
const UNDER_WAY: usize = 256;
/// Shortest retransmission timeout of Linux; doubled for each further loss of the same segment.
const TIMEOUT: Duration = Duration::from_millis(200);

/// How a wire is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Wire {
    /// It carries everything at once.
    #[default]
    Sound,
    /// What the node says takes so much longer.
    Slow(Duration),
    /// This share of the segments is lost, in both directions.
    Lossy(f64),
    /// It carries nothing.
    Dead,
}

/// The wire to one node. Dropped, it ends.
pub struct Proxy {
    /// Where to reach the node through it.
    pub address: String,
    wire: watch::Sender<Wire>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// A sound wire to `node`.
    pub async fn to(node: &str, seed: u64) -> Self {
        let net = NetIo::tcp();
        let mut bound = net.bind("127.0.0.1:0").await.expect("a free port");
        let (wire, seen) = watch::channel(Wire::Sound);
        let (node, dice) = (node.to_owned(), Arc::new(Dice::seeded(seed)));
        let address = bound.address.to_string();
        let task = tokio::spawn(async move {
            while let Some(Ok(caller)) = bound.incoming.next().await {
                let (net, node, seen, dice) = (net.clone(), node.clone(), seen.clone(), dice.clone());
                tokio::spawn(async move {
                    // A node that is gone refuses: the caller sees its connection end.
                    let Ok(io) = net.connect(&node).await else { return };
                    join(caller, io, seen, dice).await;
                });
            }
        });
        Self { address, wire, task }
    }

    /// Changes it, for what is under way too.
    pub fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn join(caller: BoxIo, node: BoxIo, wire: watch::Receiver<Wire>, dice: Arc<Dice>) {
    let (from_caller, to_caller) = tokio::io::split(caller);
    let (from_node, to_node) = tokio::io::split(node);
    tokio::join!(
        carry(from_caller, to_node, wire.clone(), dice.clone(), false),
        carry(from_node, to_caller, wire, dice, true)
    );
}

/// One direction, until its source ends.
async fn carry(
    from: ReadHalf<BoxIo>,
    to: WriteHalf<BoxIo>,
    wire: watch::Receiver<Wire>,
    dice: Arc<Dice>,
    answers: bool,
) {
    let (send, receive) = mpsc::channel(UNDER_WAY);
    tokio::join!(take(from, send, wire.clone(), dice, answers), give(to, receive, wire));
}

async fn take(
    mut from: ReadHalf<BoxIo>,
    send: mpsc::Sender<(Instant, Bytes)>,
    wire: watch::Receiver<Wire>,
    dice: Arc<Dice>,
    answers: bool,
) {
    let mut last = Instant::now();
    loop {
        let mut segment = vec![0; SEGMENT];
        let Ok(read @ 1..) = from.read(&mut segment).await else { return };
        segment.truncate(read);
        let late = match *wire.borrow() {
            Wire::Slow(delay) if answers => delay,
            Wire::Lossy(share) => lost(share, &dice),
            Wire::Sound | Wire::Slow(_) | Wire::Dead => Duration::ZERO,
        };
        // Nothing overtakes.
        last = last.max(Instant::now() + late);
        if send.send((last, segment.into())).await.is_err() {
            return;
        }
    }
}

/// How long a segment is away.
fn lost(share: f64, dice: &Dice) -> Duration {
    let (mut away, mut timeout) = (Duration::ZERO, TIMEOUT);
    while dice.unit() < share && timeout < Duration::from_secs(4) {
        away += timeout;
        timeout *= 2;
    }
    away
}

async fn give(
    mut to: WriteHalf<BoxIo>,
    mut receive: mpsc::Receiver<(Instant, Bytes)>,
    mut wire: watch::Receiver<Wire>,
) {
    while let Some((at, segment)) = receive.recv().await {
        sleep_until(at).await;
        if wire.wait_for(|wire| *wire != Wire::Dead).await.is_err() || to.write_all(&segment).await.is_err() {
            return;
        }
    }
    let _the_other_end_may_be_gone = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> String {
        let mut bound = NetIo::tcp().bind("127.0.0.1:0").await.unwrap();
        let address = bound.address.to_string();
        tokio::spawn(async move {
            while let Some(Ok(io)) = bound.incoming.next().await {
                let (mut from, mut to) = tokio::io::split(io);
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_wire_carries_all_in_order_slowly_or_not_at_all() {
        let proxy = Proxy::to(&echo().await, 1).await;
        let mut io = NetIo::tcp().connect(&proxy.address).await.unwrap();
        for (wire, least) in
            [(Wire::Sound, 0), (Wire::Slow(Duration::from_millis(80)), 80), (Wire::Lossy(0.9), 200)]
        {
            proxy.set(wire);
            let (began, sent) = (Instant::now(), b"frame after frame");
            io.write_all(sent).await.unwrap();
            let mut back = [0; 17];
            io.read_exact(&mut back).await.unwrap();
            assert_eq!(&back, sent);
            assert!(began.elapsed() >= Duration::from_millis(least), "{wire:?}: {:?}", began.elapsed());
        }
        proxy.set(Wire::Dead);
        io.write_all(b"late").await.unwrap();
        let mut back = [0; 4];
        let nothing = tokio::time::timeout(Duration::from_millis(100), io.read_exact(&mut back)).await;
        assert!(nothing.is_err());
        proxy.set(Wire::Sound);
        // What the interrupted read may have taken is none: nothing had come.
        io.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"late");
    }
}
