//! Cursors: numbers of 20-second intervals, so that readers at the same place share one cached answer, and never loop
//! on it (protocol section 10.1).

use thalweg_base::Millis;

/// 2024-10-09T00:00:00Z.
const EPOCH_MS: u64 = 1_728_432_000_000;
const INTERVAL_MS: u64 = 20_000;
/// An hour of jitter at most, in intervals.
const JITTER_MAX: u64 = 3_600_000 / INTERVAL_MS;
/// The largest cursor that is accepted.
const CURSOR_MAX: u64 = (1 << 53) - 1;

/// The cursor of an answer: the present interval, or the client's echoed cursor plus a jitter.
///
/// The jitter is a function of the echoed cursor, so that clients that share a cache stay together, even if two of them
/// reach the server.
#[must_use]
pub fn next(now: Millis, echoed: Option<u64>) -> u64 {
    let present = now.0.saturating_sub(EPOCH_MS) / INTERVAL_MS;
    match echoed {
        Some(echoed) if echoed >= present && echoed <= CURSOR_MAX => echoed + 1 + spread(echoed) % JITTER_MAX,
        _ => present,
    }
}

/// A fixed, even spreading of numbers (the finaliser of SplitMix64).
const fn spread(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A client's echoed cursor. An invalid one is ignored, as cursors only help caches.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 16 && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_count_from_the_epoch() {
        assert_eq!(next(Millis(EPOCH_MS), None), 0);
        assert_eq!(next(Millis(EPOCH_MS + 59_999), None), 2);
    }

    proptest! {
        #[test]
        fn an_echoed_cursor_never_comes_back(now in 0..u64::MAX / 2, ahead in 0..1_000u64) {
            let now = Millis(now);
            let echoed = next(now, None).saturating_add(ahead);
            prop_assume!(echoed <= CURSOR_MAX);
            let answer = next(now, Some(echoed));
            prop_assert!(answer > echoed && answer <= echoed + JITTER_MAX);
        }

        #[test]
        fn garbage_is_ignored(text: Vec<u8>) {
            let _ = next(Millis(0), parse(&text));
        }
    }
}
