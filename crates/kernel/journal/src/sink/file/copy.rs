//! Copying the journal's files while it goes on: for backups.
//!
//! A copy equals the files after a crash at its end: the files from the floor's on, the last one cut off at a position
//! that was synced. Opening it recovers exactly the frames below that position.

use crate::Journal;
use crate::format::{SEGMENT_HEADER, segment_path};
use crate::sink::file::FileJournal;
use crate::sink::file::segments::Segment;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use thalweg_base::Lsn;

/// One journal file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// The file's path in the data folder.
    pub path: String,
    /// How much of it belongs to the copy, header included.
    pub bytes: u64,
    /// How large the file was made: space that the journal counts on.
    pub allocated: u64,
}

/// Segments that are not reused until this is dropped, and the position where the copy ends.
pub struct HeldSegments {
    files: Vec<(SegmentFile, Arc<Segment>)>,
    end: Lsn,
}

impl HeldSegments {
    /// Everything below survives loss of power and belongs to the copy, nothing else does.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The files of the copy, each with the bytes that belong to it.
    pub fn files(&self) -> impl Iterator<Item = &SegmentFile> {
        self.files.iter().map(|(file, _)| file)
    }

    /// The segments of the copy.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &(SegmentFile, Arc<Segment>)> {
        self.files.iter()
    }

    /// At most `len` bytes of a file from `at` on; less at its end. Waits for the device.
    pub fn read(&self, path: &str, at: u64, len: usize) -> io::Result<Bytes> {
        let found = self.files.iter().find(|(file, _)| file.path == path);
        let Some((file, segment)) = found else { return Err(io::ErrorKind::NotFound.into()) };
        let wanted = file.bytes.saturating_sub(at).min(len as u64);
        let mut bytes = vec![0; wanted as usize];
        if segment.file.read_at(&mut bytes, at)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.into())
    }
}

impl FileJournal {
    /// Holds the files with everything from `floor` on that is synced by now. `None` if `floor` is trimmed already.
    #[must_use]
    pub fn hold_from(&self, floor: Lsn) -> Option<HeldSegments> {
        // Read before the segments: frames that are synced by then lie in segments that are live.
        let end = self.published.synced();
        let segments = self.sink.segments.lock();
        if floor < self.start() {
            return None;
        }
        let first = segments.find(floor)?;
        let mut files = Vec::new();
        for segment in segments.live_from(&first) {
            // One that starts at the end belongs to the copy although nothing is in it: it may be the only one of its
            // term.
            if segment.base > end {
                break;
            }
            let upto = segments.end_of(segment).map_or(end, |next| next.min(end));
            let file = SegmentFile {
                path: segment_path(segment.number),
                bytes: SEGMENT_HEADER + upto.since(segment.base),
                allocated: segment.bytes,
            };
            files.push((file, Arc::clone(segment)));
        }
        Some(HeldSegments { files, end })
    }
}
