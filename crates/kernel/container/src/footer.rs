//! The fixed ends of a container: a header with its format, codec and id, and a footer that says where its root stands.

use crate::error::ContainerError;
use crate::object::Object;
use std::ops::Range;
use thalweg_base::{DecodeError, Decoder, Encoder, ObjectId, crc};

pub(crate) const MAGIC: [u8; 8] = *b"THWGCONT";
/// The first bytes of the footer.
pub const END_MAGIC: [u8; 8] = *b"THWGCEND";
pub(crate) const FORMAT: u32 = 1;
pub(crate) const HEADER_BYTES: u64 = 28;
/// The length of the footer, with which every container ends.
pub const FOOTER_BYTES: u64 = 48;
const CRC_BYTES: usize = 4;

pub(crate) fn header(object: ObjectId, codec: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u32(FORMAT);
    out.put_u32(codec);
    out.put_u64(object.0);
    let sum = crc(&out);
    out.put_u32(sum);
    out
}

pub(crate) fn check_header(object: ObjectId, codec: u32, found: &[u8]) -> Result<(), ContainerError> {
    let mut version = Decoder::new(found.get(MAGIC.len()..).unwrap_or_default());
    if let (true, Ok(found)) = (found.starts_with(&MAGIC), version.u32())
        && found > FORMAT
    {
        return Err(ContainerError::Newer { object, found, known: FORMAT });
    }
    if found == header(object, codec) { Ok(()) } else { Err(ContainerError::corrupt(object, 0, "its header differs")) }
}

/// The fields of the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) root: Range<u64>,
}

impl Footer {
    pub(crate) fn encode(&self, object: ObjectId) -> Vec<u8> {
        let mut out = END_MAGIC.to_vec();
        out.put_u32(FORMAT);
        out.put_u32(0);
        out.put_u64(object.0);
        out.put_u64(self.root.end + FOOTER_BYTES);
        out.put_u64(self.root.start);
        out.put_u32((self.root.end - self.root.start) as u32);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    /// `footer` is the last [`FOOTER_BYTES`] of the object.
    pub(crate) fn decode(object: Object, footer: &[u8]) -> Result<Self, ContainerError> {
        let at = object.bytes.saturating_sub(FOOTER_BYTES);
        let damaged = |what: &str| ContainerError::corrupt(object.id, at, what);
        let cut = |_: DecodeError| damaged("its footer is cut");
        if footer.len() as u64 != FOOTER_BYTES || !footer.starts_with(&END_MAGIC) {
            return Err(damaged("its footer has no magic"));
        }
        let mut fields = Decoder::new(&footer[END_MAGIC.len()..]);
        let format = fields.u32().map_err(cut)?;
        if format > FORMAT {
            return Err(ContainerError::Newer { object: object.id, found: format, known: FORMAT });
        }
        let (content, sum) = footer.split_last_chunk::<CRC_BYTES>().ok_or_else(|| damaged("its footer is cut"))?;
        if crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("the footer's checksum differs"));
        }
        let flags = fields.u32().map_err(cut)?;
        let (id, bytes) = (fields.u64().map_err(cut)?, fields.u64().map_err(cut)?);
        let (start, len) = (fields.u64().map_err(cut)?, fields.u32().map_err(cut)?);
        if format != FORMAT || flags != 0 || id != object.id.0 || bytes != object.bytes {
            return Err(damaged("its footer is that of another object"));
        }
        let end = start.checked_add(u64::from(len)).filter(|end| *end == at && start >= HEADER_BYTES);
        end.map(|end| Self { root: start..end }).ok_or_else(|| damaged("its footer does not follow its root"))
    }
}
