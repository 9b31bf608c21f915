//! `[rpc]` of the configuration: the one place for message limits, windows and connection timing.

use serde::{Deserialize, Serialize};

use crate::config::{Section, Size, Time};

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RpcConfig {
    /// Largest message, either direction, unary and streaming. Default: 32MiB.
    pub max_message: Size,
    /// Patience for a new connection. Default: 300ms.
    pub connect_timeout: Time,
    /// How often an idle connection is pinged. Default: 2s.
    pub keepalive_interval: Time,
    /// How long a ping, and the first word on a new connection, may stay unanswered. Default: 2s.
    pub keepalive_timeout: Time,
    /// Age at which a server ends a connection, gently; up to a tenth more or less, by node. Default: 10min.
    pub max_connection_age: Time,
    /// HTTP/2 window of one stream. Default: 1MiB.
    pub stream_window: Size,
    /// HTTP/2 window of one connection, all streams together. Default: 64MiB.
    pub connection_window: Size,
    /// How long a process that was told to leave (SIGTERM) goes on accepting and answering while its readiness pages
    /// already say no, so that balancers have time to notice; 0: not at all. Default: 5s.
    pub lame_duck: Time,
    /// How long a draining process waits for running calls. Default: 10s.
    pub drain_patience: Time,
}

impl Default for RpcConfig {
    fn default() -> Self {
        Self {
            max_message: Size(32 << 20),
            connect_timeout: Time::ms(300),
            keepalive_interval: Time::ms(2000),
            keepalive_timeout: Time::ms(2000),
            max_connection_age: Time::ms(600_000),
            stream_window: Size(1 << 20),
            connection_window: Size(64 << 20),
            lame_duck: Time::ms(5_000),
            drain_patience: Time::ms(10_000),
        }
    }
}

impl Section for RpcConfig {
    const NAME: &'static str = "rpc";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("max_message", "largest message, either direction; 64KiB..1GiB"),
        ("connect_timeout", "patience for a new connection; 1ms..60s"),
        ("keepalive_interval", "how often a connection is pinged; 100ms..10min"),
        ("keepalive_timeout", "how long a ping, and a new connection, may stay unanswered; 100ms..1min"),
        ("max_connection_age", "age at which a server ends a connection, gently; 1s..24h"),
        ("stream_window", "HTTP/2 window of one stream; 64KiB..1GiB"),
        ("connection_window", "HTTP/2 window of one connection; at least 4 x stream_window, up to 2GiB - 1"),
        ("lame_duck", "how long a leaving process goes on answering, though it is not ready; 0s..10min"),
        ("drain_patience", "how long a draining process waits for running calls; 0s..10min"),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut size = |key: &str, value: Size, low: u64, high: u64| {
            if !(low..=high).contains(&value.0) {
                found.push((key.to_owned(), format!("{value} is outside {}..{}", Size(low), Size(high))));
            }
        };
        size("max_message", self.max_message, 64 << 10, 1 << 30);
        size("stream_window", self.stream_window, 64 << 10, 1 << 30);
        size("connection_window", self.connection_window, 4 * self.stream_window.0, (1 << 31) - 1);
        let mut time = |key: &str, value: Time, low: Time, high: Time| {
            if value < low || value > high {
                found.push((key.to_owned(), format!("{value} is outside {low}..{high}")));
            }
        };
        time("connect_timeout", self.connect_timeout, Time::ms(1), Time::ms(60_000));
        time("keepalive_interval", self.keepalive_interval, Time::ms(100), Time::ms(600_000));
        time("keepalive_timeout", self.keepalive_timeout, Time::ms(100), Time::ms(60_000));
        time("lame_duck", self.lame_duck, Time::ms(0), Time::ms(600_000));
        time("max_connection_age", self.max_connection_age, Time::ms(1000), Time::ms(86_400_000));
        time("drain_patience", self.drain_patience, Time::ms(0), Time::ms(600_000));
        found
    }
}
