//! Transactions: lists of operations that become one journal frame, all or none.

use crate::lengths::Lengths;
use thalweg_base::{LogId, Offset};

/// New content of one log.
#[derive(Clone, Copy, Debug)]
pub enum Append<'a> {
    /// The bytes, in parts that concatenate; `lengths` are the lengths of the messages in them and sum up to the bytes.
    Bytes { parts: &'a [&'a [u8]], lengths: &'a Lengths },
    /// The bytes stand in `source` from `from` on and are not copied. `lengths` are the messages' lengths, as above.
    /// The source keeps the range for as long as it is pinned; its shard must be locked by the same guard.
    Reference { source: LogId, from: Offset, lengths: &'a Lengths },
}

impl Append<'_> {
    /// The lengths of the messages.
    #[must_use]
    pub fn lengths(&self) -> &Lengths {
        match self {
            Append::Bytes { lengths, .. } | Append::Reference { lengths, .. } => lengths,
        }
    }
}

/// The origin of a fork: it shares the source's content below `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The log to fork.
    pub source: LogId,
    /// The end of the shared content, in the source's positions.
    pub at: Offset,
}

/// One operation. Notes are the engine's own words about its state: the log stores them in the frame and gives them
/// back to [`crate::Attachment`], now and again in recovery.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Makes a log, or a fork if it has an origin, which pins the source below `origin.at`. The name must be free.
    Create { name: &'a str, note: &'a [u8], origin: Option<Origin>, append: Option<Append<'a>> },
    /// Appends, changes the engine's state, or both.
    Write { log: LogId, note: &'a [u8], append: Option<Append<'a>> },
    /// Moves the log's start forward: content below it is dead, unless it is pinned.
    Trim { log: LogId, start: Offset },
    /// Removes the log's pin: no fork or reference needs its content below the start.
    Unpin { log: LogId },
    /// Removes the log; its name is free again.
    Delete { log: LogId },
}
