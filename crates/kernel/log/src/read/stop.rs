//! Why an attempt to read went no further.

use crate::attachment::Attachment;
use crate::damage::{GONE, Place as DamagedPlace};
use crate::error::ReadError;
use crate::logs::Logs;
use crate::run::RunError;
use std::ops::Range;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_storage::StorageError;

pub(super) enum Stop {
    /// A device would have to be waited for.
    WouldWait,
    /// Something was asked for and has not come: the next step goes on from here.
    Pending,
    /// Content has moved since the snapshot.
    Moved,
    /// Content that the snapshot names is missing, or a log that it leads to is. The log may have been trimmed or
    /// deleted since, and its content reclaimed: then a new snapshot says so.
    Absent(ReadError),
    Failed(ReadError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Stop::Failed(error)
    }
}

/// Why a read does not have a part of an object.
pub(super) enum Miss {
    WouldWait,
    Pending,
    Failed(RunError),
}

impl Miss {
    /// The stop that this miss is for a read of `span`. Notes damage.
    pub(super) fn stop<A: Attachment>(self, logs: &Logs<A>, log: LogId, span: Range<Offset>) -> Stop {
        match self {
            Miss::WouldWait => Stop::WouldWait,
            Miss::Pending => Stop::Pending,
            Miss::Failed(error) => failed(logs, &error, log, span),
        }
    }
}

fn failed<A: Attachment>(logs: &Logs<A>, error: &RunError, log: LogId, span: Range<Offset>) -> Stop {
    let corrupt =
        || Stop::Failed(ReadError::Corrupt { log, offset: span.start, end: span.end, what: error.to_string() });
    match error {
        RunError::Storage(StorageError::Missing(object)) if !names(logs, *object) => Stop::Moved,
        RunError::Storage(StorageError::Missing(object)) => {
            logs.damage.note(DamagedPlace::Object { object: *object, at: 0 }, GONE);
            corrupt()
        }
        RunError::Storage(other) if !matches!(other, StorageError::Unreadable { .. }) => {
            Stop::Failed(ReadError::Io { log, offset: span.start, cause: error.to_string() })
        }
        _ => {
            logs.note_run(error);
            corrupt()
        }
    }
}

/// Whether the root in force names an object; the root with which the read began does not count.
fn names<A: Attachment>(logs: &Logs<A>, object: ObjectId) -> bool {
    logs.options.faults().reads_believe_their_root() || logs.names(object)
}
