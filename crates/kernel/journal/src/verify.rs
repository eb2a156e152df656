//! Reading a closed journal from end to end, for `thalweg check`.

use crate::Bounds;
use crate::copy::SegmentFile;
use crate::options::Options;
use crate::recovery::{Discarded, OpenError, scan};
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
    /// What recovery would discard behind it.
    pub discarded: Option<Discarded>,
    /// The first thing that is wrong. A torn tail is not: no one was told that it was durable.
    pub problem: Option<String>,
}

/// Reads every frame from the floor on and changes nothing. What `bounds` names must be there.
#[must_use]
pub fn verify(disk: &dyn Disk, bounds: Bounds) -> Report {
    let mut report = Report::default();
    let scanned = scan::<Infallible>(disk, &Options::default(), bounds, &mut |frame, _| {
        report.frames += 1;
        report.payload_bytes += u64::from(frame.len);
        report.end = frame.end();
        Ok(())
    });
    match scanned {
        Ok(scanned) => {
            report.segments = scanned.segments();
            report.files = scanned.files();
            report.end = scanned.end;
            report.discarded = scanned.discarded;
        }
        Err(OpenError::Replay { error, .. }) => match error {},
        Err(e) => report.problem = Some(e.to_string()),
    }
    report
}
