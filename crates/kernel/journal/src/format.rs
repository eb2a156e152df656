//! The bytes of segments, batches and frames: see `docs/format/journal.md`.

use thalweg_base::{Crc, Decoder, Encoder, Lsn};

pub(crate) const VERSION: u32 = 1;
/// A segment's first batch stands one page into the file.
pub(crate) const SEGMENT_HEADER: u64 = 4096;
pub(crate) const BATCH_HEADER: usize = 24;
pub(crate) const FRAME_HEADER: usize = 8;
pub(crate) const BATCH_MAGIC: &[u8; 4] = b"THb1";

const SEGMENT_MAGIC: &[u8; 8] = b"THALWEGJ";
const SEGMENT_FIELDS: usize = 40;

/// The folder of the journal's segments.
pub(crate) const FOLDER: &str = "journal";

pub(crate) fn segment_path(number: u64) -> String {
    format!("{FOLDER}/{number:016}.seg")
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    if digits.len() < 16 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) generation: u64,
    pub(crate) base: Lsn,
    /// Size of the file.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentError {
    /// Not a header, or a torn or damaged one.
    Invalid,
    /// A whole header of another version.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER as usize);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(SEGMENT_HEADER as u32);
        out.put_u64(self.generation);
        out.put_u64(self.base.0);
        out.put_u64(self.bytes);
        let crc = Crc::new().bytes(&out).finish();
        out.put_u32(crc);
        out.resize(SEGMENT_HEADER as usize, 0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let (fields, rest) = bytes.split_at_checked(SEGMENT_FIELDS).ok_or(SegmentError::Invalid)?;
        let crc = Decoder::new(rest).u32().map_err(|_| SegmentError::Invalid)?;
        if !fields.starts_with(SEGMENT_MAGIC) || crc != Crc::new().bytes(fields).finish() {
            return Err(SegmentError::Invalid);
        }
        let mut d = Decoder::new(&fields[SEGMENT_MAGIC.len()..]);
        let mut read =
            || -> Result<_, thalweg_base::DecodeError> { Ok((d.u32()?, d.u32()?, d.u64()?, d.u64()?, d.u64()?)) };
        let (version, header, generation, base, bytes) = read().map_err(|_| SegmentError::Invalid)?;
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        if u64::from(header) != SEGMENT_HEADER || bytes < SEGMENT_HEADER {
            return Err(SegmentError::Invalid);
        }
        Ok(Self { generation, base: Lsn(base), bytes })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) frames: u32,
    /// Length of the batch, this header included.
    pub(crate) bytes: u32,
    /// Everything below was durable when this header was written.
    pub(crate) known_durable: Lsn,
}

impl BatchHeader {
    pub(crate) fn encode(&self, seal: u64, lsn: Lsn) -> [u8; BATCH_HEADER] {
        let mut out = [0; BATCH_HEADER];
        out[..4].copy_from_slice(BATCH_MAGIC);
        out[8..12].copy_from_slice(&self.frames.to_le_bytes());
        out[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.known_durable.0.to_le_bytes());
        let crc = Crc::new().bytes(&out[8..]).u64(seal).u64(lsn.0).finish();
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the front of `bytes`, if it was written for this segment and position.
    pub(crate) fn decode(bytes: &[u8], seal: u64, lsn: Lsn) -> Option<Self> {
        let head = bytes.first_chunk::<BATCH_HEADER>()?;
        let mut d = Decoder::new(head.strip_prefix(BATCH_MAGIC)?);
        let crc = d.u32().ok()?;
        if crc != Crc::new().bytes(d.rest()).u64(seal).u64(lsn.0).finish() {
            return None;
        }
        let (frames, bytes, known) = (d.u32().ok()?, d.u32().ok()?, Lsn(d.u64().ok()?));
        let sound = bytes as usize >= BATCH_HEADER && known <= lsn;
        sound.then_some(Self { frames, bytes, known_durable: known })
    }
}

/// `payload` is the CRC state after the payload, which is computed before the frame has a position.
pub(crate) fn frame_header(payload: Crc, len: u32, seal: u64, lsn: Lsn) -> [u8; FRAME_HEADER] {
    let mut out = [0; FRAME_HEADER];
    out[..4].copy_from_slice(&len.to_le_bytes());
    // In one go: each call has its price.
    let mut place = [0; 20];
    place[..4].copy_from_slice(&len.to_le_bytes());
    place[4..12].copy_from_slice(&seal.to_le_bytes());
    place[12..].copy_from_slice(&lsn.0.to_le_bytes());
    out[4..].copy_from_slice(&payload.bytes(&place).finish().to_le_bytes());
    out
}

/// The payload length that the frame at the front of `bytes` claims, unchecked.
pub(crate) fn frame_len(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|len| u32::from_le_bytes(*len))
}

/// Checks the frame at the front of `bytes` and gives its payload's length.
pub(crate) fn check_frame(bytes: &[u8], seal: u64, lsn: Lsn) -> Result<u32, &'static str> {
    let header = bytes.first_chunk::<FRAME_HEADER>().ok_or("its header is cut off")?;
    let len = frame_len(header).ok_or("its header is cut off")?;
    let payload = bytes.get(FRAME_HEADER..FRAME_HEADER + len as usize).ok_or("it runs over its end")?;
    if frame_header(Crc::new().bytes(payload), len, seal, lsn) == *header {
        Ok(len)
    } else {
        Err("its checksum does not match")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_segment_header_has_these_bytes() {
        let header = SegmentHeader { generation: 7, base: Lsn(0x1_0000), bytes: 64 << 20 };
        let bytes = header.encode();
        assert_eq!(bytes.len(), 4096);
        let mut want = b"THALWEGJ".to_vec();
        want.extend([1, 0, 0, 0, 0, 0x10, 0, 0]);
        want.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        want.extend([0, 0, 1, 0, 0, 0, 0, 0]);
        want.extend([0, 0, 0, 4, 0, 0, 0, 0]);
        want.extend(GOLDEN_SEGMENT_CRC);
        assert_eq!(bytes[..44], want);
        assert!(bytes[44..].iter().all(|b| *b == 0));
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn a_batch_has_these_bytes() {
        let header = BatchHeader { frames: 1, bytes: 37, known_durable: Lsn(0x99) };
        let bytes = header.encode(7, Lsn(0x100));
        let mut want = b"THb1".to_vec();
        want.extend(GOLDEN_BATCH_CRC);
        want.extend([1, 0, 0, 0, 37, 0, 0, 0, 0x99, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[..], want);
        let frame = frame_header(Crc::new().bytes(b"hello"), 5, 7, Lsn(0x118));
        let mut want = vec![5, 0, 0, 0];
        want.extend(GOLDEN_FRAME_CRC);
        assert_eq!(frame[..], want);
    }

    const GOLDEN_SEGMENT_CRC: [u8; 4] = [0xc4, 0xa4, 0x6c, 0x7b];
    const GOLDEN_BATCH_CRC: [u8; 4] = [0x4f, 0x19, 0xba, 0xe5];
    const GOLDEN_FRAME_CRC: [u8; 4] = [0xea, 0x2b, 0xc8, 0xfb];

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = SegmentHeader { generation: 7, base: Lsn(0), bytes: 8192 }.encode();
        bytes[8] = 2;
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentError::Invalid));
        let crc = Crc::new().bytes(&bytes[..40]).finish();
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentError::Version(2)));
    }

    #[test]
    fn names_sort_by_generation() {
        assert_eq!(segment_path(7), "journal/0000000000000007.seg");
        assert_eq!(segment_number("0000000000000007.seg"), Some(7));
        for other in ["7.seg", "0000000000000007", "000000000000000x.seg", "+000000000000007.seg"] {
            assert_eq!(segment_number(other), None);
        }
    }

    proptest! {
        #[test]
        fn headers_pass_only_for_their_generation_and_place(
            frames: u32, bytes in 24u32.., known in 0u64..1 << 60, more in 0u64..1 << 60, seal: u64, other: u64,
        ) {
            let header = BatchHeader { frames, bytes, known_durable: Lsn(known) };
            let lsn = Lsn(known + more);
            let encoded = header.encode(seal, lsn);
            prop_assert_eq!(BatchHeader::decode(&encoded, seal, lsn), Some(header));
            prop_assert_eq!(BatchHeader::decode(&encoded, seal, lsn.plus(1)), None);
            if other != seal {
                prop_assert_ne!(BatchHeader::decode(&encoded, other, lsn), Some(header));
            }
            for cut in 0..encoded.len() {
                prop_assert_eq!(BatchHeader::decode(&encoded[..cut], seal, lsn), None);
            }
        }

        #[test]
        fn frames_pass_only_for_their_generation_and_place(payload: Vec<u8>, seal: u64, lsn in 0u64..1 << 60) {
            let len = payload.len() as u32;
            let mut bytes = frame_header(Crc::new().bytes(&payload), len, seal, Lsn(lsn)).to_vec();
            bytes.extend(&payload);
            prop_assert_eq!(check_frame(&bytes, seal, Lsn(lsn)), Ok(len));
            prop_assert!(check_frame(&bytes, seal.wrapping_add(1), Lsn(lsn)).is_err());
            prop_assert!(check_frame(&bytes, seal, Lsn(lsn + 1)).is_err());
            for cut in 0..bytes.len() {
                prop_assert!(check_frame(&bytes[..cut], seal, Lsn(lsn)).is_err());
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = SegmentHeader::decode(&bytes);
            let _ = BatchHeader::decode(&bytes, 1, Lsn(1));
            let _ = check_frame(&bytes, 1, Lsn(1));
        }
    }
}
