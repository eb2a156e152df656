//! One reading of the clocks per round, and the `Date` line of that second.

use super::timers::Tick;
use std::time::{Duration, Instant};

/// The time of this round.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    pub(super) now: Instant,
    /// Milliseconds since `start`.
    pub(super) tick: Tick,
    /// Milliseconds since the Unix epoch.
    pub(super) unix_ms: u64,
    date_second: u64,
    date: [u8; DATE_LEN],
}

const DATE_LEN: usize = 37;

impl Clock {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let mut clock = Self { start: now, now, tick: 0, unix_ms: 0, date_second: u64::MAX, date: [0; DATE_LEN] };
        clock.read();
        clock
    }

    pub(super) fn read(&mut self) {
        self.now = Instant::now();
        self.tick = self.now.duration_since(self.start).as_millis() as Tick;
        self.unix_ms = crate::clock::unix_ms();
        let second = self.unix_ms / 1000;
        if second != self.date_second {
            self.date_second = second;
            self.date = date_line(second);
        }
    }

    /// Microseconds since the start. They wrap after 71 minutes: only differences mean something.
    pub(super) fn micros(&self) -> u32 {
        self.now.duration_since(self.start).as_micros() as u32
    }

    /// A whole header line, CR LF included.
    pub(super) fn date_line(&self) -> &[u8] {
        &self.date
    }

    /// The first tick at which `instant` has passed.
    pub(super) fn tick_of(&self, instant: Instant) -> Tick {
        instant.saturating_duration_since(self.start).as_micros().div_ceil(1000) as Tick
    }

    pub(super) fn tick_after(&self, from: Tick, delay: Duration) -> Tick {
        from.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
    }
}

/// IMF-fixdate (RFC 9110 §5.6.7). The civil calendar is computed as in Howard Hinnant's `civil_from_days`.
fn date_line(unix_s: u64) -> [u8; DATE_LEN] {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);

    let mut line = *b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    let mut two =
        |at: usize, n: u64| line[at..at + 2].copy_from_slice(&[b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8]);
    two(11, day);
    two(18, year / 100);
    two(20, year % 100);
    two(23, second / 3600);
    two(26, second / 60 % 60);
    two(29, second % 60);
    line[6..9].copy_from_slice(DAYS[(days % 7) as usize]);
    line[14..17].copy_from_slice(MONTHS[(month - 1) as usize]);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_827_696, "Tue, 29 Feb 2000 12:34:56 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_795_229_345, "Sat, 21 Nov 2026 02:49:05 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(String::from_utf8_lossy(&date_line(unix_s)), format!("date: {date}\r\n"));
        }
    }
}
