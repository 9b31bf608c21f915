//! How fast the embedded log is on this machine: durable appends by batch size, and reading back.
//!
//!   cargo run --release -p canopy-log --example log_rate -- DIR

use std::{path::PathBuf, process::ExitCode};

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_log::{
    Append, Log, Slots,
    embedded::{Config, Embedded},
};
use tokio::time::Instant;

const BYTES: usize = 1000;

fn item(number: u64) -> Append {
    Append {
        partition: (number % 16) as u32,
        slot: (number % 4096) as u16,
        key: KeyHash::of(&number.to_string()),
        delete: false,
        id: 0,
        at_us: 1,
        record: Bytes::from(vec![b'x'; BYTES]),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: log_rate DIR");
        return ExitCode::from(2);
    };
    match measure(PathBuf::from(dir)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(dir: PathBuf) -> canopy_log::Result<()> {
    let config = Config { reserve_bytes: 0, ..Config::new(dir, 16) };
    let log = Embedded::open(config.clone())?;
    for batch in [1_u64, 16, 256, 4096] {
        let rounds = (20_000 / batch).clamp(20, 1_000);
        let started = Instant::now();
        for round in 0..rounds {
            for result in log.append((0..batch).map(|at| item(round * batch + at)).collect()).await {
                result?;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let rate = (rounds * batch) as f64 / seconds;
        println!(
            "append {batch:>5} at a time: {rate:>9.0} records/s, {:.2} ms each",
            seconds * 1e3 / rounds as f64
        );
    }
    let (started, mut records) = (Instant::now(), 0);
    for (partition, range) in (0..).zip(log.ranges().await?) {
        let mut at = range.first;
        while at < range.end {
            let chunk = log.read(partition, at, Slots::all(), 1 << 20).await?;
            records += chunk.entries.len();
            at = chunk.next;
        }
    }
    println!("read: {:.0} records/s of {BYTES} bytes", records as f64 / started.elapsed().as_secs_f64());
    drop(log);
    let started = Instant::now();
    drop(Embedded::open(config)?);
    println!("open: {:.2} s for {records} records", started.elapsed().as_secs_f64());
    Ok(())
}
