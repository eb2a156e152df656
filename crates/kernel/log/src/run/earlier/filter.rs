//! A Bloom filter over the logs of one object: a lookup of a log that the object does not hold costs no block read.
//!
//! Ten bits per log and six probes give about 1 % of false answers. Probe *i* is bit `high64((a + i·b) × bits)` where
//! `a` and `b | 1` are two finalizers of the id (SplitMix64's); bit *n* is bit `n % 8` of byte `n / 8`.

use thalweg_base::LogId;

const BITS_PER_LOG: u64 = 10;
const PROBES: u64 = 6;

/// How long the filter of so many logs is.
fn bytes(logs: u64) -> u64 {
    logs.saturating_mul(BITS_PER_LOG).div_ceil(64) * 8
}

/// The filter's bytes for these logs.
pub(in crate::run) fn build(logs: &[LogId]) -> Vec<u8> {
    let bytes = bytes(logs.len() as u64);
    let mut filter = vec![0u8; bytes as usize];
    for log in logs {
        for bit in probes(*log, bytes * 8) {
            filter[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    filter
}

/// May the object hold `log`? No is certain.
pub(super) fn may_hold(filter: &[u8], log: LogId) -> bool {
    !filter.is_empty()
        && probes(log, filter.len() as u64 * 8).all(|bit| filter[(bit / 8) as usize] & (1 << (bit % 8)) != 0)
}

fn probes(log: LogId, bits: u64) -> impl Iterator<Item = u64> {
    let a = mix(log.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let b = mix(a) | 1;
    (0..PROBES).map(move |i| {
        let hash = a.wrapping_add(i.wrapping_mul(b));
        ((u128::from(hash) * u128::from(bits)) >> 64) as u64
    })
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_there_is_never_denied_and_others_mostly_are() {
        let logs: Vec<_> = (0..10_000).map(|n| LogId(n * 3)).collect();
        let filter = build(&logs);
        assert!(logs.iter().all(|log| may_hold(&filter, *log)));
        let wrong = (0..10_000).filter(|n| may_hold(&filter, LogId(n * 3 + 1))).count();
        assert!(wrong < 200, "{wrong} of 10000");
        assert!(!may_hold(&build(&[]), LogId(1)));
    }
}
