//! Reading directory objects from front to back, whichever form they have.

use super::DirectoryError;
use super::build::DirectoryMeta;
use super::codec::{self, Records};
use super::earlier;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId};
use thalweg_container::{Entry, Kind, Object, Scan, Source};
use thalweg_storage::Storage;

/// Reads one directory object. The reader verifies the bytes of each record before it returns the record, and the
/// object's totals at the end.
pub(crate) struct DirectoryReader {
    object: ObjectId,
    form: Form,
}

enum Form {
    Container(Box<Scan<Records>>),
    Earlier(Box<earlier::Reader>),
}

impl DirectoryReader {
    pub(crate) fn open(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Self, DirectoryError> {
        let len = storage.len(object)?;
        let form = match earlier::Reader::open(storage, object, len)? {
            Some(reader) => Form::Earlier(Box::new(reader)),
            None => Form::Container(Box::new(Scan::open(storage, Object::new(object, len))?)),
        };
        Ok(Self { object, form })
    }

    #[must_use]
    pub(crate) fn object(&self) -> ObjectId {
        self.object
    }

    #[must_use]
    pub(crate) fn meta(&self) -> DirectoryMeta {
        match &self.form {
            Form::Container(scan) => DirectoryMeta {
                id: self.object,
                records: scan.stats().entries_of(Kind::Value),
                tombstones: scan.stats().entries_of(Kind::Tombstone),
                bytes: scan.object().bytes,
            },
            Form::Earlier(reader) => reader.meta(),
        }
    }

    /// Gives every record that is left to `f`, borrowed.
    pub(crate) fn for_each(&mut self, mut f: impl FnMut(LogId, Option<&[u8]>)) -> Result<(), DirectoryError> {
        while self.advance()? {
            let entry = self.entry();
            let (log, record) =
                codec::decode(&entry).map_err(|error| DirectoryError::corrupt(self.object, 0, error))?;
            f(log, record);
        }
        Ok(())
    }

    /// Checks the next block; how many bytes it has, `None` at the end.
    pub(crate) fn check_block(&mut self) -> Result<Option<u64>, DirectoryError> {
        match &mut self.form {
            Form::Container(scan) => scan.check_block(),
            Form::Earlier(reader) => reader.check_block(),
        }
    }
}

impl Source for DirectoryReader {
    fn advance(&mut self) -> Result<bool, DirectoryError> {
        match &mut self.form {
            Form::Container(scan) => scan.advance(),
            Form::Earlier(reader) => reader.advance(),
        }
    }

    fn entry(&self) -> Entry<'_> {
        match &self.form {
            Form::Container(scan) => scan.entry(),
            Form::Earlier(reader) => reader.entry(),
        }
    }
}

/// Reads every byte of a directory object and checks it.
pub(crate) fn verify(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<DirectoryMeta, DirectoryError> {
    let mut reader = DirectoryReader::open(storage, object)?;
    reader.for_each(|_, _| ())?;
    Ok(reader.meta())
}
