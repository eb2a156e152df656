//! The unsettled end of a journal as one run of bytes: to be kept elsewhere, and made into a journal again.
//!
//! A tail has a part for each segment from the floor's on: a segment header, whose base is that of the first batch
//! that is needed, and the batches up to a position that was synced. The header says how long its part is. Opening the
//! files that [`TailFiles`] makes of a tail recovers exactly the frames from the floor on, below that position.

use crate::format::{BATCH_HEADER, BatchHeader, SEGMENT_HEADER, SegmentError, SegmentHeader, segment_path};
use crate::sink::file::FileJournal;
use crate::sink::file::copy::HeldSegments;
use crate::sink::file::segments::Segment;
use std::io;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::{Disk, File};

/// How much of a segment is read in one go.
const PIECE_BYTES: usize = 1 << 20;

/// The synced end of a journal. Its segments are not reused until it is dropped.
pub struct Tail {
    parts: Vec<Part>,
    end: Lsn,
    _held: HeldSegments,
}

struct Part {
    header: SegmentHeader,
    segment: Arc<Segment>,
}

impl Tail {
    /// The tail holds every frame below that was synced, and no other.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.header.bytes).sum()
    }

    /// Passes the tail on, piece by piece. Waits for the device.
    pub fn read<E: From<io::Error>>(&self, f: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut piece = vec![0; PIECE_BYTES];
        for Part { header, segment } in &self.parts {
            f(&header.encode())?;
            let (mut at, end) =
                (segment.offset(header.base), segment.offset(header.base) + header.bytes - SEGMENT_HEADER);
            while at < end {
                let piece = &mut piece[..PIECE_BYTES.min((end - at) as usize)];
                if segment.file.read_at(piece, at)? < piece.len() {
                    return Err(E::from(io::ErrorKind::UnexpectedEof.into()));
                }
                f(piece)?;
                at += piece.len() as u64;
            }
        }
        Ok(())
    }
}

impl FileJournal {
    /// Holds the end of the journal from `floor` on, as far as it is synced by now. `None` if `floor` is trimmed
    /// already, or if the journal still has segments of format version 1, which only settling removes.
    pub fn hold_tail(&self, floor: Lsn) -> io::Result<Option<Tail>> {
        let Some(held) = self.hold_from(floor) else { return Ok(None) };
        let mut parts = Vec::new();
        for (file, segment) in held.segments() {
            let mut head = vec![0; SEGMENT_HEADER as usize];
            let n = segment.file.read_at(&mut head, 0)?;
            head.truncate(n);
            let stored = SegmentHeader::decode(&head);
            let stored = stored.map_err(|_| io::Error::other("a segment's header is damaged"))?;
            if stored.term == 0 {
                return Ok(None);
            }
            let end = segment.base.plus(file.bytes - SEGMENT_HEADER);
            let base = if parts.is_empty() { first_batch(segment, floor, end)? } else { segment.base };
            let header = SegmentHeader { base, bytes: SEGMENT_HEADER + end.since(base), ..stored };
            parts.push(Part { header, segment: Arc::clone(segment) });
        }
        Ok(Some(Tail { parts, end: held.end(), _held: held }))
    }
}

/// The start of the batch that holds `floor`; `end` if all batches are below.
fn first_batch(segment: &Segment, floor: Lsn, end: Lsn) -> io::Result<Lsn> {
    let mut read = Ahead { segment, at: segment.base, bytes: Vec::new() };
    let mut at = segment.base;
    while at < end {
        let head = read.get(at, end)?;
        let header = BatchHeader::decode(head, segment.seal, at)
            .ok_or_else(|| io::Error::other(format!("no batch starts at {at}")))?;
        let next = at.plus(u64::from(header.bytes));
        if next > floor {
            break;
        }
        at = next;
    }
    Ok(at)
}

/// Reads batch headers, one after the other, without a system call for each.
struct Ahead<'a> {
    segment: &'a Segment,
    at: Lsn,
    bytes: Vec<u8>,
}

impl Ahead<'_> {
    fn get(&mut self, at: Lsn, end: Lsn) -> io::Result<&[u8]> {
        let from = at.since(self.at) as usize;
        if self.bytes.len() < from + BATCH_HEADER {
            self.bytes.resize(PIECE_BYTES.min(end.since(at) as usize), 0);
            let n = self.segment.file.read_at(&mut self.bytes, self.segment.offset(at))?;
            self.bytes.truncate(n);
            self.at = at;
            return Ok(&self.bytes);
        }
        Ok(&self.bytes[from..])
    }
}

/// Makes the files of a journal of a tail's bytes, in a folder without a journal.
pub struct TailFiles<'a> {
    disk: &'a dyn Disk,
    /// Bytes of a header that is not whole yet.
    head: Vec<u8>,
    /// The file that is being written, where in it the next byte goes, and how long it becomes.
    file: Option<(Arc<dyn File>, u64, u64)>,
    files: u64,
}

impl<'a> TailFiles<'a> {
    /// Writes to `disk`.
    #[must_use]
    pub fn new(disk: &'a dyn Disk) -> Self {
        Self { disk, head: Vec::new(), file: None, files: 0 }
    }

    /// Takes the next bytes. Refuses bytes that are no tail.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let Some((file, at, len)) = &mut self.file else {
                let (head, rest) = bytes.split_at(bytes.len().min(SEGMENT_HEADER as usize - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                if self.head.len() == SEGMENT_HEADER as usize {
                    self.begin()?;
                }
                continue;
            };
            let (piece, rest) = bytes.split_at(bytes.len().min((*len - *at) as usize));
            file.write_at(piece, *at)?;
            *at += piece.len() as u64;
            bytes = rest;
            self.end_if_whole()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let header = SegmentHeader::decode(&self.head).map_err(|error| match error {
            SegmentError::Version(found) => invalid(format!("a segment has format {found}: use a newer thalweg")),
            SegmentError::Invalid => invalid("no segment starts there".to_owned()),
        })?;
        let file = self.disk.create(&segment_path(header.number))?;
        file.write_at(&self.head, 0)?;
        self.head.clear();
        self.files += 1;
        self.file = Some((file, SEGMENT_HEADER, header.bytes));
        self.end_if_whole()
    }

    fn end_if_whole(&mut self) -> io::Result<()> {
        if let Some((file, _, _)) = self.file.take_if(|(_, at, len)| at >= len) {
            file.sync()?;
        }
        Ok(())
    }

    /// Makes the files durable. Refuses a tail that ends too early.
    pub fn finish(self) -> io::Result<()> {
        if self.file.is_some() || !self.head.is_empty() || self.files == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it ends within a segment"));
        }
        self.disk.sync_dir(crate::format::FOLDER)
    }
}
