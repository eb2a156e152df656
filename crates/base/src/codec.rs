//! The byte codec of every format of ours: little-endian fixed integers, LEB128 varints, length-prefixed bytes.

use thiserror::Error;

/// Why bytes could not be decoded. It says nothing about where they came from: the caller adds that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The slice ends this many bytes too early.
    #[error("{0} byte(s) needed beyond the end")]
    Truncated(usize),
    /// A varint has more than 10 bytes, or a value beyond 64 bits.
    #[error("a varint runs over 64 bits")]
    Varint,
    /// A text is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// The value `got` is none of those of `what`.
    #[error("unknown {what}: {got}")]
    Unknown { what: &'static str, got: u64 },
    /// This many bytes remain after the last value.
    #[error("{0} byte(s) left over at the end")]
    Trailing(usize),
    /// A number does not fit the named type or bound.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// Appends values to a byte vector.
pub trait Encoder {
    /// 1 byte.
    fn put_u8(&mut self, n: u8);
    /// 4 bytes, little-endian.
    fn put_u32(&mut self, n: u32);
    /// 8 bytes, little-endian.
    fn put_u64(&mut self, n: u64);
    /// LEB128: 1 byte below 128, at most 10.
    fn put_varint(&mut self, n: u64);
    /// A varint length, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Encoder for Vec<u8> {
    fn put_u8(&mut self, n: u8) {
        self.push(n);
    }

    fn put_u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_le_bytes());
    }

    fn put_u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_le_bytes());
    }

    fn put_varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.push((n as u8) | 0x80);
            n >>= 7;
        }
        self.push(n as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Takes values off the front of a byte slice. Never panics, whatever the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that are not taken yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all bytes are taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses leftovers: call it last.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| DecodeError::Truncated(n - self.rest.len()))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or_else(|| DecodeError::Truncated(N - self.rest.len()))?;
        self.rest = rest;
        Ok(*head)
    }

    /// 1 byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// 4 bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// 8 bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// LEB128, of at most 10 bytes.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Varint);
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(DecodeError::Varint)
    }

    /// A varint that must fit in `u32`.
    pub fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Range("u32"))
    }

    /// A varint length, then as many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = usize::try_from(self.varint()?).map_err(|_| DecodeError::Range("length"))?;
        self.take(n)
    }

    /// [`Decoder::bytes`] as UTF-8.
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Utf8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_round_trip(a: u64, b: u32, c: u8, s in ".{0,40}") {
            let mut out = Vec::new();
            out.put_varint(a);
            out.put_u32(b);
            out.put_u8(c);
            out.put_bytes(s.as_bytes());
            out.put_u64(a);
            let mut d = Decoder::new(&out);
            prop_assert_eq!(d.varint(), Ok(a));
            prop_assert_eq!(d.u32(), Ok(b));
            prop_assert_eq!(d.u8(), Ok(c));
            prop_assert_eq!(d.str(), Ok(s.as_str()));
            prop_assert_eq!(d.u64(), Ok(a));
            prop_assert_eq!(d.end(), Ok(()));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let mut d = Decoder::new(&bytes);
            while d.varint().is_ok() {}
            let mut d = Decoder::new(&bytes);
            while d.bytes().is_ok() && !d.is_empty() {}
        }
    }

    #[test]
    fn an_overlong_varint_is_refused() {
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), Err(DecodeError::Varint));
        assert_eq!(Decoder::new(&[0x80]).varint(), Err(DecodeError::Truncated(1)));
    }
}
