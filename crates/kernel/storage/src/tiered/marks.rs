//! Marks: empty files `<id, 16 hex digits>.<length, 16 hex digits>` in a folder of their own.
//!
//! A mark has its facts in its name, so that it is there whole or not at all, and no content has to be read or synced.
//! The folder is their own because a failed sync of a folder may lose any name that was put into it before.

use super::folder_error;
use crate::StorageError;
use crate::file::parse_id;
use std::io;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_disk::Disk;

/// The remote storage has a copy of an object of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) object: ObjectId,
    pub(super) len: u64,
}

impl Mark {
    fn name(self) -> String {
        format!("{:016x}.{:016x}", self.object.0, self.len)
    }

    fn parse(name: &str) -> Option<Self> {
        let (object, len) = name.split_once('.')?;
        Some(Self { object: parse_id(object)?, len: parse_id(len)?.0 })
    }
}

/// The folder of marks.
#[derive(Clone)]
pub(super) struct Marks {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: String,
}

impl Marks {
    fn path(&self, mark: Mark) -> String {
        format!("{}/{}", self.dir, mark.name())
    }

    /// Every mark, in order of the objects.
    pub(super) fn list(&self) -> Result<Vec<Mark>, StorageError> {
        let names = self.disk.list(&self.dir).map_err(folder_error("listing"))?;
        let marks: Vec<Mark> = names.iter().filter_map(|name| Mark::parse(name)).collect();
        for pair in marks.windows(2) {
            if pair[0].object == pair[1].object {
                let (object, one, other) = (pair[0].object, pair[0].len, pair[1].len);
                let cause = format!("object {object} has marks with the lengths {one} and {other}");
                return Err(StorageError::Folder { operation: "listing", cause });
            }
        }
        Ok(marks)
    }

    /// Puts a mark. It survives the process; loss of power once [`Marks::sync`] has returned.
    pub(super) fn put(&self, mark: Mark) -> Result<(), StorageError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::NoSpace(mark.object),
            _ => folder_error("marking")(error),
        };
        match self.disk.create(&self.path(mark)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A leftover whose name may have been lost by a failed sync.
                self.remove(mark)?;
                self.disk.create(&self.path(mark)).map(|_| ()).map_err(failed)
            }
            created => created.map(|_| ()).map_err(failed),
        }
    }

    /// Makes marks and their removal durable. After an error the marks that were put since the last sync may be lost
    /// by loss of power, whatever a later call says: they must be removed.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        self.disk.sync_dir(&self.dir).map_err(folder_error("syncing"))
    }

    /// Removes a mark. After loss of power it may be there again: then the next opening finds an object that no root
    /// names.
    pub(super) fn remove(&self, mark: Mark) -> Result<(), StorageError> {
        match self.disk.remove(&self.path(mark)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(folder_error("removing a mark")(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_its_name() {
        let mark = Mark { object: ObjectId(0x3_0000_0007), len: 4096 };
        assert_eq!(mark.name(), "0000000300000007.0000000000001000");
        assert_eq!(Mark::parse(&mark.name()), Some(mark));
        for other in ["0000000300000007", "0000000300000007.1000", "0000000300000007.obj", "LOCK", "."] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
    }
}
