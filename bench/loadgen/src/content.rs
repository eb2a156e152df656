//! Content of messages: a function of stream and number, so that a reader can verify it.

use std::sync::OnceLock;

const BLOCK: usize = 64 << 10;

fn block() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut rng = oorandom::Rand64::new(42);
        (0..2 * BLOCK / 8).flat_map(|_| rng.rand_u64().to_le_bytes()).collect()
    })
}

/// Puts a message of `size` bytes at the end of `out`: stream and number in front, as far as they fit, then noise.
pub(crate) fn message(stream: u64, number: u64, size: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(format!("{stream:016x}{number:016x}").as_bytes());
    out.truncate(begin + size);
    let mut missing = size - (out.len() - begin);
    let from = number.wrapping_mul(97) as usize % BLOCK;
    while missing > 0 {
        let many = missing.min(BLOCK);
        out.extend_from_slice(&block()[from..from + many]);
        missing -= many;
    }
}

/// The checksum of a stream's messages in a row.
pub(crate) fn checksum(stream: u64, messages: u64, size: usize) -> u32 {
    let mut bytes = Vec::with_capacity(size);
    (0..messages).fold(0, |sum, number| {
        bytes.clear();
        message(stream, number, size, &mut bytes);
        crc32c::crc32c_append(sum, &bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_size_and_differs_from_every_other() {
        for size in [0, 5, 32, 1024, 200_000] {
            let mut out = vec![1];
            message(3, 4, size, &mut out);
            assert_eq!(out.len(), size + 1);
        }
        assert_ne!(checksum(1, 10, 100), checksum(2, 10, 100));
        assert_ne!(checksum(1, 10, 100), checksum(1, 11, 100));
    }
}
