//! Resources that the server and this program used during a measurement.

use std::fs;
use std::time::Instant;

/// `USER_HZ`: the unit of times in `/proc/PID/stat`, the same on every Linux.
const TICK_US: f64 = 10_000.0;

/// Begins a measured window.
pub(crate) struct Meter {
    server: Option<u32>,
    began: Instant,
    server_us: Option<Cpu>,
    client_us: Option<Cpu>,
    server_read: Option<u64>,
}

/// Resource usage of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// CPU time of the server, in microseconds.
    pub(crate) server_us: Option<f64>,
    pub(crate) client_us: Option<f64>,
    /// Bytes that the server read from the disk, without those from the page cache.
    pub(crate) server_read_bytes: Option<u64>,
}

impl Meter {
    pub(crate) fn start(server: Option<u32>) -> Self {
        let server_us = server.and_then(|pid| Cpu::of(&pid.to_string()));
        let server_read = server.and_then(read_bytes);
        Self { server, client_us: Cpu::of("self"), server_us, server_read, began: Instant::now() }
    }

    pub(crate) fn stop(&self) -> Cost {
        let seconds = self.began.elapsed().as_secs_f64();
        let server = self.server.and_then(|pid| Cpu::of(&pid.to_string()));
        let spent = |after: Option<Cpu>, before: &Option<Cpu>| Some(after?.since(before.as_ref()?));
        let read = self.server.and_then(read_bytes).zip(self.server_read);
        Cost {
            seconds,
            server_us: spent(server, &self.server_us),
            client_us: spent(Cpu::of("self"), &self.client_us),
            server_read_bytes: read.map(|(after, before)| after - before),
        }
    }
}

/// CPU time of a process in two measures: whole, in ticks of 10 ms, and of its present threads, in nanoseconds.
struct Cpu {
    ticks_us: f64,
    threads_us: f64,
}

impl Cpu {
    fn of(pid: &str) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; user and system time are the 12th and 13th fields behind it.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let mut tick = || fields.next()?.parse::<f64>().ok();
        let ticks_us = (tick()? + tick()?) * TICK_US;
        let threads_us = fs::read_dir(format!("/proc/{pid}/task"))
            .ok()?
            .filter_map(|thread| {
                let times = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
                times.split_ascii_whitespace().next()?.parse::<f64>().ok()
            })
            .sum::<f64>()
            / 1000.0;
        Some(Self { ticks_us, threads_us })
    }

    /// The finer measure, unless threads that ended in between make it too small.
    fn since(&self, before: &Self) -> f64 {
        let (coarse, fine) = (self.ticks_us - before.ticks_us, self.threads_us - before.threads_us);
        if (coarse - fine).abs() <= 2.0 * TICK_US + coarse * 0.01 { fine } else { coarse }
    }
}

/// Bytes that the process read from the disk.
fn read_bytes(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// Memory of a process that is not the kernel's, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The most of it since the process began or since [`forget_peak`].
pub(crate) fn peak_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Resets the process's peak memory, if permitted.
pub(crate) fn forget_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_busy_loop_is_counted_to_this_process() {
        let meter = Meter::start(Some(std::process::id()));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let cost = meter.stop();
        let (server, client) = (cost.server_us.unwrap(), cost.client_us.unwrap());
        assert!(server > 5_000.0 && client > 5_000.0, "{cost:?}");
        assert!(cost.seconds >= 0.1);
    }

    #[test]
    fn a_process_that_is_not_there_costs_nothing_known() {
        assert!(Meter::start(Some(u32::MAX)).stop().server_us.is_none());
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }
}
