//! Reading a closed journal from end to end, for `thalweg check`.

use crate::copy::SegmentFile;
use crate::options::Options;
use crate::recovery::{OpenError, scan};
use std::convert::Infallible;
use thalweg_base::Lsn;
use thalweg_disk::Disk;

/// What a journal holds from its floor on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub segments: usize,
    /// The files that hold it, each up to where its frames end.
    pub files: Vec<SegmentFile>,
    pub frames: u64,
    pub payload_bytes: u64,
    /// Where recovery would go on.
    pub end: Lsn,
    /// The first thing that is wrong. A torn tail is not: no one was told that it was durable.
    pub problem: Option<String>,
}

/// Reads every frame from `floor` on and changes nothing. What lies below `known_durable` must be there.
#[must_use]
pub fn verify(disk: &dyn Disk, floor: Lsn, known_durable: Lsn) -> Report {
    let mut report = Report::default();
    let scanned = scan::<Infallible>(disk, &Options::default(), floor, known_durable.max(floor), &mut |frame, _| {
        report.frames += 1;
        report.payload_bytes += u64::from(frame.len);
        report.end = crate::read::end_of(frame);
        Ok(())
    });
    match scanned {
        Ok(scanned) => {
            report.segments = scanned.segments();
            report.files = scanned.files();
            report.end = scanned.end;
        }
        Err(OpenError::Replay { error, .. }) => match error {},
        Err(e) => report.problem = Some(e.to_string()),
    }
    report
}
