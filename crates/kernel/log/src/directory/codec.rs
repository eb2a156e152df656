//! Records of logs as entries of a container: the key is the log's id, so that entries are sorted by it.

use thalweg_base::{DecodeError, LogId};
use thalweg_container::{Codec, Entry, Kind, ordered};

pub(super) struct Records;

impl Codec for Records {
    const ID: u32 = 1;

    fn check(entry: &Entry<'_>) -> Result<(), DecodeError> {
        decode(entry).map(|_| ())
    }
}

pub(super) fn key(log: LogId) -> [u8; 8] {
    log.0.to_be_bytes()
}

/// The log, and its record or `None` for a tombstone.
pub(super) fn decode<'a>(entry: &Entry<'a>) -> Result<(LogId, Option<&'a [u8]>), DecodeError> {
    let mut key = entry.key;
    let log = LogId(ordered::take_u64(&mut key)?);
    match entry.kind {
        _ if !key.is_empty() => Err(DecodeError::Trailing(key.len())),
        Kind::Value => Ok((log, Some(entry.value))),
        Kind::Tombstone => Ok((log, None)),
        Kind::Operand => Err(DecodeError::Unknown { what: "kind of record", got: Kind::Operand as u64 }),
    }
}
