//! The messages. Times are the server's, in microseconds since 2000; only changes in blocks of streamed transactions
//! have an `xid`, which may be that of a subtransaction.

use super::super::lsn::PgLsn;
use super::decode::Reader;
use super::error::DecodeError;
use super::tuple::Tuple;
use std::fmt;

/// One message of the plugin, with the protocol's fields (Postgres documentation, section "Logical Replication Message
/// Formats").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction's changes follow, up to its [`Message::Commit`].
    Begin {
        /// Position of its commit.
        final_lsn: PgLsn,
        /// The commit's time, in microseconds since 2000.
        commit_time: i64,
        /// The transaction's id.
        xid: u32,
    },
    /// The end of a transaction.
    Commit {
        /// Unused by the protocol: 0.
        flags: u8,
        /// The position of the commit record.
        commit_lsn: PgLsn,
        /// The first position after the transaction: the one to acknowledge.
        end_lsn: PgLsn,
        /// The commit's time, in microseconds since 2000.
        commit_time: i64,
    },
    /// The transaction was replicated from elsewhere.
    Origin {
        /// The commit's position on the origin.
        commit_lsn: PgLsn,
        /// The origin's name.
        name: &'a str,
    },
    /// Definition of a table. Comes before its first change, and again before the first change after an alteration.
    Relation {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The table's oid.
        id: u32,
        /// The table's schema; empty for `pg_catalog`.
        namespace: &'a str,
        /// The table's name, without quotes.
        name: &'a str,
        /// Which old columns updates and deletes have.
        replica_identity: ReplicaIdentity,
        /// The published columns, in order.
        columns: Columns<'a>,
    },
    /// A type that is not built in.
    Type {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The type's oid.
        id: u32,
        /// The type's schema; empty for `pg_catalog`.
        namespace: &'a str,
        /// The type's name, without quotes.
        name: &'a str,
    },
    /// A new row.
    Insert {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The table's oid.
        relation: u32,
        /// The row.
        new: Tuple<'a>,
    },
    /// A changed row.
    Update {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The table's oid.
        relation: u32,
        /// The row before the change, as far as the replica identity has it.
        old: OldTuple<'a>,
        /// The row after the change.
        new: Tuple<'a>,
    },
    /// A deleted row.
    Delete {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The table's oid.
        relation: u32,
        /// Never [`OldTuple::None`].
        old: OldTuple<'a>,
    },
    /// Tables that were emptied by one statement.
    Truncate {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// The statement said CASCADE.
        cascade: bool,
        /// The statement said RESTART IDENTITY.
        restart_identity: bool,
        /// The tables' oids.
        relations: Relations<'a>,
    },
    /// A message of `pg_logical_emit_message`.
    Message {
        /// The transaction, if it is streamed.
        xid: Option<u32>,
        /// Whether the message belongs to its transaction, or was sent at once.
        transactional: bool,
        /// The message's position.
        lsn: PgLsn,
        /// The first argument of `pg_logical_emit_message`.
        prefix: &'a str,
        /// The second argument.
        content: &'a [u8],
    },
    /// A block of changes of a transaction that is not finished.
    StreamStart {
        /// The transaction's id.
        xid: u32,
        /// Whether this is the first block of the transaction.
        first_segment: bool,
    },
    /// The end of the block.
    StreamStop,
    /// The end of a streamed transaction, whose blocks came before.
    StreamCommit {
        /// The transaction's id.
        xid: u32,
        /// Unused by the protocol: 0.
        flags: u8,
        /// The position of the commit record.
        commit_lsn: PgLsn,
        /// The first position after the transaction: the one to acknowledge.
        end_lsn: PgLsn,
        /// The commit's time, in microseconds since 2000.
        commit_time: i64,
    },
    /// `subxid` and its changes are undone; if it equals `xid`, the whole transaction is.
    StreamAbort {
        /// The transaction's id.
        xid: u32,
        /// The id of the aborted subtransaction.
        subxid: u32,
    },
}

/// Known columns of a row before its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// The old row's key is that of the new row.
    None,
    /// The columns of the replica identity; the others are NULL.
    Key(Tuple<'a>),
    /// The whole old row.
    Full(Tuple<'a>),
}

impl<'a> OldTuple<'a> {
    /// The known columns.
    pub fn tuple(&self) -> Option<Tuple<'a>> {
        match *self {
            Self::None => None,
            Self::Key(tuple) | Self::Full(tuple) => Some(tuple),
        }
    }
}

/// The old columns that an update or delete has (`pg_class.relreplident`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The primary key's.
    Default,
    /// No column: Postgres refuses updates and deletes of a published table.
    Nothing,
    /// All columns.
    Full,
    /// The columns of another index.
    Index,
}

impl ReplicaIdentity {
    pub(super) const ALL: [(u8, Self); 4] =
        [(b'd', Self::Default), (b'n', Self::Nothing), (b'f', Self::Full), (b'i', Self::Index)];
}

/// One column of a table that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Part of the replica identity.
    pub key: bool,
    /// The column's name, without quotes.
    pub name: &'a str,
    /// The type's oid.
    pub type_oid: u32,
    /// `atttypmod`, or -1.
    pub type_modifier: i32,
}

/// The columns of a table, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Columns<'a> {
    pub(super) count: u16,
    pub(super) bytes: &'a [u8],
}

impl<'a> Columns<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u16()?;
        let begin = reader.rest();
        for _ in 0..count {
            Column::read(reader)?;
        }
        Ok(Self { count, bytes: &begin[..begin.len() - reader.rest().len()] })
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The columns, in order.
    pub fn iter(&self) -> impl Iterator<Item = Column<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // Was read once, so that every column is whole.
        (0..self.count).map_while(move |_| Column::read(&mut reader).ok())
    }

    /// The bytes as in the message, after the number of columns.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads the bytes of [`Columns::bytes`] or [`Columns::write`].
    pub fn from_bytes(count: u16, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        for _ in 0..count {
            Column::read(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { count, bytes })
    }

    /// Writes the bytes of these columns, for makers of messages.
    pub fn write<'b>(columns: impl IntoIterator<Item = Column<'b>>, out: &mut Vec<u8>) {
        for column in columns {
            out.push(u8::from(column.key));
            out.extend(column.name.bytes().chain([0]));
            out.extend(column.type_oid.to_be_bytes());
            out.extend(column.type_modifier.to_be_bytes());
        }
    }
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Column<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            key: reader.flag("the flags of a column")?,
            name: reader.text("the name of a column")?,
            type_oid: reader.u32()?,
            type_modifier: reader.u32()? as i32,
        })
    }
}

/// The tables that were truncated, by oid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Relations<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Relations<'a> {
    /// Number of tables.
    pub fn len(&self) -> usize {
        self.bytes.len() / 4
    }

    /// Whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The tables' oids, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes.as_chunks().0.iter().map(|oid| u32::from_be_bytes(*oid))
    }

    /// Oids, each as 4 bytes in network order; a length that is no multiple of 4 loses its rest.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes: &bytes[..bytes.len() / 4 * 4] }
    }
}

impl fmt::Debug for Relations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
