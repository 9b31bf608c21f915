//! CPU and wall time of an arm of a benchmark, on the thread that does the work. CPU time is what a figure is made of:
//! wall time moves with whatever else the machine does.

use std::time::Duration;

use tokio::time::Instant;

/// CPU and wall time that an arm spent on this thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    cpu: Duration,
    wall: Duration,
}

impl Spent {
    /// Adds what a piece of work takes.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (cpu, wall) = (thread_cpu(), Instant::now());
        let result = work();
        self.wall += wall.elapsed();
        self.cpu += thread_cpu().saturating_sub(cpu);
        result
    }

    /// CPU time, microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6
    }

    /// Wall time, microseconds.
    pub fn wall_us(&self) -> f64 {
        self.wall.as_secs_f64() * 1e6
    }
}

/// CPU time of this thread.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call only writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if failed != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The middle value; 0 of nothing.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_up() {
        let mut spent = Spent::default();
        let sum: u64 = spent.time(|| (0..200_000_u64).map(std::hint::black_box).sum());
        assert!(sum > 0 && spent.cpu_us() > 0.0 && spent.wall_us() > 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut []), 0.0);
    }
}
