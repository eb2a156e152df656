//! What records say of state beside the blocks of relations: transactions, their status pages, files, databases, settings.
//!
//! Layouts: the `xl_*` structures of `pg_control.h`, `xact.h`, `storage_xlog.h`, `clog.h`, `multixact.h`, `commit_ts.h`,
//! `dbcommands_xlog.h`, `tablespace.h`, `relmapper.h`, `standbydefs.h`, `heapam_xlog.h`, `origin.h` and `message.h`.

use crate::error::RecordError;
use crate::record::{BlockRef, Fork, Record, Relation};
use crate::rmgr::Rmgr;
use crate::version::PgVersion;
use bytes::Bytes;
use thalweg_base::{DecodeError, Decoder};
use thalweg_pg::PgLsn;

/// The body of a checkpoint (`CheckPoint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where replay would begin.
    pub redo: PgLsn,
    /// The timeline of the log behind it.
    pub timeline: u32,
    /// The timeline before it.
    pub previous_timeline: u32,
    /// Whether the first change of a page after a checkpoint puts its image into the log.
    pub full_page_writes: bool,
    /// The next transaction, with its epoch in the high 32 bits.
    pub next_xid: u64,
    /// The next object id.
    pub next_oid: u32,
    /// The next multixact.
    pub next_multi: u32,
    /// The next member of a multixact.
    pub next_multi_offset: u32,
    /// The oldest transaction whose status is kept, and the database that needs it.
    pub oldest_xid: (u32, u32),
    /// The oldest multixact that is kept, and the database that needs it.
    pub oldest_multi: (u32, u32),
    /// When it was made, in seconds since 1970.
    pub time: i64,
    /// The oldest and the newest transaction with a time of commit.
    pub commit_ts_xids: (u32, u32),
    /// The oldest transaction that was running; 0 at a shutdown.
    pub oldest_active_xid: u32,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionEnd {
    /// It committed.
    pub is_commit: bool,
    /// When, in microseconds since 2000.
    pub time: i64,
    /// The transaction: that of the record, or the prepared one that it ends.
    pub xid: u32,
    /// Whether it was prepared before.
    pub was_prepared: bool,
    /// The transactions within it, which end in the same way.
    pub subxids: Vec<u32>,
    /// Relations whose files go.
    pub dropped: Vec<Relation>,
    /// The position and time that the change had where it came from (`replication origins`).
    pub origin: Option<(PgLsn, i64)>,
}

/// What a record changes beside the blocks that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A checkpoint was completed, or the server shut down.
    Checkpoint { is_shutdown: bool, checkpoint: Checkpoint },
    /// Object ids below this one are given out.
    NextOid(u32),
    /// `full_page_writes` was changed.
    FullPageWrites(bool),
    /// Settings that a standby must have, too.
    Parameters {
        max_connections: i32,
        max_worker_processes: i32,
        max_wal_senders: i32,
        max_prepared_xacts: i32,
        max_locks_per_xact: i32,
        wal_level: i32,
        wal_log_hints: bool,
        track_commit_timestamp: bool,
    },
    /// A timeline begins.
    EndOfRecovery { timeline: u32, previous_timeline: u32 },
    /// A transaction ended.
    TransactionEnd(TransactionEnd),
    /// A transaction was prepared; the content of its file in `pg_twophase`.
    Prepared { xid: u32, state: Bytes },
    /// An empty fork of a relation was made.
    ForkCreated { relation: Relation, fork: Fork },
    /// A relation was cut to so many blocks.
    Truncated { relation: Relation, blocks: u32, heap: bool, visibility: bool, free_space: bool },
    /// A page of `pg_xact` became all zeros.
    ClogPageZeroed(u64),
    /// Pages of `pg_xact` before this one are not needed.
    ClogTruncated { page: u64, oldest_xid: u32, oldest_xid_database: u32 },
    /// A page of `pg_commit_ts` became all zeros.
    CommitTsPageZeroed(u64),
    /// Pages of `pg_commit_ts` before this one are not needed.
    CommitTsTruncated { page: u64, oldest_xid: u32 },
    /// A page of `pg_multixact/offsets` became all zeros.
    MultiOffsetsPageZeroed(u64),
    /// A page of `pg_multixact/members` became all zeros.
    MultiMembersPageZeroed(u64),
    /// A multixact was made of these transactions, each with what it does.
    MultiCreated { multi: u32, offset: u32, members: Vec<(u32, u32)> },
    /// Multixacts, and their members, of these ranges are not needed.
    MultiTruncated { oldest_database: u32, offsets: (u32, u32), members: (u32, u32) },
    /// All files of a database were copied.
    DatabaseCopied { database: u32, tablespace: u32, source: u32, source_tablespace: u32 },
    /// A folder of a database was made; its pages follow in the log.
    DatabaseCreated { database: u32, tablespace: u32 },
    /// A database was dropped from these tablespaces.
    DatabaseDropped { database: u32, tablespaces: Vec<u32> },
    /// A tablespace was made at a path.
    TablespaceCreated { tablespace: u32, path: Bytes },
    /// A tablespace was dropped.
    TablespaceDropped(u32),
    /// The new content of `pg_filenode.map`; the database is 0 for shared catalogs.
    RelmapUpdated { database: u32, tablespace: u32, content: Bytes },
    /// Transactions that are running.
    RunningXacts { next_xid: u32, oldest_running: u32, latest_completed: u32, xids: Vec<u32>, is_overflowed: bool },
    /// Bits of visibility maps go out that belong to these heap blocks: both, or the one of frozen tuples.
    VisibilityCleared { blocks: Vec<(Relation, u32)>, only_frozen: bool },
    /// The progress of a replication origin.
    OriginSet { origin: u16, remote: PgLsn },
    /// A replication origin was dropped.
    OriginDropped(u16),
    /// A message for logical decoding.
    LogicalMessage { database: u32, is_transactional: bool, prefix: Bytes, message: Bytes },
}

const INFO_MASK: u8 = 0xf0;
const OPERATION_MASK: u8 = 0x70;
/// A record of the end of a transaction says more than its time.
const XACT_HAS_INFO: u8 = 0x80;

/// Reads main data.
struct Main<'a> {
    whole: &'a Bytes,
    fields: Decoder<'a>,
}

impl<'a> Main<'a> {
    fn i32(&mut self) -> Result<i32, DecodeError> {
        self.fields.u32().map(u32::cast_signed)
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        self.fields.u64().map(u64::cast_signed)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        let low = self.fields.u8()?;
        Ok(u16::from_le_bytes([low, self.fields.u8()?]))
    }

    fn relation(&mut self) -> Result<Relation, DecodeError> {
        Ok(Relation { tablespace: self.fields.u32()?, database: self.fields.u32()?, number: self.fields.u32()? })
    }

    /// A count that stands before items of so many bytes. There are no more than bytes are left.
    fn count(&mut self, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.fields.u32()? as usize;
        let needed = count.checked_mul(item_bytes).ok_or(DecodeError::Range("number of items"))?;
        match needed.checked_sub(self.fields.rest().len()) {
            Some(missing) if missing > 0 => Err(DecodeError::Truncated(missing)),
            _ => Ok(count),
        }
    }

    fn xids(&mut self, count: usize) -> Result<Vec<u32>, DecodeError> {
        (0..count).map(|_| self.fields.u32()).collect()
    }

    /// The next bytes, shared with the record.
    fn bytes(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let at = self.whole.len() - self.fields.rest().len();
        self.fields.take(len)?;
        Ok(self.whole.slice(at..at + len))
    }

    /// Text up to a zero byte.
    fn text(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.fields.rest().iter().position(|byte| *byte == 0).ok_or(DecodeError::Truncated(1))?;
        let text = self.bytes(len)?;
        self.fields.u8()?;
        Ok(text)
    }

    /// The number of a page of a simple LRU: wider since Postgres 17.
    fn page(&mut self, version: PgVersion) -> Result<u64, DecodeError> {
        if version >= PgVersion::V17 { self.fields.u64() } else { self.fields.u32().map(u64::from) }
    }

    fn checkpoint(&mut self) -> Result<Checkpoint, DecodeError> {
        let redo = PgLsn(self.fields.u64()?);
        let (timeline, previous_timeline) = (self.fields.u32()?, self.fields.u32()?);
        let full_page_writes = self.fields.u8()? != 0;
        // Padding, and since Postgres 17 the level of the log.
        self.fields.take(7)?;
        let next_xid = self.fields.u64()?;
        let (next_oid, next_multi, next_multi_offset) = (self.fields.u32()?, self.fields.u32()?, self.fields.u32()?);
        let oldest_xid = (self.fields.u32()?, self.fields.u32()?);
        let oldest_multi = (self.fields.u32()?, self.fields.u32()?);
        self.fields.take(4)?;
        let time = self.i64()?;
        let commit_ts_xids = (self.fields.u32()?, self.fields.u32()?);
        let oldest_active_xid = self.fields.u32()?;
        Ok(Checkpoint {
            redo,
            timeline,
            previous_timeline,
            full_page_writes,
            next_xid,
            next_oid,
            next_multi,
            next_multi_offset,
            oldest_xid,
            oldest_multi,
            time,
            commit_ts_xids,
            oldest_active_xid,
        })
    }
}

impl Effect {
    /// The effects of a record beside its blocks: none or one. Records of extensions have none.
    pub fn of(record: &Record, version: PgVersion) -> Result<Option<Self>, RecordError> {
        let mut main = Main { whole: &record.main_data, fields: Decoder::new(&record.main_data) };
        decode(record, version, &mut main).map_err(|_| RecordError::MainData {
            rmgr: record.header.rmgr.name().unwrap_or("an extension"),
            info: record.header.info,
            len: record.main_data.len(),
        })
    }
}

fn decode(record: &Record, version: PgVersion, main: &mut Main<'_>) -> Result<Option<Effect>, DecodeError> {
    let kind = record.header.info & INFO_MASK;
    Ok(Some(match (record.header.rmgr, kind) {
        (Rmgr::XLOG, 0x00 | 0x10) => Effect::Checkpoint { is_shutdown: kind == 0x00, checkpoint: main.checkpoint()? },
        (Rmgr::XLOG, 0x30) => Effect::NextOid(main.fields.u32()?),
        (Rmgr::XLOG, 0x60) => Effect::Parameters {
            max_connections: main.i32()?,
            max_worker_processes: main.i32()?,
            max_wal_senders: main.i32()?,
            max_prepared_xacts: main.i32()?,
            max_locks_per_xact: main.i32()?,
            wal_level: main.i32()?,
            wal_log_hints: main.fields.u8()? != 0,
            track_commit_timestamp: main.fields.u8()? != 0,
        },
        (Rmgr::XLOG, 0x80) => Effect::FullPageWrites(main.fields.u8()? != 0),
        (Rmgr::XLOG, 0x90) => {
            main.i64()?;
            Effect::EndOfRecovery { timeline: main.fields.u32()?, previous_timeline: main.fields.u32()? }
        }
        (Rmgr::TRANSACTION, _) => return transaction(record, version, main),
        (Rmgr::STORAGE, 0x10) => {
            let relation = main.relation()?;
            let number = u8::try_from(main.fields.u32()?).map_err(|_| DecodeError::Range("fork"))?;
            Effect::ForkCreated { relation, fork: Fork::of_number(number).ok_or(DecodeError::Range("fork"))? }
        }
        (Rmgr::STORAGE, 0x20) => {
            let (blocks, relation, flags) = (main.fields.u32()?, main.relation()?, main.fields.u32()?);
            let has = |flag| flags & flag != 0;
            Effect::Truncated { relation, blocks, heap: has(1), visibility: has(2), free_space: has(4) }
        }
        (Rmgr::CLOG, 0x00) => Effect::ClogPageZeroed(main.page(version)?),
        (Rmgr::CLOG, 0x10) => Effect::ClogTruncated {
            page: main.page(version)?,
            oldest_xid: main.fields.u32()?,
            oldest_xid_database: main.fields.u32()?,
        },
        (Rmgr::COMMIT_TS, 0x00) => Effect::CommitTsPageZeroed(main.page(version)?),
        (Rmgr::COMMIT_TS, 0x10) => {
            Effect::CommitTsTruncated { page: main.page(version)?, oldest_xid: main.fields.u32()? }
        }
        (Rmgr::MULTIXACT, 0x00) => Effect::MultiOffsetsPageZeroed(main.page(version)?),
        (Rmgr::MULTIXACT, 0x10) => Effect::MultiMembersPageZeroed(main.page(version)?),
        (Rmgr::MULTIXACT, 0x20) => {
            let (multi, offset, count) = (main.fields.u32()?, main.fields.u32()?, main.count(8)?);
            let member = |_| Ok((main.fields.u32()?, main.fields.u32()?));
            Effect::MultiCreated { multi, offset, members: (0..count).map(member).collect::<Result<_, DecodeError>>()? }
        }
        (Rmgr::MULTIXACT, 0x30) => Effect::MultiTruncated {
            oldest_database: main.fields.u32()?,
            offsets: (main.fields.u32()?, main.fields.u32()?),
            members: (main.fields.u32()?, main.fields.u32()?),
        },
        (Rmgr::DATABASE, 0x00) => Effect::DatabaseCopied {
            database: main.fields.u32()?,
            tablespace: main.fields.u32()?,
            source: main.fields.u32()?,
            source_tablespace: main.fields.u32()?,
        },
        (Rmgr::DATABASE, 0x10) => {
            Effect::DatabaseCreated { database: main.fields.u32()?, tablespace: main.fields.u32()? }
        }
        (Rmgr::DATABASE, 0x20) => {
            let (database, count) = (main.fields.u32()?, main.count(4)?);
            Effect::DatabaseDropped { database, tablespaces: main.xids(count)? }
        }
        (Rmgr::TABLESPACE, 0x00) => Effect::TablespaceCreated { tablespace: main.fields.u32()?, path: main.text()? },
        (Rmgr::TABLESPACE, 0x10) => Effect::TablespaceDropped(main.fields.u32()?),
        (Rmgr::RELMAP, 0x00) => {
            let (database, tablespace, len) = (main.fields.u32()?, main.fields.u32()?, main.count(1)?);
            Effect::RelmapUpdated { database, tablespace, content: main.bytes(len)? }
        }
        (Rmgr::STANDBY, 0x10) => {
            let (count, subcount) = (main.fields.u32()? as usize, main.fields.u32()? as usize);
            let is_overflowed = main.fields.u32()? & 0xff != 0;
            let (next_xid, oldest_running, latest_completed) =
                (main.fields.u32()?, main.fields.u32()?, main.fields.u32()?);
            let all = count.saturating_add(subcount);
            if all.saturating_mul(4) > main.fields.rest().len() {
                return Err(DecodeError::Truncated(all));
            }
            Effect::RunningXacts { next_xid, oldest_running, latest_completed, xids: main.xids(all)?, is_overflowed }
        }
        (Rmgr::HEAP | Rmgr::HEAP2, _) => return visibility(record, main),
        (Rmgr::REPLICATION_ORIGIN, 0x00) => {
            let remote = PgLsn(main.fields.u64()?);
            Effect::OriginSet { origin: main.u16()?, remote }
        }
        (Rmgr::REPLICATION_ORIGIN, 0x10) => Effect::OriginDropped(main.u16()?),
        (Rmgr::LOGICAL_MESSAGE, 0x00) => {
            let (database, is_transactional) = (main.fields.u32()?, main.fields.u32()? & 0xff != 0);
            let size = |n: u64| usize::try_from(n).map_err(|_| DecodeError::Range("length of a message"));
            let (prefix_len, len) = (size(main.fields.u64()?)?, size(main.fields.u64()?)?);
            // With the zero byte at its end.
            let prefix = main.bytes(prefix_len)?;
            let prefix = prefix.slice(..prefix.len().saturating_sub(1));
            Effect::LogicalMessage { database, is_transactional, prefix, message: main.bytes(len)? }
        }
        _ => return Ok(None),
    }))
}

fn transaction(record: &Record, version: PgVersion, main: &mut Main<'_>) -> Result<Option<Effect>, DecodeError> {
    const DATABASE: u32 = 1 << 0;
    const SUBXACTS: u32 = 1 << 1;
    const RELATIONS: u32 = 1 << 2;
    const INVALIDATIONS: u32 = 1 << 3;
    const TWO_PHASE: u32 = 1 << 4;
    const ORIGIN: u32 = 1 << 5;
    const GID: u32 = 1 << 7;
    const DROPPED_STATS: u32 = 1 << 8;
    let (is_commit, was_prepared) = match record.header.info & OPERATION_MASK {
        0x00 => (true, false),
        0x20 => (false, false),
        0x30 => (true, true),
        0x40 => (false, true),
        0x10 => return Ok(Some(Effect::Prepared { xid: record.header.xid, state: record.main_data.clone() })),
        _ => return Ok(None),
    };
    let time = main.i64()?;
    let info = if record.header.info & XACT_HAS_INFO != 0 { main.fields.u32()? } else { 0 };
    let has = |flag| info & flag != 0;
    let mut end = TransactionEnd {
        is_commit,
        time,
        xid: record.header.xid,
        was_prepared,
        subxids: Vec::new(),
        dropped: Vec::new(),
        origin: None,
    };
    if has(DATABASE) {
        main.fields.take(8)?;
    }
    if has(SUBXACTS) {
        let count = main.count(4)?;
        end.subxids = main.xids(count)?;
    }
    if has(RELATIONS) {
        let count = main.count(12)?;
        end.dropped = (0..count).map(|_| main.relation()).collect::<Result<_, _>>()?;
    }
    if has(DROPPED_STATS) {
        // Since Postgres 18 their objects have 64 bits.
        let item_bytes = if version >= PgVersion::V18 { 16 } else { 12 };
        let count = main.count(item_bytes)?;
        main.fields.take(count * item_bytes)?;
    }
    if has(INVALIDATIONS) && is_commit {
        let count = main.count(16)?;
        main.fields.take(count * 16)?;
    }
    if has(TWO_PHASE) {
        end.xid = main.fields.u32()?;
        if has(GID) {
            main.text()?;
        }
    }
    if has(ORIGIN) {
        end.origin = Some((PgLsn(main.fields.u64()?), main.i64()?));
    }
    Ok(Some(Effect::TransactionEnd(end)))
}

/// Which bits of visibility maps a record of a heap clears. Their pages are no blocks of the record.
fn visibility(record: &Record, main: &mut Main<'_>) -> Result<Option<Effect>, DecodeError> {
    let mut flags_behind = |len: usize| -> Result<u8, DecodeError> {
        main.fields.take(len)?;
        main.fields.u8()
    };
    let (new, old) = (record.block(0), record.block(1).or(record.block(0)));
    let when =
        |is_cleared: bool, block: Option<&BlockRef>| block.filter(|_| is_cleared).map(|of| (of.relation, of.block));
    let (blocks, only_frozen) = match (record.header.rmgr, record.header.info & OPERATION_MASK) {
        // An insertion: behind the item.
        (Rmgr::HEAP, 0x00) => ([when(flags_behind(2)? & 1 != 0, new), None], false),
        // A deletion: behind a transaction, the item and its bits.
        (Rmgr::HEAP, 0x10) => ([when(flags_behind(7)? & 1 != 0, new), None], false),
        // Updates: the old tuple's block, if it is another one, is the second.
        (Rmgr::HEAP, 0x20 | 0x40) => {
            let flags = flags_behind(7)?;
            ([when(flags & 1 != 0, old), when(flags & 2 != 0, new)], false)
        }
        // Locks clear the bit of frozen tuples alone.
        (Rmgr::HEAP, 0x60) | (Rmgr::HEAP2, 0x60) => ([when(flags_behind(7)? & 1 != 0, new), None], true),
        // Many insertions: the flags come first.
        (Rmgr::HEAP2, 0x50) => ([when(flags_behind(0)? & 1 != 0, new), None], false),
        _ => return Ok(None),
    };
    let blocks: Vec<_> = blocks.into_iter().flatten().collect();
    Ok((!blocks.is_empty()).then_some(Effect::VisibilityCleared { blocks, only_frozen }))
}
