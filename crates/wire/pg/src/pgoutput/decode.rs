//! From bytes to messages.

use super::super::lsn::PgLsn;
use super::error::DecodeError;
use super::message::{Columns, Message, OldTuple, Relations, ReplicaIdentity};
use super::tuple::Tuple;
use memchr::memchr;

/// The system's own schema is sent as nothing.
pub(super) const CATALOG: &str = "pg_catalog";

/// Decodes the messages of one stream, in order. Its only state is whether it is in a block of a streamed transaction,
/// since changes there carry their transaction's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    in_block: bool,
}

impl Decoder {
    /// A decoder for the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next message belongs to a block of a streamed transaction.
    pub fn in_block(&self) -> bool {
        self.in_block
    }

    /// Reads one message: the body of an [`XLogData`](crate::replication::Event::XLogData).
    #[inline]
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let message = match kind {
            b'I' | b'U' | b'D' => self.change(kind, &mut reader)?,
            b'R' | b'Y' | b'T' | b'M' => self.about(kind, &mut reader)?,
            _ => self.transaction(kind, &mut reader)?,
        };
        reader.end()?;
        match message {
            Message::StreamStart { .. } => self.in_block = true,
            Message::StreamStop => self.in_block = false,
            _ => {}
        }
        Ok(message)
    }

    fn xid(&self, reader: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
        if self.in_block { reader.u32().map(Some) } else { Ok(None) }
    }

    #[inline]
    fn change<'a>(&self, kind: u8, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
        let (xid, relation) = (self.xid(reader)?, reader.u32()?);
        let mut old = OldTuple::None;
        let mut part = reader.u8()?;
        if kind != b'I' && matches!(part, b'K' | b'O') {
            let tuple = Tuple::read(reader)?;
            old = if part == b'K' { OldTuple::Key(tuple) } else { OldTuple::Full(tuple) };
            if kind == b'D' {
                return Ok(Message::Delete { xid, relation, old });
            }
            part = reader.u8()?;
        }
        if part != b'N' || kind == b'D' {
            return Err(DecodeError::Value { what: "which row it is", value: part });
        }
        let new = Tuple::read(reader)?;
        Ok(match kind {
            b'I' => Message::Insert { xid, relation, new },
            _ => Message::Update { xid, relation, old, new },
        })
    }

    /// Messages about tables, types and the rest.
    fn about<'a>(&self, kind: u8, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
        let xid = self.xid(reader)?;
        Ok(match kind {
            b'R' => Message::Relation {
                xid,
                id: reader.u32()?,
                namespace: reader.namespace()?,
                name: reader.text("the name of a table")?,
                replica_identity: reader.replica_identity()?,
                columns: Columns::read(reader)?,
            },
            b'Y' => Message::Type {
                xid,
                id: reader.u32()?,
                namespace: reader.namespace()?,
                name: reader.text("the name of a type")?,
            },
            b'T' => {
                let count = reader.len("the number of tables")?;
                let options = reader.u8()?;
                if options > 3 {
                    return Err(DecodeError::Value { what: "the options of a truncation", value: options });
                }
                let bytes = reader.bytes(count.checked_mul(4).ok_or(DecodeError::Short)?)?;
                let relations = Relations { bytes };
                Message::Truncate { xid, cascade: options & 1 != 0, restart_identity: options & 2 != 0, relations }
            }
            _ => {
                let transactional = reader.flag("the flags of a message")?;
                let (lsn, prefix) = (reader.lsn()?, reader.text("the prefix of a message")?);
                let len = reader.len("the length of a message")?;
                Message::Message { xid, transactional, lsn, prefix, content: reader.bytes(len)? }
            }
        })
    }

    /// Messages that begin and end transactions and blocks.
    fn transaction<'a>(&self, kind: u8, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
        let outside = |what| if self.in_block { Err(DecodeError::OutOfPlace(what)) } else { Ok(()) };
        Ok(match kind {
            b'B' => {
                outside("the beginning of a transaction")?;
                Message::Begin { final_lsn: reader.lsn()?, commit_time: reader.i64()?, xid: reader.u32()? }
            }
            b'C' => {
                outside("the end of a transaction")?;
                let (flags, commit_lsn, end_lsn, commit_time) = reader.commit()?;
                Message::Commit { flags, commit_lsn, end_lsn, commit_time }
            }
            b'O' => Message::Origin { commit_lsn: reader.lsn()?, name: reader.text("the name of an origin")? },
            b'S' => {
                outside("the beginning of a block")?;
                Message::StreamStart { xid: reader.u32()?, first_segment: reader.flag("the first segment")? }
            }
            b'E' if !self.in_block => return Err(DecodeError::OutOfPlace("the end of a block")),
            b'E' => Message::StreamStop,
            b'c' => {
                outside("the end of a streamed transaction")?;
                let xid = reader.u32()?;
                let (flags, commit_lsn, end_lsn, commit_time) = reader.commit()?;
                Message::StreamCommit { xid, flags, commit_lsn, end_lsn, commit_time }
            }
            b'A' => {
                outside("the abort of a streamed transaction")?;
                Message::StreamAbort { xid: reader.u32()?, subxid: reader.u32()? }
            }
            kind => return Err(DecodeError::Kind(kind)),
        })
    }
}

/// The rest of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take().map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        self.take().map(i64::from_be_bytes)
    }

    fn lsn(&mut self) -> Result<PgLsn, DecodeError> {
        self.take().map(|bytes| PgLsn(u64::from_be_bytes(bytes)))
    }

    /// A number of 4 bytes that is not negative.
    #[inline]
    pub(super) fn len(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let len = self.u32()?;
        if len > i32::MAX as u32 { Err(DecodeError::Negative(what)) } else { Ok(len as usize) }
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            value @ (0 | 1) => Ok(value == 1),
            value => Err(DecodeError::Value { what, value }),
        }
    }

    /// Up to a zero byte.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let end = memchr(0, self.rest).ok_or(DecodeError::Short)?;
        let text = std::str::from_utf8(&self.rest[..end]).map_err(|_| DecodeError::NotUtf8(what))?;
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    fn namespace(&mut self) -> Result<&'a str, DecodeError> {
        let name = self.text("the name of a schema")?;
        Ok(if name.is_empty() { CATALOG } else { name })
    }

    fn replica_identity(&mut self) -> Result<ReplicaIdentity, DecodeError> {
        let value = self.u8()?;
        let known = ReplicaIdentity::ALL.iter().find(|(byte, _)| *byte == value);
        known.map(|(_, identity)| *identity).ok_or(DecodeError::Value { what: "the replica identity", value })
    }

    fn commit(&mut self) -> Result<(u8, PgLsn, PgLsn, i64), DecodeError> {
        Ok((self.u8()?, self.lsn()?, self.lsn()?, self.i64()?))
    }
}
