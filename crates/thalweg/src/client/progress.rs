//! How far a long transfer is: bytes and rate, on standard error, and only for a person.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(250);
/// A transfer that is over soon needs no words.
const FIRST: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    bytes: u64,
    since: Instant,
    next: Duration,
    shown: bool,
    watched: bool,
}

impl Progress {
    /// `busy`: standard output is a terminal that shows the content itself.
    pub(crate) fn new(busy: bool) -> Self {
        let watched = std::io::stderr().is_terminal() && !busy;
        Self { bytes: 0, since: Instant::now(), next: FIRST, shown: false, watched }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if !self.watched {
            return;
        }
        let spent = self.since.elapsed();
        if spent >= self.next {
            self.next = spent + EVERY;
            self.show(spent);
        }
    }

    fn show(&mut self, spent: Duration) {
        self.shown = true;
        #[allow(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let rate = self.bytes as f64 / spent.as_secs_f64().max(0.001);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
        let line = format!("\r{}  {}/s\x1b[K", size(self.bytes), size(rate as u64));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            self.show(self.since.elapsed());
            let _ = std::io::stderr().write_all(b"\n");
        }
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    #[allow(clippy::cast_precision_loss, reason = "a size for the eye")]
    let n = bytes as f64 / f64::from(1024_u32).powi(unit as i32);
    if unit == 0 { format!("{bytes} B") } else { format!("{n:.1} {}", UNITS[unit as usize]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let sizes: Vec<_> = [0, 1023, 1024, 1_572_864, u64::MAX].into_iter().map(size).collect();
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "16777216.0 TiB"]);
    }
}
