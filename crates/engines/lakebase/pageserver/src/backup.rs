//! A data folder from which a stock Postgres starts at a position, without replay.
//!
//! The folder is that of a server that was stopped in order at the position. Its log has a record more there, a shutdown
//! checkpoint, that the control file names. Transactions that were running have left no end, and the server does not know
//! them: they count as aborted. Those that were prepared go on.
//!
//! Layouts: `ControlFileData` and `CheckPoint` of `pg_control.h` (Postgres 15 to 17), `XLogRecord`, `XLogPageHeaderData`.

use crate::error::BackupError;
use crate::status::Status;
use crate::timeline::Timeline;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use thalweg_base::{Crc, crc};
use thalweg_lakebase_redo::{DATA_FOLDERS, Redo};
use thalweg_lakebase_wal::{Fork, PAGE_BYTES, PgVersion, Relation};
use thalweg_pg::PgLsn;

const PAGE: u64 = PAGE_BYTES as u64;
const BLOCKS_PER_FILE: u32 = 131_072;
const STATUS_PAGES_PER_FILE: u64 = 32;
/// Pages that are made by one request.
const PAGES_AT_ONCE: usize = 512;

/// Fields of the control file.
const STATE_AT: usize = 16;
const CHECKPOINT_AT: usize = 32;
const COPY_AT: usize = 40;
const CHECKPOINT_BYTES: usize = 88;
const SHUT_DOWN: u32 = 1;
/// Where its checksum may stand: behind all fields, which differ between versions.
const CHECKSUM_BETWEEN: std::ops::Range<usize> = 200..400;

const SHORT_HEADER: u64 = 24;
const LONG_HEADER: u64 = 40;
const RECORD_HEADER: usize = 24;

const GLOBAL: u32 = 1664;
const DEFAULT: u32 = 1663;

/// What a folder needs beside the timeline.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The position: the end of a record.
    pub at: PgLsn,
    /// Where that record begins.
    pub previous: PgLsn,
    /// `global/pg_control` of the cluster, of any time.
    pub control: &'a [u8],
    /// The log from the beginning of the segment on that holds the position, up to it.
    pub segment: &'a [u8],
    /// Bytes of a segment.
    pub segment_bytes: u32,
}

struct Writer<'a> {
    timeline: &'a Timeline,
    folder: &'a Path,
    start: Start<'a>,
}

impl Timeline {
    /// Writes a data folder into an empty folder, without settings (`postgresql.conf`, `pg_hba.conf`). Free space maps are
    /// left out, and made again by the server.
    pub fn write_folder(&self, redo: &Redo, folder: &Path, start: Start<'_>) -> Result<(), BackupError> {
        let writer = Writer { timeline: self, folder, start };
        for name in DATA_FOLDERS {
            writer.make(name)?;
        }
        writer.write("PG_VERSION", format!("{}\n", self.version().major()).as_bytes())?;
        writer.databases()?;
        for (relation, fork, blocks) in self.relations(start.at)? {
            writer.relation(redo, relation, fork, blocks)?;
        }
        writer.statuses()?;
        writer.prepared()?;
        writer.checkpoint()
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |error| BackupError::Io { path, error }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Writer<'_> {
    fn write(&self, name: &str, content: &[u8]) -> Result<(), BackupError> {
        let path = self.folder.join(name);
        fs::write(&path, content).map_err(failed(&path))
    }

    fn make(&self, name: &str) -> Result<(), BackupError> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(failed(&path))
    }

    fn folder_of(database: u32) -> String {
        if database == 0 { "global".to_owned() } else { format!("base/{database}") }
    }

    fn databases(&self) -> Result<(), BackupError> {
        let version = format!("{}\n", self.timeline.version().major());
        for database in self.timeline.databases(self.start.at)? {
            let folder = Self::folder_of(database);
            self.make(&folder)?;
            if database != 0 {
                self.write(&format!("{folder}/PG_VERSION"), version.as_bytes())?;
            }
            if let Some(map) = self.timeline.map(database, self.start.at)? {
                self.write(&format!("{folder}/pg_filenode.map"), &map)?;
            }
        }
        Ok(())
    }

    fn relation(&self, redo: &Redo, relation: Relation, fork: Fork, blocks: u32) -> Result<(), BackupError> {
        if ![DEFAULT, GLOBAL].contains(&relation.tablespace) {
            return Err(BackupError::Tablespace(relation.tablespace));
        }
        let is_unlogged = self.timeline.size(relation, Fork::Init, self.start.at)?.is_some();
        let names: &[&str] = match fork {
            Fork::FreeSpace => return Ok(()),
            // What it was is gone, as after a crash: it begins as its initial fork says.
            Fork::Init => &[Fork::Init.suffix(), Fork::Main.suffix()],
            Fork::Main | Fork::Visibility if is_unlogged => return Ok(()),
            Fork::Main | Fork::Visibility => &[fork.suffix()],
        };
        let stem = format!("{}/{}", Self::folder_of(relation.database), relation.number);
        for name in names {
            for file in 0..=blocks.saturating_sub(1) / BLOCKS_PER_FILE {
                let suffix = if file == 0 { String::new() } else { format!(".{file}") };
                let file_blocks = file * BLOCKS_PER_FILE..blocks.min((file + 1).saturating_mul(BLOCKS_PER_FILE));
                let path = self.folder.join(format!("{stem}{name}{suffix}"));
                let out = fs::File::create(&path).map_err(failed(&path))?;
                let keys: Vec<_> = file_blocks.map(|block| (relation, fork, block)).collect();
                for keys in keys.chunks(PAGES_AT_ONCE) {
                    for (key, page) in keys.iter().zip(self.timeline.pages(redo, keys, self.start.at)) {
                        out.write_all_at(&page?[..], u64::from(key.2 % BLOCKS_PER_FILE) * PAGE)
                            .map_err(failed(&path))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn statuses(&self) -> Result<(), BackupError> {
        let state = self.timeline.state(self.start.at);
        for (kind, folder, pages) in [
            (Status::Transactions, "pg_xact", Status::Transactions.pages(state.oldest_xid, state.next_xid as u32)),
            (
                Status::MultiOffsets,
                "pg_multixact/offsets",
                Status::MultiOffsets.pages(state.oldest_multi, state.next_multi),
            ),
            (Status::MultiMembers, "pg_multixact/members", Status::MultiMembers.pages(0, state.next_multi_offset)),
        ] {
            for page in pages {
                let content = self.timeline.status((kind, page), self.start.at)?;
                let content = content.unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
                let path = self.folder.join(format!("{folder}/{:04X}", page / STATUS_PAGES_PER_FILE));
                let file =
                    fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(failed(&path))?;
                let at = page % STATUS_PAGES_PER_FILE * PAGE;
                file.write_all_at(&content[..], at).map_err(failed(&path))?;
            }
        }
        Ok(())
    }

    fn prepared(&self) -> Result<(), BackupError> {
        let state = self.timeline.state(self.start.at);
        for (xid, content) in self.timeline.prepared(self.start.at)? {
            let epoch = (state.next_xid >> 32) - u64::from(xid > state.next_xid as u32);
            let name = match self.timeline.version() {
                version if version < PgVersion::V17 => format!("pg_twophase/{xid:08X}"),
                _ => format!("pg_twophase/{epoch:08X}{xid:08X}"),
            };
            self.write(&name, &[&content[..], &crc(&content).to_le_bytes()].concat())?;
        }
        Ok(())
    }

    /// The record of the checkpoint, the segments that hold it, and the control file that names it.
    fn checkpoint(&self) -> Result<(), BackupError> {
        let Start { at, previous, control, segment, segment_bytes } = self.start;
        let sums = CHECKSUM_BETWEEN.step_by(4);
        let sum_at = sums
            .filter(|sum_at| control.len() >= sum_at + 4)
            .find(|sum_at| crc(&control[..*sum_at]).to_le_bytes() == control[*sum_at..*sum_at + 4])
            .ok_or(BackupError::Control)?;
        let state = self.timeline.state(at);
        let begins = if at.0.is_multiple_of(PAGE) { PgLsn(at.0 + self.header_bytes(at.0)) } else { at };
        let mut body = control[COPY_AT..COPY_AT + CHECKPOINT_BYTES].to_vec();
        put(&mut body, 0, &begins.0.to_le_bytes());
        put(&mut body, 24, &state.next_xid.to_le_bytes());
        for (field, value) in [
            (32, state.next_oid),
            (36, state.next_multi),
            (40, state.next_multi_offset),
            (44, state.oldest_xid),
            (52, state.oldest_multi),
            // None is running.
            (80, 0),
        ] {
            put(&mut body, field, &value.to_le_bytes());
        }
        let record = record(previous, &body);
        let base = at.0 - at.0 % u64::from(segment_bytes);
        let mut log = segment.to_vec();
        if base + log.len() as u64 != at.0 {
            return Err(BackupError::Segment { expected: at.0 - base, found: log.len() });
        }
        let system = &control[..8];
        self.append(&mut log, base, &record, system);
        for (number, content) in log.chunks(segment_bytes as usize).enumerate() {
            let number = base / u64::from(segment_bytes) + number as u64;
            let per_file = 0x1_0000_0000 / u64::from(segment_bytes);
            let mut content = content.to_vec();
            content.resize(segment_bytes as usize, 0);
            self.write(&format!("pg_wal/{:08X}{:08X}{:08X}", 1, number / per_file, number % per_file), &content)?;
        }
        let mut control = control.to_vec();
        put(&mut control, STATE_AT, &SHUT_DOWN.to_le_bytes());
        put(&mut control, CHECKPOINT_AT, &begins.0.to_le_bytes());
        put(&mut control, COPY_AT, &body);
        let sum = crc(&control[..sum_at]);
        put(&mut control, sum_at, &sum.to_le_bytes());
        self.write("global/pg_control", &control)
    }

    fn header_bytes(&self, at: u64) -> u64 {
        if at.is_multiple_of(u64::from(self.start.segment_bytes)) { LONG_HEADER } else { SHORT_HEADER }
    }

    /// Appends a record to the log from `base` on, with the headers of the pages that begin within it.
    fn append(&self, log: &mut Vec<u8>, base: u64, record: &[u8], system: &[u8]) {
        let mut rest = record;
        while !rest.is_empty() {
            let at = base + log.len() as u64;
            if at.is_multiple_of(PAGE) {
                let is_continued = rest.len() < record.len();
                let is_long = self.header_bytes(at) == LONG_HEADER;
                log.extend_from_slice(&self.timeline.version().page_magic().to_le_bytes());
                log.extend_from_slice(&(u16::from(is_continued) | u16::from(is_long) << 1).to_le_bytes());
                log.extend_from_slice(&1_u32.to_le_bytes());
                log.extend_from_slice(&at.to_le_bytes());
                log.extend_from_slice(&if is_continued { rest.len() as u32 } else { 0 }.to_le_bytes());
                log.extend_from_slice(&[0; 4]);
                if is_long {
                    log.extend_from_slice(system);
                    log.extend_from_slice(&self.start.segment_bytes.to_le_bytes());
                    log.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
                }
            }
            let room = PAGE_BYTES - (base as usize + log.len()) % PAGE_BYTES;
            let (now, later) = rest.split_at(rest.len().min(room));
            log.extend_from_slice(now);
            rest = later;
        }
    }
}

/// The record of a shutdown checkpoint.
fn record(previous: PgLsn, body: &[u8]) -> Vec<u8> {
    const DATA_SHORT: u8 = 255;
    let total = (RECORD_HEADER + 2 + body.len()) as u32;
    let mut header = Vec::new();
    header.extend_from_slice(&total.to_le_bytes());
    header.extend_from_slice(&0_u32.to_le_bytes());
    header.extend_from_slice(&previous.0.to_le_bytes());
    // XLOG_CHECKPOINT_SHUTDOWN of the resource manager XLOG.
    header.extend_from_slice(&[0; 4]);
    let data = [&[DATA_SHORT, body.len() as u8], body].concat();
    let sum = Crc::new().bytes(&data).bytes(&header).finish();
    [&header[..], &sum.to_le_bytes(), &data].concat()
}
