//! A snapshot of where the content of a log lies, for the range of one read.

use super::stop::Stop;
use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::frame::{self, Ancestor};
use crate::log::{Head, Piece};
use crate::logs::{Logs, shard_of_log};
use crate::shard::{Shard, Slot};
use thalweg_base::{DecodeError, Decoder, LogId, Offset};

pub(super) struct Snapshot {
    pub(super) start: Offset,
    pub(super) tail: Offset,
    pub(super) settled: Offset,
    pub(super) lineage: Box<[Ancestor]>,
    pub(super) pieces: Vec<Piece>,
}

impl Snapshot {
    /// Takes the snapshot; `None` if the log does not exist. Pieces from about `target` on are left out.
    pub(super) fn take<A: Attachment>(
        logs: &Logs<A>,
        log: LogId,
        from: Offset,
        target: Offset,
    ) -> Result<Option<Self>, Stop> {
        let shard = logs.shards[shard_of_log(log)].lock();
        shard.locate(log, from, target).map_err(|error| {
            Stop::Failed(ReadError::Corrupt { log, offset: from, end: target, what: format!("its record: {error}") })
        })
    }
}

impl<A: Attachment> Shard<A> {
    /// The places of the content from `from` to about `target`, without waking the log.
    fn locate(&self, log: LogId, from: Offset, target: Offset) -> Result<Option<Snapshot>, DecodeError> {
        let Some(slot) = self.slot_of(log) else {
            return Ok(None);
        };
        Ok(match &self.slots()[slot as usize] {
            Slot::Vacant => None,
            Slot::Rest { record, .. } => {
                let mut d = Decoder::new(record);
                let head = Head::decode(&mut d)?;
                let lineage = frame::lineage(&mut d)?;
                let (start, tail, settled) = (head.start, head.tail, head.settled);
                Some(Snapshot { start, tail, settled, lineage, pieces: Vec::new() })
            }
            Slot::Awake(log) => {
                let first = log.pieces.partition_point(|p| p.start <= from).saturating_sub(1);
                let last = log.pieces.partition_point(|p| p.start < target);
                Some(Snapshot {
                    start: log.start,
                    tail: log.tail,
                    settled: log.settled,
                    lineage: log.lineage.clone(),
                    pieces: log.pieces.range(first..last.max(first)).copied().collect(),
                })
            }
        })
    }
}
