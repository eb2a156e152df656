//! Writing directory objects.

use super::block::BlockBuilder;
use super::error::DirectoryError;
use super::footer::{DirectoryMeta, FOOTER_BYTES};
use thalweg_base::{LogId, ObjectId};
use thalweg_storage::ObjectWriter;

/// A block is closed when it has grown so long.
const BLOCK_BYTES: usize = 64 << 10;
/// So that a block's length always fits its field.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// Writes one directory object from records in order of their logs. Holds one block in memory.
pub struct DirectoryBuilder {
    writer: Box<dyn ObjectWriter>,
    id: ObjectId,
    block: BlockBuilder,
    first: Option<LogId>,
    last: LogId,
    records: u64,
    tombstones: u64,
}

impl DirectoryBuilder {
    #[must_use]
    pub fn new(id: ObjectId, writer: Box<dyn ObjectWriter>) -> Self {
        let block = BlockBuilder::new();
        Self { writer, id, block, first: None, last: LogId::ZERO, records: 0, tombstones: 0 }
    }

    /// Appends the record of a log, or, with `None`, that it has none any more.
    pub fn push(&mut self, log: LogId, record: Option<&[u8]>) -> Result<(), DirectoryError> {
        if self.first.is_some() && log <= self.last {
            return Err(DirectoryError::Order { log });
        }
        let len = record.map_or(0, <[u8]>::len);
        if len > RECORD_BYTES_MAX {
            return Err(DirectoryError::TooLarge { log, len, max: RECORD_BYTES_MAX });
        }
        self.block.push(log, record);
        self.first.get_or_insert(log);
        self.last = log;
        match record {
            Some(_) => self.records += 1,
            None => self.tombstones += 1,
        }
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// How long the object is by now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.written() + self.block.len() as u64
    }

    fn flush(&mut self) -> Result<(), DirectoryError> {
        if !self.block.is_empty() {
            self.writer.write(self.block.seal())?;
            self.block.clear();
        }
        Ok(())
    }

    /// Makes the object durable. To have it read back and checked, call [`super::verify`].
    pub fn finish(mut self) -> Result<DirectoryMeta, DirectoryError> {
        self.flush()?;
        let meta = DirectoryMeta {
            id: self.id,
            first: self.first.unwrap_or_default(),
            last: self.last,
            records: self.records,
            tombstones: self.tombstones,
            bytes: self.writer.written() + FOOTER_BYTES,
        };
        self.writer.write(&meta.encode_footer())?;
        self.writer.finish()?;
        Ok(meta)
    }
}
