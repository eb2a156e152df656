//! Blocks of records: a length, records in order of their logs, a checksum over both.

use thalweg_base::{DecodeError, Decoder, Encoder, LogId, crc};

pub(super) const HEAD_BYTES: usize = 4;
pub(super) const CRC_BYTES: usize = 4;

/// Gathers the records of one block.
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    log: LogId,
}

impl BlockBuilder {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; HEAD_BYTES], log: LogId::ZERO }
    }

    pub(super) fn push(&mut self, log: LogId, record: Option<&[u8]>) {
        self.bytes.put_varint(log.since(self.log));
        self.log = log;
        match record {
            None => self.bytes.put_varint(0),
            Some(record) => {
                self.bytes.put_varint(record.len() as u64 + 1);
                self.bytes.extend_from_slice(record);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD_BYTES
    }

    /// The finished block; `self` is empty again after [`BlockBuilder::clear`].
    pub(super) fn seal(&mut self) -> &[u8] {
        let len = (self.bytes.len() - HEAD_BYTES) as u32;
        self.bytes[..HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
        let sum = crc(&self.bytes);
        self.bytes.put_u32(sum);
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEAD_BYTES);
        self.log = LogId::ZERO;
    }
}

/// Takes one record off a block that started after `before` (zero at the start of a block).
pub(super) fn record<'a>(from: &mut Decoder<'a>, before: LogId) -> Result<(LogId, Option<&'a [u8]>), DecodeError> {
    let step = from.varint()?;
    let log = before.0.checked_add(step).map(LogId).ok_or(DecodeError::Range("log"))?;
    let record = match from.varint()? {
        0 => None,
        len => Some(from.take(usize::try_from(len - 1).map_err(|_| DecodeError::Range("length"))?)?),
    };
    Ok((log, record))
}
