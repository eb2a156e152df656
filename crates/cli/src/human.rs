//! Numbers and foreign text for the eye: sizes, rates, times, names.

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Text that others have written, for a terminal: a space in place of each character that a terminal would obey, or that
/// changes the order of what is shown (Unicode's marks of direction).
#[must_use]
pub fn printable(text: &str) -> String {
    let is_mark =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || is_mark(c) { ' ' } else { c }).collect()
}

/// A number of bytes, in the largest unit of 1024 that it fills: `1023 B`, `1.5 MiB`.
#[allow(clippy::cast_precision_loss, reason = "a size for the eye")]
pub fn size(bytes: u64) -> String {
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    let n = bytes as f64 / f64::from(1024_u32).powi(unit as i32);
    if unit == 0 { format!("{bytes} B") } else { format!("{n:.1} {}", UNITS[unit as usize]) }
}

/// Three digits, and a letter for thousands: `12`, `3.4k`, `120k`, `1.2M`.
pub fn count(n: f64) -> String {
    let (n, unit) = match n {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e4 => (n / 1e3, "k"),
        n => (n, ""),
    };
    let digits = usize::from(n < 100.0 && n.fract() != 0.0);
    format!("{n:.digits$}{unit}")
}

/// A rate, in bytes per second: `1.5 MiB/s`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", size(bytes_per_s.max(0.0) as u64))
}

/// Milliseconds, in whole units: `999ms`, `119s`, `2min`, `2h`, `2d`.
pub fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}min", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        _ => format!("{}d", ms / 86_400_000),
    }
}

/// A short time, given in seconds: `640 µs`, `3.2 ms`, `1.20 s`.
pub fn short_time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let sizes: Vec<_> = [0, 1023, 1024, 1_572_864, u64::MAX].into_iter().map(size).collect();
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "16777216.0 TiB"]);
    }

    #[test]
    fn counts_read_well() {
        let counts: Vec<_> = [0.0, 7.0, 7.25, 1234.0, 12_345.0, 1_250_000.0].into_iter().map(count).collect();
        assert_eq!(counts, ["0", "7", "7.2", "1234", "12.3k", "1.2M"]);
    }

    #[test]
    fn times_read_well() {
        let times: Vec<_> = [0, 999, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].into_iter().map(time).collect();
        assert_eq!(times, ["0ms", "999ms", "1s", "119s", "2min", "2h", "2d"]);
        assert_eq!([0.000_64, 0.0032, 1.2].map(short_time), ["640 µs", "3.2 ms", "1.20 s"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_printed() {
        assert_eq!(printable("a\u{1b}[31mb\u{9b}c\u{202e}d\ne é"), "a [31mb c d e é");
    }
}
