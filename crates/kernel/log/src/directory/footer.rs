//! The fixed footer of a directory object.

use super::error::DirectoryError;
use thalweg_base::{DecodeError, Decoder, Encoder, LogId, ObjectId, crc};

pub(super) const MAGIC: [u8; 8] = *b"THWGDIRS";
pub(super) const FORMAT: u32 = 1;
pub(super) const FOOTER_BYTES: u64 = 68;
const CRC_BYTES: usize = 4;

/// What is known of a directory object without reading its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryMeta {
    pub id: ObjectId,
    pub first: LogId,
    pub last: LogId,
    /// Records, tombstones not counted.
    pub records: u64,
    pub tombstones: u64,
    /// The length of the object.
    pub bytes: u64,
}

impl DirectoryMeta {
    pub(super) fn encode_footer(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u32(FORMAT);
        out.put_u32(0);
        out.put_u64(self.id.0);
        out.put_u64(self.bytes);
        out.put_u64(self.records);
        out.put_u64(self.tombstones);
        out.put_u64(self.first.0);
        out.put_u64(self.last.0);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    pub(super) fn decode_footer(object: ObjectId, len: u64, footer: &[u8]) -> Result<Self, DirectoryError> {
        let damaged = |what: &str| DirectoryError::corrupt(object, len.saturating_sub(FOOTER_BYTES), what);
        let short = |_: DecodeError| damaged("its footer is cut");
        if footer.len() as u64 != FOOTER_BYTES || !footer.starts_with(&MAGIC) {
            return Err(damaged("its footer has no magic"));
        }
        let mut fields = Decoder::new(&footer[MAGIC.len()..]);
        let format = fields.u32().map_err(short)?;
        if format > FORMAT {
            return Err(DirectoryError::Newer { object, found: format, known: FORMAT });
        }
        let (content, sum) = footer.split_last_chunk::<CRC_BYTES>().ok_or_else(|| damaged("its footer is cut"))?;
        if crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("the footer's checksum differs"));
        }
        let flags = fields.u32().map_err(short)?;
        let meta = Self {
            id: ObjectId(fields.u64().map_err(short)?),
            bytes: fields.u64().map_err(short)?,
            records: fields.u64().map_err(short)?,
            tombstones: fields.u64().map_err(short)?,
            first: LogId(fields.u64().map_err(short)?),
            last: LogId(fields.u64().map_err(short)?),
        };
        if meta.id != object || meta.bytes != len || format != FORMAT || flags != 0 {
            return Err(damaged("its footer is that of another object"));
        }
        Ok(meta)
    }
}
