//! A Bloom filter over the prefixes of one partition: a lookup of a prefix that is not there reads no data block.
//!
//! Ten bits for each prefix and six probes give about 1 % of false answers. A ribbon filter would need a third less
//! space, and several hundred lines; filters stand in partitions of at most some ten kilobytes, and are read with the
//! index that a lookup needs anyway.

const BITS_EACH: u64 = 10;
const PROBES: u64 = 6;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a prefix. It stands in files: it never changes.
pub(crate) fn hash(prefix: &[u8]) -> u64 {
    let mut words = prefix.chunks_exact(8);
    let mut state = SEED ^ prefix.len() as u64;
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        state = mix(state ^ u64::from_le_bytes(bytes)).wrapping_add(SEED);
    }
    let rest = words.remainder().iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    mix(state ^ rest)
}

/// The filter's bytes for prefixes with these hashes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let bytes = (hashes.len() as u64 * BITS_EACH).div_ceil(64) * 8;
    let mut filter = vec![0u8; bytes as usize];
    for hash in hashes {
        for bit in probes(*hash, bytes * 8) {
            filter[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    filter
}

/// May the partition hold a prefix with this hash? No is certain. An empty filter knows nothing.
pub(crate) fn may_hold(filter: &[u8], hash: u64) -> bool {
    filter.is_empty()
        || probes(hash, filter.len() as u64 * 8).all(|bit| filter[(bit / 8) as usize] & (1 << (bit % 8)) != 0)
}

fn probes(hash: u64, bits: u64) -> impl Iterator<Item = u64> {
    let step = mix(hash.wrapping_add(SEED)) | 1;
    (0..PROBES).map(move |i| {
        let probe = hash.wrapping_add(i.wrapping_mul(step));
        ((u128::from(probe) * u128::from(bits)) >> 64) as u64
    })
}

/// SplitMix64's finalizer.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_is_there_is_never_denied_and_others_mostly_are() {
        let of = |n: u64| hash(format!("user/{n}").as_bytes());
        let hashes: Vec<_> = (0..10_000).map(of).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|hash| may_hold(&filter, *hash)));
        let wrong = (10_000..20_000).filter(|n| may_hold(&filter, of(*n))).count();
        assert!(wrong < 200, "{wrong} of 10000");
    }

    #[test]
    fn hashes_are_pinned() {
        assert_eq!(
            [hash(b""), hash(b"abc"), hash(b"12345678")],
            [16_294_208_416_658_607_535, 13_814_605_523_661_735_770, 2_856_976_976_383_962_392]
        );
    }
}
