//! The facts of an object that a run knows without opening it.

use thalweg_base::{DecodeError, Decoder, Encoder, LogId, ObjectId, Offset};

/// One object of a run, as the root or a list object describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMeta {
    pub id: ObjectId,
    /// The start of its first extent, in `first`.
    pub first: (LogId, Offset),
    /// The log of its last extent.
    pub last: LogId,
    /// The end of its last extent, in `last`.
    pub end: Offset,
    /// Bytes of messages that it holds.
    pub data_bytes: u64,
    /// Bytes of other logs that it refers to.
    pub reference_bytes: u64,
    /// Everything that is not data.
    pub index_bytes: u64,
    pub entries: u64,
    /// Distinct logs.
    pub logs: u64,
    pub messages: u64,
}

impl ObjectMeta {
    /// The length of the object.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.data_bytes.saturating_add(self.index_bytes)
    }

    /// The positions of logs that it covers, in bytes: data that it holds and data that it refers to.
    #[must_use]
    pub(crate) fn covered_bytes(&self) -> u64 {
        self.data_bytes.saturating_add(self.reference_bytes)
    }

    /// May it hold something of `log` at or after `offset`?
    #[must_use]
    pub(crate) fn reaches(&self, log: LogId, offset: Offset) -> bool {
        self.first.0 <= log && (log, offset) < (self.last, self.end)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            self.id.0,
            self.first.0.0,
            self.first.1.0,
            self.last.0,
            self.end.0,
            self.data_bytes,
            self.reference_bytes,
            self.index_bytes,
            self.entries,
            self.logs,
            self.messages,
        ];
        for number in numbers {
            out.put_varint(number);
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: ObjectId(from.varint()?),
            first: (LogId(from.varint()?), Offset(from.varint()?)),
            last: LogId(from.varint()?),
            end: Offset(from.varint()?),
            data_bytes: from.varint()?,
            reference_bytes: from.varint()?,
            index_bytes: from.varint()?,
            entries: from.varint()?,
            logs: from.varint()?,
            messages: from.varint()?,
        })
    }
}
