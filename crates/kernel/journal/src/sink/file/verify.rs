//! Reading a closed journal from end to end, for `thalweg check`.

use crate::options::Options;
use crate::sink::file::copy::SegmentFile;
use crate::sink::file::inspect::{Walker, inspect_header};
use crate::sink::file::recovery::{Discarded, OpenError, list, scan};
use crate::sink::file::scan::Body;
use crate::{Bounds, JournalDamage};
use std::convert::Infallible;
use thalweg_base::Lsn;
use thalweg_disk::Disk;

/// The content of a journal from its floor on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of segment files that hold it.
    pub segments: usize,
    /// The files that hold it, each up to where its frames end.
    pub files: Vec<SegmentFile>,
    /// Number of whole frames.
    pub frames: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// The position at which recovery would continue.
    pub end: Lsn,
    /// The bytes behind it that recovery would discard.
    pub discarded: Option<Discarded>,
    /// Why an opening would refuse it. A torn tail is no reason: no one was told that it was durable.
    pub problem: Option<String>,
    /// Everything that is damaged, whether an opening needs it or not.
    pub damage: Vec<JournalDamage>,
}

/// Reads every frame from the floor on and changes nothing. Frames within `bounds` must exist.
#[must_use]
pub fn verify(disk: &dyn Disk, bounds: Bounds) -> Report {
    let mut report = Report::default();
    let scanned = scan::<Infallible>(disk, &Options::default(), bounds, &mut |frame, _| {
        report.frames += 1;
        report.payload_bytes += u64::from(frame.len);
        report.end = frame.end();
        Ok(())
    });
    let mut passed = false;
    match scanned {
        Ok(scanned) => {
            passed = scanned.passed.is_some();
            report.segments = scanned.segments();
            report.files = scanned.files();
            report.end = scanned.end;
            report.discarded = scanned.discarded;
        }
        Err(OpenError::Replay { error, .. }) => match error {},
        Err(e) => report.problem = Some(e.to_string()),
    }
    let upto = match report.problem {
        Some(_) => Some(bounds.known_durable.max(bounds.floor)),
        None => passed.then_some(report.end),
    };
    match inspect(disk, bounds.floor, upto) {
        Ok(damage) => report.damage = damage,
        Err(e) => report.problem = report.problem.or(Some(e.to_string())),
    }
    report
}

/// The damage in the headers of the segments from the floor's on. If an opening would refuse the journal or pass over
/// some damage, also the damage in the frames of these segments; of the last segment up to `upto`, or as far as its
/// batches say that it was durable.
fn inspect(disk: &dyn Disk, floor: Lsn, upto: Option<Lsn>) -> Result<Vec<JournalDamage>, OpenError<Infallible>> {
    let (mut live, _, _) = list::<Infallible>(disk)?;
    let floors = live.partition_point(|(_, header)| header.base <= floor).saturating_sub(1);
    live.drain(..floors);
    let mut damage = Vec::new();
    for (at, (found, header)) in live.iter().enumerate() {
        let (path, file) = (&found.path, found.file.as_ref());
        let io = |source| OpenError::Io { operation: "reading", path: path.clone(), source };
        damage.extend(inspect_header(found.number, header.base, header.seal(), file).map_err(io)?);
        let Some(upto) = upto else { continue };
        let limit = match live.get(at + 1) {
            Some((_, next)) => next.base,
            None => Body::read(file, header.base, header.seal()).map_err(io)?.known_upto().max(upto),
        };
        let mut walker = Walker::new(header.seal(), header.base, limit.max(header.base));
        while !walker.is_done() {
            walker.advance(found.number, header.base, file, &mut damage).map_err(io)?;
        }
    }
    Ok(damage)
}
