//! The logs that have content at a damaged place.

use crate::attachment::Attachment;
use crate::damage::Place;
use crate::logs::{Logs, SweepCursor};
use crate::root::Root;
use crate::run::{self, Key};
use crate::shard::Slot;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, Lsn, Offset};

/// Logs of one place that are named; further ones are only counted.
const LOGS_MAX: usize = 16;

/// How many slots are visited under one lock.
const SLOTS_PER_LOCK: usize = 256;

/// A range of a log that lies at a damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Affected {
    pub(crate) log: LogId,
    pub(crate) range: Range<Offset>,
}

/// The live content of a damaged place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) bytes: u64,
    pub(crate) logs: Vec<Affected>,
    /// Logs that are not listed.
    pub(crate) more: u64,
    /// A round was under way: more may be listed than lies there.
    pub(crate) is_provisional: bool,
}

impl Located {
    fn push(&mut self, log: LogId, range: Range<Offset>) {
        if let Some(last) = self.logs.last_mut().filter(|last| last.log == log) {
            last.range.end = last.range.end.max(range.end);
        } else if self.logs.len() < LOGS_MAX {
            self.logs.push(Affected { log, range });
        } else {
            self.more += 1;
        }
    }
}

impl<A: Attachment> Logs<A> {
    /// Looks into the index of the object, or at the places of content that is not settled. Waits for the device.
    pub(crate) fn locate(&self, root: &Root, place: Place) -> Located {
        match place {
            Place::Manifest | Place::Directory { .. } | Place::List { .. } => Located::default(),
            Place::Journal { at, end } => self.locate_in_journal(at, end),
            Place::Object { object, at } => {
                let Some(sealed) = root.runs.iter().flat_map(|run| &run.objects).find(|o| o.meta.id == object) else {
                    return Located::default();
                };
                let storage: Arc<dyn thalweg_storage::Storage> = Arc::clone(&self.sealed.storage);
                let (bytes, keys) = run::keys_at(&storage, &sealed.meta, at);
                // While a round is under way its run may be in the root before its logs know that their content is
                // settled.
                let no_round = self.pace.round.try_lock();
                let mut located = Located { bytes, is_provisional: no_round.is_none(), ..Located::default() };
                for keys in keys {
                    self.push_live(keys, &mut located);
                }
                located
            }
        }
    }

    /// Whether some of an affected range is still live.
    pub(crate) fn is_wanted(&self, affected: &Affected) -> bool {
        self.live_in(affected.log, &affected.range).is_some()
    }

    /// The part of a range, from its first live position to its last one.
    fn live_in(&self, log: LogId, range: &Range<Offset>) -> Option<Range<Offset>> {
        let live = self.live(log)?;
        let parts = live.ranges().iter().map(|r| r.start.max(range.start)..r.end.min(range.end));
        let mut parts = parts.filter(|part| part.start < part.end);
        let first = parts.next()?;
        let end = parts.next_back().map_or(first.end, |last| last.end);
        Some(first.start..end)
    }

    /// Adds the live logs of a range of keys.
    fn push_live(&self, keys: Range<Key>, located: &mut Located) {
        let Range { start: (first, start), end: (last, end) } = keys;
        if first == last {
            if let Some(range) = self.live_in(first, &(start..end)) {
                located.push(first, range);
            }
            return;
        }
        let mut logs = Vec::new();
        self.sweep_every(&mut |slot| match slot {
            Slot::Awake(log) if (first..=last).contains(&log.id) => logs.push(log.id),
            Slot::Rest { id, .. } if (first..=last).contains(id) => logs.push(*id),
            _ => {}
        });
        logs.sort_unstable();
        for log in logs {
            let from = if log == first { start } else { Offset::ZERO };
            let to = if log == last { end } else { Offset::MAX };
            // How much of the content of logs in the middle lies here is not known.
            let settled = if located.is_provisional { to } else { self.settled_of(log).unwrap_or(to) };
            if let Some(range) = self.live_in(log, &(from..to.min(settled))) {
                located.push(log, range);
            }
        }
    }

    fn settled_of(&self, log: LogId) -> Option<Offset> {
        let shard = self.shards[crate::logs::shard_of_log(log)].lock();
        let slot = shard.slot_of(log)?;
        match &shard.slots()[slot as usize] {
            Slot::Vacant => None,
            Slot::Awake(log) => Some(log.settled),
            Slot::Rest { record, .. } => {
                crate::log::Head::decode(&mut thalweg_base::Decoder::new(record)).ok().map(|head| head.settled)
            }
        }
    }

    fn sweep_every(&self, f: &mut dyn FnMut(&Slot<A>)) {
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.sweep_slots(at, SLOTS_PER_LOCK, f);
        }
    }

    /// Logs whose unsettled content lies in frames of these positions.
    fn locate_in_journal(&self, at: Lsn, end: Lsn) -> Located {
        let mut located = Located { bytes: end.since(at), ..Located::default() };
        self.sweep_every(&mut |slot| {
            let Slot::Awake(log) = slot else { return };
            let first = log.pieces.partition_point(|piece| piece.frame.end() <= at);
            let after = log.pieces.partition_point(|piece| piece.frame.lsn < end);
            if let Some(piece) = log.pieces.get(first).filter(|_| first < after) {
                let upto = log.pieces.get(after).map_or(log.tail, |next| next.start);
                located.push(log.id, piece.start..upto);
            }
        });
        located
    }
}
