//! Records out of the pages of the log.
//!
//! The log is a sequence of segments, and each is a sequence of pages of 8 KiB. A page begins with a header of 24 bytes,
//! the first one of a segment with one of 40. Records stand behind each other at multiples of 8 bytes; one that does not
//! fit into its page goes on behind the header of the next one.
//!
//! | state of [`WalFramer`] | next bytes |
//! |---|---|
//! | at a record | its length; zeros mean that nothing was written from here on |
//! | within a record | its rest, behind the header of the next page |
//! | in the rest of a segment | nothing: a record said that the log goes on in the next segment |
//!
//! A record that its writer did not finish before a crash is followed by a page that says so; it is skipped.

use crate::error::WalError;
use crate::image::PAGE_BYTES;
use crate::record::{CHECKSUM_AT, HEADER_BYTES, RecordHeader};
use crate::rmgr::Rmgr;
use crate::version::PgVersion;
use bytes::{Bytes, BytesMut};
use thalweg_base::Crc;
use thalweg_pg::PgLsn;

const PAGE: u64 = PAGE_BYTES as u64;
const SHORT_HEADER_BYTES: usize = 24;
const LONG_HEADER_BYTES: usize = 40;
/// Records begin at multiples of it (`MAXIMUM_ALIGNOF`).
const ALIGN: u64 = 8;
/// The longest record that Postgres writes (`XLogRecordMaxSize`).
const RECORD_BYTES_MAX: u32 = 1020 << 20;

const FIRST_IS_CONTINUED: u16 = 0x0001;
const LONG_HEADER: u16 = 0x0002;
const FIRST_IS_OVERWRITTEN: u16 = 0x0008;
const ALL_FLAGS: u16 = 0x000f;

/// `XLOG_SWITCH`: the rest of the segment is empty.
const SWITCH: u8 = 0x40;

/// A record with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Where it begins.
    pub start: PgLsn,
    /// Where the next one may begin: a page that this record changes has this position (`EndRecPtr`).
    pub end: PgLsn,
    /// Its header.
    pub header: RecordHeader,
    /// Its bytes without the headers of pages: see [`crate::Record::decode`].
    pub bytes: Bytes,
}

/// Gets records out of a log that comes in pieces.
#[derive(Debug)]
pub struct WalFramer {
    segment_bytes: u64,
    system: Option<u64>,
    version: Option<PgVersion>,
    timeline: u32,
    /// The position of the first byte of `input`.
    at: PgLsn,
    input: BytesMut,
    /// The record before, if it is known.
    previous: Option<PgLsn>,
    state: State,
    failed: Option<WalError>,
}

#[derive(Debug)]
enum State {
    /// Bytes that belong to a record before the first one that is wanted.
    Begin,
    Record,
    Within {
        start: PgLsn,
        total_bytes: u32,
        taken: BytesMut,
    },
    /// Input up to the position `to` is dropped. A record begins there, or, with `is_before`, a page with the rest of a
    /// record that began before the first wanted one.
    Skip {
        to: PgLsn,
        is_before: bool,
    },
}

fn aligned(at: PgLsn) -> PgLsn {
    PgLsn(at.0.next_multiple_of(ALIGN))
}

impl WalFramer {
    /// A framer of the log from `start` on: the beginning of a page or of a record, or any position between two records.
    /// At the beginning of a page the rest of a record that began before is skipped. `system`: the cluster's identifier,
    /// if it is known.
    ///
    /// # Panics
    /// If `segment_bytes` is no power of two from 1 MiB to 1 GiB.
    #[must_use]
    pub fn new(start: PgLsn, segment_bytes: u32, system: Option<u64>) -> Self {
        let is_sound = segment_bytes.is_power_of_two() && (1 << 20..=1 << 30).contains(&segment_bytes);
        assert!(is_sound, "segments of {segment_bytes} bytes");
        let is_page = start.0.is_multiple_of(PAGE);
        Self {
            segment_bytes: u64::from(segment_bytes),
            system,
            version: None,
            timeline: 0,
            at: if is_page { start } else { aligned(start) },
            input: BytesMut::new(),
            previous: None,
            state: if is_page { State::Begin } else { State::Record },
            failed: None,
        }
    }

    /// The position of the next byte that [`Self::feed`] takes.
    #[must_use]
    pub fn wants(&self) -> PgLsn {
        PgLsn(self.at.0 + self.input.len() as u64)
    }

    /// The version of the log, once a page's header was read.
    #[must_use]
    pub fn version(&self) -> Option<PgVersion> {
        self.version
    }

    /// The cluster's identifier, once the first page of a segment was read, or if it was given.
    #[must_use]
    pub fn system(&self) -> Option<u64> {
        self.system
    }

    /// The timeline of the last page whose header was read.
    #[must_use]
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Adds bytes of the log: those from [`Self::wants`] on.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next record, once all of it was fed. After an error every further call gives the same one.
    pub fn next_record(&mut self) -> Result<Option<Framed>, WalError> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let next = self.advance();
        self.failed = next.as_ref().err().cloned();
        next
    }

    fn advance(&mut self) -> Result<Option<Framed>, WalError> {
        loop {
            if let State::Skip { to, is_before } = self.state {
                if !self.skip(to) {
                    return Ok(None);
                }
                self.state = if is_before { State::Begin } else { State::Record };
            }
            if self.at.0.is_multiple_of(PAGE) && !self.page_header()? {
                return Ok(None);
            }
            match &self.state {
                State::Begin => self.state = State::Record,
                State::Skip { .. } => {}
                State::Within { .. } => {
                    if let Some(framed) = self.go_on()? {
                        return Ok(Some(framed));
                    }
                    if !self.at.0.is_multiple_of(PAGE) {
                        return Ok(None);
                    }
                }
                State::Record => {
                    // Its length never crosses a page: both are multiples of 8.
                    let Some(total_bytes) = self.input.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
                    else {
                        return Ok(None);
                    };
                    if total_bytes == 0 {
                        return Ok(None);
                    }
                    if !(HEADER_BYTES as u32..=RECORD_BYTES_MAX).contains(&total_bytes) {
                        return Err(WalError::Header { at: self.at, why: "its length is impossible" });
                    }
                    self.state = State::Within { start: self.at, total_bytes, taken: BytesMut::new() };
                }
            }
        }
    }

    /// Drops input up to a position; whether it was reached.
    fn skip(&mut self, to: PgLsn) -> bool {
        let len = (to.0 - self.at.0).min(self.input.len() as u64);
        drop(self.input.split_to(len as usize));
        self.at.0 += len;
        self.at == to
    }

    /// Takes the header of the page that begins here; whether all of it is there.
    fn page_header(&mut self) -> Result<bool, WalError> {
        let at = self.at;
        let is_first = at.0.is_multiple_of(self.segment_bytes);
        let len = if is_first { LONG_HEADER_BYTES } else { SHORT_HEADER_BYTES };
        let Some(header) = self.input.get(..len) else { return Ok(false) };
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at + 4)) << 32 | u64::from(u32_at(at));
        let (magic, flags) = (u32_at(0) as u16, (u32_at(0) >> 16) as u16);
        let (timeline, address, rest) = (u32_at(4), PgLsn(u64_at(8)), u32_at(16));
        // Space that was never written.
        if header.iter().all(|byte| *byte == 0) {
            return Ok(false);
        }
        let version = PgVersion::of_page_magic(magic).ok_or(WalError::Magic { at, magic })?;
        if let Some(before) = self.version
            && before != version
        {
            return Err(WalError::Version { at, expected: before.major(), found: version.major() });
        }
        if address != at {
            return Err(WalError::Address { at, found: address });
        }
        let damaged = |why| WalError::Page { at, why };
        if flags & !ALL_FLAGS != 0 {
            return Err(damaged("it has unknown flags"));
        }
        if (flags & LONG_HEADER != 0) != is_first {
            return Err(damaged("the long header stands at the first page of each segment, and nowhere else"));
        }
        if is_first {
            let (system, segment_bytes, page_bytes) = (u64_at(24), u32_at(32), u32_at(36));
            if let Some(expected) = self.system
                && expected != system
            {
                return Err(WalError::System { at, expected, found: system });
            }
            if u64::from(segment_bytes) != self.segment_bytes || page_bytes as usize != PAGE_BYTES {
                let expected = self.segment_bytes as u32;
                return Err(WalError::Sizes { at, segment_bytes, page_bytes, expected });
            }
            self.system = Some(system);
        }
        let state = match &self.state {
            State::Within { .. } if flags & FIRST_IS_OVERWRITTEN != 0 => Some(State::Record),
            State::Within { total_bytes, taken, .. } => {
                let left = u64::from(*total_bytes) - taken.len() as u64;
                match flags & FIRST_IS_CONTINUED != 0 && u64::from(rest) == left {
                    true => None,
                    false => return Err(damaged("the record of the page before goes on with another length")),
                }
            }
            // The record began before the first one that is wanted. It may go on for several pages.
            State::Begin if flags & FIRST_IS_CONTINUED != 0 => {
                let end = aligned(PgLsn(at.0 + len as u64 + u64::from(rest)));
                let page_end = PgLsn(at.0 + PAGE);
                Some(State::Skip { to: end.min(page_end), is_before: end > page_end })
            }
            State::Begin => Some(State::Record),
            _ if flags & FIRST_IS_CONTINUED != 0 => return Err(damaged("a record goes on that did not begin")),
            _ => None,
        };
        (self.version, self.timeline) = (Some(version), timeline);
        drop(self.input.split_to(len));
        self.at.0 += len as u64;
        if let Some(state) = state {
            self.state = state;
        }
        Ok(true)
    }

    /// Takes more of the record. `None`: the page has no more of it, or what was fed.
    fn go_on(&mut self) -> Result<Option<Framed>, WalError> {
        let State::Within { start, total_bytes, taken } = &mut self.state else { return Ok(None) };
        let (start, total) = (*start, *total_bytes as usize);
        let room = (PAGE - self.at.0 % PAGE) as usize;
        let len = (total - taken.len()).min(room).min(self.input.len());
        let more = self.input.split_to(len);
        self.at.0 += len as u64;
        if taken.is_empty() {
            *taken = more;
        } else {
            taken.extend_from_slice(&more);
        }
        // Damage is told before a length of a gigabyte is waited for.
        if let Some(header) = taken.first_chunk::<HEADER_BYTES>() {
            let header = RecordHeader::decode(header);
            if !header.rmgr.is_valid() {
                return Err(WalError::Header { at: start, why: "no resource manager has its number" });
            }
            match self.previous {
                Some(expected) if header.previous != expected => {
                    return Err(WalError::Previous { at: start, expected, found: header.previous });
                }
                None if header.previous >= start => {
                    return Err(WalError::Header { at: start, why: "the record before it stands behind it" });
                }
                _ => {}
            }
        }
        if taken.len() < total {
            return Ok(None);
        }
        let bytes = std::mem::take(taken).freeze();
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let found = Crc::new().bytes(&bytes[HEADER_BYTES..]).bytes(&bytes[..CHECKSUM_AT]).finish();
        let header = RecordHeader::decode(header);
        if found != header.checksum {
            return Err(WalError::Checksum { at: start, expected: found, found: header.checksum });
        }
        let mut end = aligned(self.at);
        if header.rmgr == Rmgr::XLOG && header.kind() == SWITCH {
            end = PgLsn(self.at.0.next_multiple_of(self.segment_bytes));
        }
        self.previous = Some(start);
        self.state = State::Skip { to: end, is_before: false };
        Ok(Some(Framed { start, end, header, bytes }))
    }
}
