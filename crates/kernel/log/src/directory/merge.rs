//! Merging directory objects: of several records of a log the newest counts.

use super::build::DirectoryBuilder;
use super::error::DirectoryError;
use super::read::DirectoryReader;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId};
use thalweg_storage::Storage;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryMergeStats {
    /// Records and tombstones read.
    pub read: u64,
    /// Records and tombstones written.
    pub written: u64,
}

/// Merges directory objects, oldest first, into `out`. Tombstones may be dropped only if no older object is left beside the
/// inputs: they hide what it holds.
pub fn merge_newest_wins(
    storage: &Arc<dyn Storage>,
    inputs: &[ObjectId],
    drop_tombstones: bool,
    out: &mut DirectoryBuilder,
) -> Result<DirectoryMergeStats, DirectoryError> {
    let mut stats = DirectoryMergeStats::default();
    let mut sources = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut reader = DirectoryReader::open(storage, *input)?;
        let head = reader.next_record()?;
        sources.push(Source { reader, head });
    }
    while let Some(log) = sources.iter().filter_map(|source| source.head.as_ref().map(|(log, _)| *log)).min() {
        let mut newest = None;
        for source in &mut sources {
            if source.head.as_ref().is_some_and(|(head, _)| *head == log) {
                newest = source.head.take().and_then(|(_, record)| record);
                source.head = source.reader.next_record()?;
                stats.read += 1;
            }
        }
        if newest.is_some() || !drop_tombstones {
            out.push(log, newest.as_deref())?;
            stats.written += 1;
        }
    }
    Ok(stats)
}

struct Source {
    reader: DirectoryReader,
    head: Option<(LogId, Option<Bytes>)>,
}
