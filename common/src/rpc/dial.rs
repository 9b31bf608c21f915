//! Connecting to a peer: with patience, and not all the time.
//!
//! Three ways to hang or to hammer are closed here. A host that drops packets is given up after `connect_timeout`. A
//! host that is frozen still accepts (its kernel does), so the peer has to say its first word within the patience for a
//! ping, or the connection fails: without that every new connection to it would look sound until the next ping is
//! missed. And a peer that swallows what is sent to it is not waited for by every call: after a dial that took long to fail
//! the next one comes 20 ms later, twice as long after each further one, at most 500 ms, drawn between 75 and 125 %; calls
//! in between fail at once with the reason, so that another replica is asked. A refusal is different: it is there at
//! once and costs nothing, so the peer is dialled again by the next call, and found the moment it is back (how often a
//! dead peer is asked at all is the breaker's business). The first success forgets it all.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::net::{BoxIo, NetIo, patience::Patient};

/// What a server says first: the head of a settings frame.
const FIRST_WORD: usize = 9;
/// A dial that failed sooner was refused.
const REFUSED: Duration = Duration::from_millis(10);
/// Waiting after the first failure, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// Not before that, and why.
    hold: Option<(Instant, String)>,
}

/// Dials one peer.
#[derive(Clone)]
pub struct Dialler {
    net: NetIo,
    address: Arc<str>,
    connect: Duration,
    first_word: Duration,
    made: Instant,
    failures: Arc<Mutex<Failures>>,
}

impl Dialler {
    /// For `host:port`.
    pub fn new(net: NetIo, address: &str, connect: Duration, first_word: Duration) -> Self {
        let (made, failures) = (Instant::now(), Arc::default());
        Self { net, address: address.into(), connect, first_word, made, failures }
    }

    /// A connection, or why there is none.
    pub async fn dial(self) -> io::Result<BoxIo> {
        if let Some((until, why)) = &self.failures.lock().hold
            && Instant::now() < *until
        {
            let message = format!("{} is not dialled again yet: {why}", self.address);
            return Err(io::Error::new(io::ErrorKind::NotConnected, message));
        }
        let began = Instant::now();
        let dialled = timeout(self.connect, self.net.connect(&self.address)).await;
        let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match dialled {
            Ok(io) => {
                *self.failures.lock() = Failures::default();
                Ok(BoxIo::new(Patient::opened_by(io, FIRST_WORD, self.first_word)))
            }
            Err(error) => {
                if began.elapsed() >= REFUSED {
                    self.failed(&error);
                }
                Err(error)
            }
        }
    }

    fn failed(&self, error: &io::Error) {
        let (mut failures, now) = (self.failures.lock(), Instant::now());
        let wait = WAIT.0.saturating_mul(1 << failures.in_a_row.min(8)).min(WAIT.1);
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        // The moment of the failure is chance enough: no two callers fail in the same microsecond of their lives.
        let lot =
            xxhash_rust::xxh3::xxh3_64(&(now - self.made).as_nanos().to_le_bytes()) as f64 / u64::MAX as f64;
        failures.hold = Some((now + wait.mul_f64(0.75 + lot / 2.0), error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::{FutureExt, future::BoxFuture};
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::net::{Bound, Network};

    /// A network on which connecting does what the test says.
    #[derive(Clone, Default)]
    struct Script {
        dialled: Arc<AtomicU32>,
        up: Arc<Mutex<bool>>,
        hangs: bool,
        /// Far ends: open, and without a word.
        silent: Arc<Mutex<Vec<tokio::io::DuplexStream>>>,
    }

    impl Network for Script {
        fn bind(&self, _: String) -> BoxFuture<'static, io::Result<Bound>> {
            futures::future::pending().boxed()
        }
        fn connect(&self, _: String) -> BoxFuture<'static, io::Result<BoxIo>> {
            self.dialled.fetch_add(1, Ordering::SeqCst);
            if self.hangs {
                return futures::future::pending().boxed();
            }
            let refused = || Err(io::ErrorKind::ConnectionRefused.into());
            let up = *self.up.lock();
            let (near, far) = tokio::io::duplex(64);
            self.silent.lock().push(far);
            futures::future::ready(if up { Ok(BoxIo::new(near)) } else { refused() }).boxed()
        }
    }

    fn dialler(script: &Script) -> Dialler {
        let net = NetIo::new(script.clone());
        Dialler::new(net, "h:1", Duration::from_millis(300), Duration::from_secs(2))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_refuses_is_found_the_moment_it_is_back() {
        let script = Script::default();
        let dialler = dialler(&script);
        for dialled in 1..100 {
            assert!(dialler.clone().dial().await.is_err());
            assert_eq!(script.dialled.load(Ordering::SeqCst), dialled);
        }
        *script.up.lock() = true;
        assert!(dialler.dial().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_swallows_is_dialled_now_and_then_and_others_do_not_wait_for_it() {
        let script = Script { hangs: true, ..Script::default() };
        let dialler = dialler(&script);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            let why = dialler.clone().dial().await.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(why.contains("timed out"), "{why}");
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let dialled = script.dialled.load(Ordering::SeqCst);
        assert!((22..=40).contains(&dialled), "{dialled} times in 20 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_swallows_everything_is_given_up() {
        let script = Script { hangs: true, ..Script::default() };
        let began = Instant::now();
        let error = dialler(&script).dial().await.err().map(|error| error.kind());
        assert_eq!((error, began.elapsed()), (Some(io::ErrorKind::TimedOut), Duration::from_millis(300)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_accepts_and_says_nothing_is_given_up() {
        let script = Script::default();
        *script.up.lock() = true;
        let mut io = dialler(&script).dial().await.unwrap();
        let began = Instant::now();
        let error = io.read_u8().await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, Duration::from_secs(2)));
    }
}
