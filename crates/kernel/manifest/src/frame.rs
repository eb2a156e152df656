//! The stored form of a root: `docs/format/manifest.md`.

use crate::{ManifestError, Root};
use bytes::Bytes;
use thalweg_base::{Decoder, Encoder, crc};

pub(crate) const MAGIC: [u8; 8] = *b"THWGMANI";
pub(crate) const FORMAT: u32 = 1;
/// Magic, format, flags, version, epoch, nonce, length.
const HEAD_BYTES: usize = 48;
const CRC_BYTES: usize = 4;

/// One stored body, with its version, the owner's epoch and the writer's nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// As in [`Root::version`].
    pub version: u64,
    /// As in [`Root::epoch`].
    pub epoch: u64,
    /// Differs between any two bodies that writers make.
    pub nonce: u64,
    /// As in [`Root::body`].
    pub body: Bytes,
}

impl Frame {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.body.len() + CRC_BYTES);
        out.extend_from_slice(&MAGIC);
        out.put_u32(FORMAT);
        out.put_u32(0);
        out.put_u64(self.version);
        out.put_u64(self.epoch);
        out.put_u64(self.nonce);
        out.put_u64(self.body.len() as u64);
        out.extend_from_slice(&self.body);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    /// The frame of stored bytes; refuses damaged ones and those of a newer format.
    pub fn decode(stored: &[u8]) -> Result<Self, ManifestError> {
        let damaged = |what: &str| ManifestError::Corrupt(what.to_owned());
        if !stored.starts_with(&MAGIC) {
            return Err(damaged("it does not start with its magic"));
        }
        let mut head = Decoder::new(&stored[MAGIC.len()..]);
        let format = head.u32().map_err(|_| damaged("it is cut in its head"))?;
        // A newer format may put its checksum elsewhere, so this comes before the check.
        if format > FORMAT {
            return Err(ManifestError::Newer { found: format, known: FORMAT });
        }
        let (content, sum) = stored
            .split_last_chunk::<CRC_BYTES>()
            .filter(|(content, _)| content.len() >= HEAD_BYTES)
            .ok_or_else(|| damaged("it is cut in its head"))?;
        if crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("its checksum differs"));
        }
        let mut fields = || -> Result<_, thalweg_base::DecodeError> {
            let flags = head.u32()?;
            Ok((flags, head.u64()?, head.u64()?, head.u64()?, head.u64()?))
        };
        let (flags, version, epoch, nonce, len) = fields().map_err(|_| damaged("it is cut in its head"))?;
        let body = &content[HEAD_BYTES..];
        if format != FORMAT || flags != 0 || version == 0 || len != body.len() as u64 {
            return Err(damaged("its head contradicts itself"));
        }
        Ok(Self { version, epoch, nonce, body: Bytes::copy_from_slice(body) })
    }

    /// The root without the writer's nonce.
    #[must_use]
    pub fn root(&self) -> Root {
        Root { version: self.version, epoch: self.epoch, body: self.body.clone() }
    }
}

/// A fuzz target's way in: takes `data` for a stored root, as it is and with a checksum that fits.
#[doc(hidden)]
pub fn fuzz_manifest(data: &[u8]) {
    let sealed = [data, &crc(data).to_le_bytes()].concat();
    for stored in [data, &sealed] {
        if let Ok(frame) = Frame::decode(stored) {
            assert_eq!(frame.encode(), stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Frame {
        Frame { version: 3, epoch: 2, nonce: 0x0102_0304_0506_0708, body: Bytes::from_static(b"root") }
    }

    #[test]
    fn the_form_is_pinned() {
        let mut expected = b"THWGMANI\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x08\x07\x06\x05\x04\x03\x02\x01\x04\0\0\0\0\0\0\0root");
        expected.extend_from_slice(&[0xac, 0xdc, 0x91, 0xd6]);
        assert_eq!(sample().encode(), expected);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_refused() {
        let stored = sample().encode();
        assert_eq!(Frame::decode(&stored), Ok(sample()));
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..stored.len() {
            assert!(Frame::decode(&stored[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let mut stored = sample().encode();
        stored[8] = 2;
        assert_eq!(Frame::decode(&stored), Err(ManifestError::Newer { found: 2, known: 1 }));
    }

    proptest! {
        #[test]
        fn frames_round_trip(version in 1u64.., epoch: u64, nonce: u64, body: Vec<u8>) {
            let frame = Frame { version, epoch, nonce, body: body.into() };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>, with_magic: bool) {
            if with_magic {
                bytes.splice(0..0, MAGIC.iter().copied().chain([1, 0, 0, 0]));
            }
            prop_assert!(Frame::decode(&bytes).is_err());
            fuzz_manifest(&bytes);
            fuzz_manifest(&sample().encode()[..52]);
        }
    }
}
