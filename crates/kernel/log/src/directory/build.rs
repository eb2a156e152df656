//! Writing directory objects.

use super::DirectoryError;
use super::codec::{self, Records};
use thalweg_base::{LogId, ObjectId};
use thalweg_container::{Builder, Compression, Entry, Kind, Options, Source};
use thalweg_storage::ObjectWriter;

/// Objects are read from front to back, so that large blocks cost nothing; names and states of logs are much alike.
const OPTIONS: Options =
    Options { block_bytes: 64 << 10, compression: Compression::Lz4, has_content: false, has_one_partition: false };

/// The numbers of a directory object, without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryMeta {
    pub id: ObjectId,
    /// Records, tombstones not counted.
    pub records: u64,
    pub tombstones: u64,
    /// The length of the object.
    pub bytes: u64,
}

/// Writes one directory object from records in order of their logs. Holds one block in memory, and the index of some.
pub(crate) struct DirectoryBuilder(Builder<Records>);

impl DirectoryBuilder {
    pub(crate) fn new(id: ObjectId, writer: Box<dyn ObjectWriter>) -> Result<Self, DirectoryError> {
        Builder::new(id, writer, OPTIONS).map(Self)
    }

    /// Appends the record of a log, or, with `None`, that it has none.
    pub(crate) fn push(&mut self, log: LogId, record: Option<&[u8]>) -> Result<(), DirectoryError> {
        let kind = if record.is_some() { Kind::Value } else { Kind::Tombstone };
        self.0.push(&Entry { key: &codec::key(log), kind, value: record.unwrap_or_default() })
    }

    /// Appends everything that is left of a source.
    pub(super) fn push_all(&mut self, source: &mut impl Source) -> Result<(), DirectoryError> {
        while source.advance()? {
            self.0.push(&source.entry())?;
        }
        Ok(())
    }

    /// Makes the object durable. To have it read back and checked, call [`super::verify`].
    pub(crate) fn finish(self) -> Result<DirectoryMeta, DirectoryError> {
        let written = self.0.finish()?;
        Ok(DirectoryMeta {
            id: written.object.id,
            records: written.stats.entries_of(Kind::Value),
            tombstones: written.stats.entries_of(Kind::Tombstone),
            bytes: written.object.bytes,
        })
    }
}
