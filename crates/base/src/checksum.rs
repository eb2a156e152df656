//! CRC32C (Castagnoli), as in RFC 3720.

/// The CRC32C of `bytes`.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// A CRC32C over several pieces, equal to the CRC of their concatenation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// The CRC of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(crc32c::crc32c_append(self.0, bytes))
    }

    /// Adds a number as 8 bytes, little-endian.
    #[must_use]
    pub fn u64(self, n: u64) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    /// Adds a number as 4 bytes, little-endian.
    #[must_use]
    pub fn u32(self, n: u32) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    /// The CRC32C of everything added.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_equal_the_whole() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(Crc::new().bytes(b"1234").bytes(b"56789").finish(), crc(b"123456789"));
        assert_eq!(Crc::new().u32(7).finish(), crc(&7u32.to_le_bytes()));
    }
}
