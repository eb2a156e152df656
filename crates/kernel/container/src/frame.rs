//! The frame of every block: its type, its compression, its lengths, and a checksum over content and place.

use crate::compress::Compression;
use crate::error::ContainerError;
use bytes::Bytes;
use thalweg_base::{Crc, Encoder, ObjectId};

/// Type, compression, length when unpacked, length as stored.
pub(crate) const HEAD_BYTES: usize = 10;
const CRC_BYTES: usize = 4;
pub(crate) const FRAME_BYTES: usize = HEAD_BYTES + CRC_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockType {
    Data = 1,
    Partition = 2,
    Sums = 3,
    Root = 4,
}

/// The place of a block: its checksum holds the place, so that a block in another place is not believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) object: ObjectId,
    pub(crate) at: u64,
}

impl Place {
    fn crc(self, framed: &[u8]) -> u32 {
        Crc::new().u64(self.object.0).u64(self.at).bytes(framed).finish()
    }

    pub(crate) fn corrupt(self, what: impl ToString) -> ContainerError {
        ContainerError::corrupt(self.object, self.at, what)
    }
}

/// A block that was packed but has no place yet.
pub(crate) struct Packed {
    kind: BlockType,
    compression: Compression,
    raw_len: usize,
    stored: Vec<u8>,
}

impl Packed {
    pub(crate) fn new(kind: BlockType, compression: Compression, raw: Vec<u8>) -> Self {
        let raw_len = raw.len();
        match compression.pack(&raw) {
            Some(stored) => Self { kind, compression, raw_len, stored },
            None => Self { kind, compression: Compression::None, raw_len, stored: raw },
        }
    }

    /// With its frame.
    pub(crate) fn len(&self) -> usize {
        self.stored.len() + FRAME_BYTES
    }

    pub(crate) fn seal(&self, place: Place) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.put_u8(self.kind as u8);
        out.put_u8(self.compression as u8);
        out.put_u32(self.raw_len as u32);
        out.put_u32(self.stored.len() as u32);
        out.extend_from_slice(&self.stored);
        let sum = place.crc(&out);
        out.put_u32(sum);
        out
    }
}

/// The content of a framed block, checked and unpacked. `framed` is all of it and nothing else.
pub(crate) fn open(place: Place, kind: BlockType, framed: &Bytes) -> Result<Bytes, ContainerError> {
    let Some((body, sum)) = framed.split_last_chunk::<CRC_BYTES>() else {
        return Err(place.corrupt("a block is cut"));
    };
    if place.crc(body) != u32::from_le_bytes(*sum) {
        return Err(place.corrupt("the block's checksum differs"));
    }
    let Some((&[of_type, compression, r0, r1, r2, r3, s0, s1, s2, s3], stored)) =
        body.split_first_chunk::<HEAD_BYTES>()
    else {
        return Err(place.corrupt("a block is cut"));
    };
    if of_type != kind as u8 {
        return Err(place.corrupt(format!("a block has type {of_type}, not {}", kind as u8)));
    }
    let raw_len = u32::from_le_bytes([r0, r1, r2, r3]) as usize;
    if u32::from_le_bytes([s0, s1, s2, s3]) as usize != stored.len() {
        return Err(place.corrupt("the block's length is not that in its head"));
    }
    match Compression::from_code(compression).map_err(|error| place.corrupt(error))? {
        Compression::None if raw_len == stored.len() => Ok(framed.slice_ref(stored)),
        Compression::None => Err(place.corrupt("the block's lengths differ")),
        packed => packed.unpack(stored, raw_len).map(Bytes::from).map_err(|error| place.corrupt(error)),
    }
}
