//! The bytes of segments, batches and frames: see `docs/format/journal.md`.

use thalweg_base::{Crc, Decoder, Encoder, Lsn};

pub(crate) const VERSION: u32 = 2;
/// Without term and salt: checksums know the segment's number.
const VERSION_1: u32 = 1;
/// A segment's first batch stands one page into the file.
pub(crate) const SEGMENT_HEADER: u64 = 4096;
/// The header's fields stand twice in that page, in different sectors.
const SEGMENT_COPY: usize = 2048;
pub(crate) const BATCH_HEADER: usize = 24;
pub(crate) const FRAME_HEADER: usize = 8;

const SEGMENT_MAGIC: &[u8; 8] = b"THALWEGJ";
const SEGMENT_FIELDS_1: usize = 40;
const SEGMENT_FIELDS: usize = 56;
const BATCH_MAGIC_1: [u8; 4] = *b"THb1";

/// The folder of the journal's segments.
pub(crate) const FOLDER: &str = "journal";

pub(crate) fn segment_path(number: u64) -> String {
    format!("{FOLDER}/{number:016}.seg")
}

/// The name of a blank that is being renumbered: see `arrange.rs`.
pub(crate) fn spare_path(number: u64) -> String {
    format!("{FOLDER}/{number:016}.spare")
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    number_of(name, ".seg")
}

pub(crate) fn spare_number(name: &str) -> Option<u64> {
    number_of(name, ".spare")
}

fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() < 16 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The mark of one term in the checksums of its batches and frames. It is random in each term, and no answer reveals
/// it: a client that chooses payloads can neither guess it nor forge a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The first bytes of a batch.
    pub(crate) magic: [u8; 4],
    /// Part of every checksum.
    key: u64,
}

impl Seal {
    pub(crate) fn of_term(term: u64, salt: u64) -> Self {
        // The odd constant of Fibonacci hashing spreads terms, should two of them draw the same salt.
        let key = salt ^ term.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // A blank is zeros: no batch starts like it.
        Self { magic: (key as u32).max(1).to_le_bytes(), key }
    }

    fn of_number(number: u64) -> Self {
        Self { magic: BATCH_MAGIC_1, key: number }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    pub(crate) base: Lsn,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// The opening of the journal that wrote it: each has a larger one. Zero in segments of version 1.
    pub(crate) term: u64,
    /// Drawn at random by each opening.
    pub(crate) salt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentError {
    /// Not a header, or a torn or damaged one.
    Invalid,
    /// A whole header of another version.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn seal(&self) -> Seal {
        if self.term == 0 { Seal::of_number(self.number) } else { Seal::of_term(self.term, self.salt) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(SEGMENT_FIELDS + 4);
        fields.extend_from_slice(SEGMENT_MAGIC);
        fields.put_u32(VERSION);
        fields.put_u32(SEGMENT_HEADER as u32);
        for field in [self.number, self.base.0, self.bytes, self.term, self.salt] {
            fields.put_u64(field);
        }
        let crc = Crc::new().bytes(&fields).finish();
        fields.put_u32(crc);
        let mut out = vec![0; SEGMENT_HEADER as usize];
        for copy in [0, SEGMENT_COPY] {
            out[copy..copy + fields.len()].copy_from_slice(&fields);
        }
        out
    }

    /// Decodes a segment's header. If its two copies differ, an opening that replaced the header was cut short: the
    /// copy of the later term counts.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let copies = [bytes, bytes.get(SEGMENT_COPY..).unwrap_or_default()].map(Self::decode_copy);
        match copies {
            [Ok(first), Ok(second)] => Ok(if second.term > first.term { second } else { first }),
            [Ok(one), _] | [_, Ok(one)] => Ok(one),
            [Err(SegmentError::Version(other)), _] | [_, Err(SegmentError::Version(other))] => {
                Err(SegmentError::Version(other))
            }
            _ => Err(SegmentError::Invalid),
        }
    }

    fn decode_copy(bytes: &[u8]) -> Result<Self, SegmentError> {
        let invalid = |_| SegmentError::Invalid;
        let mut d = Decoder::new(bytes.strip_prefix(SEGMENT_MAGIC).ok_or(SegmentError::Invalid)?);
        let (version, header) = (d.u32().map_err(invalid)?, d.u32().map_err(invalid)?);
        let len = if version == VERSION_1 { SEGMENT_FIELDS_1 } else { SEGMENT_FIELDS };
        let (fields, rest) = bytes.split_at_checked(len).ok_or(SegmentError::Invalid)?;
        let crc = Decoder::new(rest).u32().map_err(invalid)?;
        if crc != Crc::new().bytes(fields).finish() {
            return Err(SegmentError::Invalid);
        }
        if version != VERSION && version != VERSION_1 {
            return Err(SegmentError::Version(version));
        }
        let mut next = || d.u64().map_err(invalid);
        let (number, base, bytes) = (next()?, Lsn(next()?), next()?);
        let (term, salt) = if version == VERSION { (next()?, next()?) } else { (0, 0) };
        if u64::from(header) != SEGMENT_HEADER || bytes < SEGMENT_HEADER || (version == VERSION && term == 0) {
            return Err(SegmentError::Invalid);
        }
        Ok(Self { number, base, bytes, term, salt })
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

/// What a batch's header says was durable when it was sent. Its checksum is not verified: the bytes must be a whole batch.
#[must_use]
pub fn known_durable(batch: &[u8]) -> Option<Lsn> {
    Some(Lsn(u64::from_le_bytes(batch.get(16..24)?.try_into().ok()?)))
}

impl BatchHeader {
    pub(crate) fn encode(&self, seal: Seal, lsn: Lsn) -> [u8; BATCH_HEADER] {
        let mut out = [0; BATCH_HEADER];
        out[..4].copy_from_slice(&seal.magic);
        out[8..12].copy_from_slice(&self.frames.to_le_bytes());
        out[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.known_durable.0.to_le_bytes());
        let crc = Crc::new().bytes(&out[8..]).u64(seal.key).u64(lsn.0).finish();
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the front of `bytes`, if it was written under this seal for this position.
    pub(crate) fn decode(bytes: &[u8], seal: Seal, lsn: Lsn) -> Option<Self> {
        let head = bytes.first_chunk::<BATCH_HEADER>()?;
        let mut d = Decoder::new(head.strip_prefix(&seal.magic)?);
        let crc = d.u32().ok()?;
        if crc != Crc::new().bytes(d.rest()).u64(seal.key).u64(lsn.0).finish() {
            return None;
        }
        let (frames, bytes, known) = (d.u32().ok()?, d.u32().ok()?, Lsn(d.u64().ok()?));
        let sound = bytes as usize >= BATCH_HEADER && known <= lsn;
        sound.then_some(Self { frames, bytes, known_durable: known })
    }
}

/// `payload` is the CRC state after the payload, which is computed before the frame has a position.
pub(crate) fn frame_header(payload: Crc, len: u32, seal: Seal, lsn: Lsn) -> [u8; FRAME_HEADER] {
    let mut out = [0; FRAME_HEADER];
    out[..4].copy_from_slice(&len.to_le_bytes());
    // In one go: each call has its price.
    let mut place = [0; 20];
    place[..4].copy_from_slice(&len.to_le_bytes());
    place[4..12].copy_from_slice(&seal.key.to_le_bytes());
    place[12..].copy_from_slice(&lsn.0.to_le_bytes());
    out[4..].copy_from_slice(&payload.bytes(&place).finish().to_le_bytes());
    out
}

/// The payload length that the frame at the front of `bytes` claims, unchecked.
pub(crate) fn frame_len(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|len| u32::from_le_bytes(*len))
}

/// Checks the frame at the front of `bytes` and gives its payload's length.
pub(crate) fn check_frame(bytes: &[u8], seal: Seal, lsn: Lsn) -> Result<u32, &'static str> {
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

    const HEADER: SegmentHeader =
        SegmentHeader { number: 7, base: Lsn(0x1_0000), bytes: 64 << 20, term: 3, salt: 0x1122_3344_5566_7788 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn a_segment_header_has_these_bytes() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len(), 4096);
        let want = concat!(
            "5448414c5745474a0200000000100000070000000000000000000100000000000000000400000000",
            "03000000000000008877665544332211",
            "d73b95cd"
        );
        assert_eq!(hex(&bytes[..60]), want);
        assert_eq!(bytes[2048..2108], bytes[..60]);
        assert!(bytes[60..2048].iter().chain(&bytes[2108..]).all(|b| *b == 0));
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    }

    #[test]
    fn a_segment_header_of_version_1_is_read() {
        let mut bytes = b"THALWEGJ\x01\0\0\0\0\x10\0\0\x07\0\0\0\0\0\0\0".to_vec();
        bytes.extend([0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0xc4, 0xa4, 0x6c, 0x7b]);
        bytes.resize(4096, 0);
        let header = SegmentHeader { term: 0, salt: 0, ..HEADER };
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        assert_eq!(header.seal(), Seal { magic: *b"THb1", key: 7 });
    }

    #[test]
    fn a_batch_has_these_bytes() {
        let header = BatchHeader { frames: 1, bytes: 37, known_durable: Lsn(0x99) };
        let of_version_1 = Seal::of_number(7);
        let frame = |seal| hex(&frame_header(Crc::new().bytes(b"hello"), 5, seal, Lsn(0x118)));
        assert_eq!(hex(&header.encode(of_version_1, Lsn(0x100))), "544862314f19bae501000000250000009900000000000000");
        assert_eq!(frame(of_version_1), "05000000ea2bc8fb");
        assert_eq!(hex(&header.encode(HEADER.seal(), Lsn(0x100))), "b703b9280eb8a07801000000250000009900000000000000");
        assert_eq!(frame(HEADER.seal()), "05000000ab8ad266");
    }

    #[test]
    fn one_copy_of_a_segment_header_is_enough_and_the_later_term_counts() {
        let bytes = HEADER.encode();
        for damaged in [5, 45, 59, 2048, 2107] {
            let mut bytes = bytes.clone();
            bytes[damaged] ^= 1;
            assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER), "byte {damaged}");
            bytes[damaged ^ 2048] ^= 1;
            assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentError::Invalid));
        }
        let later = SegmentHeader { term: 4, salt: 9, ..HEADER };
        for (first, second) in [(HEADER, later), (later, HEADER)] {
            let mut bytes = first.encode();
            bytes[2048..].copy_from_slice(&second.encode()[2048..]);
            assert_eq!(SegmentHeader::decode(&bytes), Ok(later));
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = HEADER.encode();
        bytes[2048] ^= 1;
        bytes[8] = 9;
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentError::Invalid));
        let crc = Crc::new().bytes(&bytes[..56]).finish();
        bytes[56..60].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentError::Version(9)));
    }

    #[test]
    fn names_sort_by_number() {
        assert_eq!(segment_path(7), "journal/0000000000000007.seg");
        assert_eq!(segment_number("0000000000000007.seg"), Some(7));
        for other in ["7.seg", "0000000000000007", "000000000000000x.seg", "+000000000000007.seg"] {
            assert_eq!(segment_number(other), None);
        }
    }

    proptest! {
        #[test]
        fn headers_pass_only_for_their_term_and_place(
            frames: u32, bytes in 24u32.., known in 0u64..1 << 60, more in 0u64..1 << 60, salt: u64, term in 1u64..,
        ) {
            let header = BatchHeader { frames, bytes, known_durable: Lsn(known) };
            let lsn = Lsn(known + more);
            let (seal, other) = (Seal::of_term(term, salt), Seal::of_term(term.wrapping_add(1), salt));
            let encoded = header.encode(seal, lsn);
            prop_assert_eq!(BatchHeader::decode(&encoded, seal, lsn), Some(header));
            prop_assert_eq!(BatchHeader::decode(&encoded, seal, lsn.plus(1)), None);
            prop_assert_eq!(BatchHeader::decode(&encoded, other, lsn), None);
            for cut in 0..encoded.len() {
                prop_assert_eq!(BatchHeader::decode(&encoded[..cut], seal, lsn), None);
            }
        }

        #[test]
        fn frames_pass_only_for_their_term_and_place(payload: Vec<u8>, number: u64, lsn in 0u64..1 << 60) {
            let seal = Seal::of_number(number);
            let len = payload.len() as u32;
            let mut bytes = frame_header(Crc::new().bytes(&payload), len, seal, Lsn(lsn)).to_vec();
            bytes.extend(&payload);
            prop_assert_eq!(check_frame(&bytes, seal, Lsn(lsn)), Ok(len));
            prop_assert!(check_frame(&bytes, Seal::of_number(number.wrapping_add(1)), Lsn(lsn)).is_err());
            prop_assert!(check_frame(&bytes, seal, Lsn(lsn + 1)).is_err());
            for cut in 0..bytes.len() {
                prop_assert!(check_frame(&bytes[..cut], seal, Lsn(lsn)).is_err());
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = SegmentHeader::decode(&bytes);
            let _ = BatchHeader::decode(&bytes, HEADER.seal(), Lsn(1));
            let _ = check_frame(&bytes, HEADER.seal(), Lsn(1));
        }
    }
}
