//! Compression of blocks.

use thalweg_base::DecodeError;

/// A compressed block is never larger than this when it is unpacked: larger blocks are stored as they are, so that a
/// length in a file never makes a reader take more memory than the file has bytes, or this.
pub(crate) const UNPACKED_BYTES_MAX: usize = 8 << 20;
const ZSTD_LEVEL: i32 = 3;

/// How blocks are compressed. A block that would not become an eighth smaller stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Blocks are stored as they are.
    #[default]
    None = 0,
    /// For data that is read often: it unpacks as fast as memory is copied.
    Lz4 = 1,
    /// For data that is read rarely: it becomes smaller, and costs three times as much.
    Zstd = 2,
}

impl Compression {
    pub(crate) fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd),
            got => Err(DecodeError::Unknown { what: "compression", got: u64::from(got) }),
        }
    }

    /// The packed form, if it is worth it.
    pub(crate) fn pack(self, raw: &[u8]) -> Option<Vec<u8>> {
        if raw.len() > UNPACKED_BYTES_MAX {
            return None;
        }
        let packed = match self {
            Self::None => return None,
            Self::Lz4 => lz4_flex::block::compress(raw),
            Self::Zstd => zstd::bulk::compress(raw, ZSTD_LEVEL).ok()?,
        };
        (packed.len() < raw.len() - raw.len() / 8).then_some(packed)
    }

    /// Exactly `raw_len` bytes, or an error.
    pub(crate) fn unpack(self, packed: &[u8], raw_len: usize) -> Result<Vec<u8>, String> {
        if raw_len > UNPACKED_BYTES_MAX {
            return Err(format!("a compressed block of {raw_len} bytes is larger than any writer makes"));
        }
        let mut raw = vec![0; raw_len];
        let unpacked = match self {
            Self::None => return Err("it is not compressed".to_owned()),
            Self::Lz4 => lz4_flex::block::decompress_into(packed, &mut raw).map_err(|error| error.to_string())?,
            Self::Zstd => zstd::bulk::decompress_to_buffer(packed, &mut raw[..]).map_err(|error| error.to_string())?,
        };
        if unpacked == raw_len { Ok(raw) } else { Err(format!("it unpacks to {unpacked} bytes, not {raw_len}")) }
    }
}
