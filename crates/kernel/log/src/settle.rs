//! Settling: one round moves a stretch of the journal into a run and a directory object, and the root's floor past it.
//!
//! A round, with `floor` the journal position that it moves the floor to:
//!
//! 1. `floor` is durable, and at most about `settle_bytes` past the old one.
//! 2. Under short locks: the records of logs that changed, the pieces that stand below `floor`, then the tombstones of
//!    logs that were deleted. Writers go on between.
//! 3. The pieces are read in journal order and written in (log, offset) order.
//! 4. The round waits until everything that the journal had accepted by the end of step 2 is durable: the directory
//!    must never be ahead of the journal. That is more than the records say. A log that was deleted during step 2 may
//!    have neither record nor pieces in this round: without its delete, which lies above `floor`, recovery would find
//!    it without the content that the new floor has passed. Then the records are written. If the journal has no space
//!    to write the frames that it has accepted, the round fails: nothing has happened, and the thread is free to make
//!    space.
//! 5. One edit names the new objects and moves the floor. Before it nothing has happened, after it everything has.
//! 6. Under short locks: the settled pieces are dropped, logs without any come to rest. The unit trims the frames that
//!    no index needs.
//!
//! While an object of the directory is known to be damaged a round is due at once, step 2 takes the records of all
//! logs, and in step 5 they replace all of the directory.

use crate::attachment::Attachment;
use crate::checkpoint::{self, Records};
use crate::damage::Place;
use crate::faults::Moment;
use crate::frame;
use crate::log::Piece;
use crate::logs::{Logs, shard_of_log};
use crate::root::{Root, Run};
use crate::run::{Content, Extent, ObjectMeta};
use crate::shard::{Shard, Slot};
use crate::upkeep::UpkeepError;
use std::ops::Range;
use thalweg_base::{LogId, Lsn, Millis, Offset};
use thalweg_journal::ReadError;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::Ordering;

/// How many logs are visited under one lock.
const LOGS_PER_LOCK: usize = 256;

/// Bytes of frames fetched from the journal in one go.
const FETCH_BYTES: usize = 8 << 20;

/// Frames of this size that one log has are fetched when they are written, so that a round does not hold all of them in
/// memory.
const LARGE_BYTES: u32 = 64 << 10;

/// How often logs are put to rest that a lookup has woken and nothing has changed.
pub(crate) const REST_EVERY_MS: u64 = 1_000;

/// When to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When enough of the journal is unsettled, or its oldest frame has waited long enough.
    Due,
    /// At once, with all that is durable.
    Now,
}

/// The logs and pieces that a round took up, shard by shard.
#[derive(Default)]
struct Taken {
    /// The lists of active slots, to be given back.
    active: Vec<Vec<u32>>,
    tombstones: Vec<Vec<LogId>>,
    records: Records,
    pieces: Vec<(LogId, Piece)>,
    /// Logs whose record was taken.
    clean: Vec<LogId>,
    /// The end of everything that can have had a say in this: accepted, not durable.
    seen: Lsn,
    /// The records are those of all logs: they replace every directory object.
    whole: bool,
}

impl<A: Attachment> Logs<A> {
    /// Runs one round if it is time; whether it did.
    pub fn settle(&self, now: Millis, when: When) -> Result<bool, UpkeepError> {
        let _one = self.pace.round.lock();
        let Some(floor) = self.due(now, when) else {
            self.rest(now);
            return Ok(false);
        };
        let mut taken = self.take(floor);
        let done = self.round(floor, &mut taken, now);
        match &done {
            Ok(()) => self.release(taken, floor),
            Err(_) => {
                self.give_back(taken);
                // An owner that is full refuses appends, so it does not meet its successor in the journal.
                self.sealed.unit().confirm_owner();
            }
        }
        done.map(|()| true)
    }

    /// The next floor, if a round is due.
    fn due(&self, now: Millis, when: When) -> Option<Lsn> {
        let (old, durable) = (self.sealed.root().floor, self.durable());
        if self.is_directory_damaged() {
            return Some(old.plus(durable.since(old).min(self.options.settle_bytes)));
        }
        let mut since = self.pace.unsettled_since.lock();
        if durable <= old {
            *since = None;
            return None;
        }
        let mut first_seen = match *since {
            Some((floor, at)) if floor == old => at,
            _ => now,
        };
        let waited_ms = first_seen.elapsed(now);
        *since = Some((old, first_seen));
        let lag = durable.since(old);
        let due = when == When::Now || lag >= self.options.settle_bytes || waited_ms >= self.options.settle_after_ms;
        due.then(|| old.plus(lag.min(self.options.settle_bytes)))
    }

    /// Every record is in memory: a round writes all of them where a start would not find one.
    pub(crate) fn is_directory_damaged(&self) -> bool {
        !self.damage.is_empty() && self.sealed.root().directory.iter().any(|object| self.damage.has_object(object.id))
    }

    fn take(&self, floor: Lsn) -> Taken {
        let mut taken = Taken { whole: self.is_directory_damaged(), ..Taken::default() };
        for shard in &self.shards {
            let (mut active, slots) = {
                let mut shard = shard.lock();
                (std::mem::take(&mut shard.active), shard.slots().len() as u32)
            };
            let mut tombstones = self.planted_tombstones(shard, &mut taken);
            self.at(Moment::ShardListed);
            // A slot that was freed and used again may be listed twice.
            active.sort_unstable();
            active.dedup();
            let all: Vec<u32> = if taken.whole { (0..slots).collect() } else { Vec::new() };
            let looked_at = if taken.whole { &all } else { &active };
            for slots in looked_at.chunks(LOGS_PER_LOCK) {
                self.take_logs(shard, slots, floor, &mut taken);
                self.at(Moment::ShardHalfTaken);
            }
            // After the logs: one that was deleted before its turn has a tombstone in this round.
            if !self.options.faults().round_misses_deletes() {
                tombstones = std::mem::take(&mut shard.lock().tombstones);
            }
            taken.records.extend(tombstones.iter().map(|log| (*log, None)));
            taken.active.push(active);
            taken.tombstones.push(tombstones);
        }
        // One that was deleted after its record was taken has only a tombstone.
        taken.records.sort_unstable_by_key(|(log, record)| (*log, record.is_some()));
        taken.records.dedup_by_key(|(log, _)| *log);
        if !self.options.faults().round_misses_deletes() {
            taken.seen = self.journal.end();
        }
        self.at(Moment::Taken);
        taken
    }

    /// Takes the records and pieces of some logs of a shard.
    fn take_logs(&self, shard: &Mutex<Shard<A>>, slots: &[u32], floor: Lsn, taken: &mut Taken) {
        let mut shard = shard.lock();
        for slot in slots {
            if let (true, Some(Slot::Rest { id, record })) = (taken.whole, shard.slots().get(*slot as usize)) {
                taken.records.push((*id, Some(record.to_vec())));
            }
            let Some(log) = shard.awake_at(*slot) else {
                continue;
            };
            let before = taken.pieces.len();
            taken.pieces.extend(log.pieces_below(floor).map(|piece| (log.id, piece)));
            if taken.whole || log.dirty || taken.pieces.len() > before {
                taken.records.push((log.id, Some(log.record(floor))));
                taken.clean.push(log.id);
                taken.seen = taken.seen.max(log.changed);
                log.dirty = false;
            }
        }
    }

    /// The fault that a round had: tombstones are taken before the logs, and a delete in between is neither seen nor
    /// waited for.
    fn planted_tombstones(&self, shard: &Mutex<Shard<A>>, taken: &mut Taken) -> Vec<LogId> {
        if !self.options.faults().round_misses_deletes() {
            return Vec::new();
        }
        let tombstones = std::mem::take(&mut shard.lock().tombstones);
        if !tombstones.is_empty() {
            taken.seen = taken.seen.max(self.journal.end());
        }
        tombstones
    }

    fn round(&self, floor: Lsn, taken: &mut Taken, now: Millis) -> Result<(), UpkeepError> {
        let (objects, ranges) = self.build_run(&mut taken.pieces)?;
        let settled: u64 = objects.iter().map(|meta| meta.bytes()).sum();
        let fresh: Vec<_> = objects.iter().map(|meta| meta.id).collect();
        let known_durable = floor.max(taken.seen);
        self.at(Moment::RunWritten);
        let directory = self.journal.wait_unless_full(known_durable).map_err(UpkeepError::from).and_then(|()| {
            self.at(Moment::Durable);
            let durable = self.durable();
            assert!(
                durable >= known_durable,
                "records know {known_durable}, and the journal is durable up to {durable}"
            );
            if taken.records.is_empty() {
                return Ok(None);
            }
            Ok(Some(checkpoint::write(&self.sealed, &taken.records)?))
        });
        let directory = directory.inspect_err(|_| self.sealed.unit().abandon(&fresh))?;
        let made = fresh.into_iter().chain(directory.iter().map(|object| object.id)).collect();
        self.at(Moment::Unnamed);
        let whole = taken.whole;
        let ceiling = self.ids.next_ceiling();
        let counting = self.ledger.count();
        let objects = self.count_made(&counting, &objects, &ranges, now);
        let change = |root: &mut Root| {
            root.floor = floor;
            root.id_ceiling = root.id_ceiling.max(ceiling);
            if whole {
                root.directory.clear();
            }
            root.directory.extend(directory);
            if !objects.is_empty() {
                root.runs.push(Run::new(root.next_run, objects.clone()));
                root.next_run += 1;
            }
        };
        self.sealed.edit_claim(made, change, |claim| claim.durable = claim.durable.max(known_durable))?;
        self.ledger.lock().insert(&objects);
        drop(counting);
        self.at(Moment::Edited);
        self.ids.raise(ceiling);
        let pace = &self.pace;
        pace.settled_bytes.fetch_add(settled, Ordering::Relaxed);
        pace.directory_bytes.fetch_add(directory.map_or(0, |object| object.bytes), Ordering::Relaxed);
        pace.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads pieces in journal order, writes them in key order: the objects, and which range of each log they have.
    fn build_run(&self, pieces: &mut [(LogId, Piece)]) -> Result<(Vec<ObjectMeta>, Ranges), UpkeepError> {
        pieces.sort_unstable_by_key(|(_, piece)| piece.frame.lsn);
        let mut extents = Vec::with_capacity(pieces.len());
        let mut small = Vec::with_capacity(pieces.len());
        for frame in pieces.chunk_by(|(_, a), (_, b)| a.frame.lsn == b.frame.lsn) {
            match frame {
                [(log, piece)] if piece.frame.len >= LARGE_BYTES => extents.push(ToSettle::Large(*log, *piece)),
                _ => small.extend_from_slice(frame),
            }
        }
        let mut rest = &small[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest.iter().take_while(|(_, piece)| {
                let fits = bytes < FETCH_BYTES;
                bytes += piece.frame.len as usize;
                fits
            });
            let (now, later) = rest.split_at(count.count());
            rest = later;
            let payloads = self.fetch(now)?;
            for ((log, piece), payload) in now.iter().zip(&payloads) {
                extents.push(ToSettle::Small(extent(*log, *piece, payload)?));
            }
        }
        extents.sort_unstable_by_key(ToSettle::key);
        let (mut builder, mut ranges) = (self.run_builder(), Ranges::new());
        let mut push = |extent: &Extent| {
            note_range(extent, &mut ranges);
            builder.push(extent)
        };
        for extent in &extents {
            match extent {
                ToSettle::Small(extent) => push(extent)?,
                ToSettle::Large(log, piece) => {
                    for payload in self.fetch(&[(*log, *piece)])? {
                        push(&self::extent(*log, *piece, &payload)?)?;
                    }
                }
            }
        }
        Ok((builder.finish()?, ranges))
    }

    fn fetch(&self, pieces: &[(LogId, Piece)]) -> Result<Vec<bytes::Bytes>, UpkeepError> {
        let frames: Vec<_> = pieces.iter().map(|(_, piece)| piece.frame).collect();
        self.journal.read(&frames).wait().map_err(|error| {
            if let ReadError::Corrupt { at, .. } = error {
                let end = frames.iter().find(|frame| frame.lsn == at).map_or(at, |frame| frame.end());
                self.damage.note(Place::Journal { at, end }, &error);
            }
            UpkeepError::Read(error.to_string())
        })
    }

    fn release(&self, taken: Taken, floor: Lsn) {
        for (shard, active) in self.shards.iter().zip(taken.active) {
            self.put_to_rest(shard, &active, floor);
        }
        self.sealed.release(floor);
    }

    /// Drops the settled pieces of these logs, and puts to rest those that may rest; the others stay listed as active.
    fn put_to_rest(&self, shard: &Mutex<Shard<A>>, active: &[u32], floor: Lsn) {
        let durable = self.durable();
        for slots in active.chunks(LOGS_PER_LOCK) {
            let mut shard = shard.lock();
            for slot in slots {
                if let Some(log) = shard.awake_at(*slot) {
                    log.drop_pieces_below(floor);
                }
                if shard.put_to_rest(*slot, durable) {
                    shard.active.push(*slot);
                }
            }
        }
        shard.lock().forget_vanished(durable);
    }

    /// The round failed: everything is as it was before.
    fn give_back(&self, taken: Taken) {
        for ((shard, active), tombstones) in self.shards.iter().zip(taken.active).zip(taken.tombstones) {
            let mut shard = shard.lock();
            shard.active.extend(active);
            shard.tombstones.extend(tombstones);
        }
        for log in taken.clean {
            let mut shard = self.shards[shard_of_log(log)].lock();
            if let Some(log) = shard.slot_of(log).and_then(|slot| shard.awake_at(slot)) {
                log.dirty = true;
            }
        }
    }

    /// Puts logs to rest that a lookup has woken and nothing has changed.
    fn rest(&self, now: Millis) {
        let mut rested = self.pace.rested.lock();
        if rested.elapsed(now) < REST_EVERY_MS {
            return;
        }
        *rested = now;
        for shard in &self.shards {
            let active = std::mem::take(&mut shard.lock().active);
            self.put_to_rest(shard, &active, Lsn::ZERO);
        }
    }
}

/// Content that a round writes into its run.
enum ToSettle {
    Small(Extent),
    /// Still in the journal.
    Large(LogId, Piece),
}

impl ToSettle {
    fn key(&self) -> (LogId, Offset) {
        match self {
            ToSettle::Small(extent) => (extent.log, extent.start),
            ToSettle::Large(log, piece) => (*log, piece.start),
        }
    }
}

/// The range of each log that a round settles, in the order of logs.
type Ranges = Vec<(LogId, Range<Offset>)>;

/// Adds an extent, which comes after those before it in the order of keys.
fn note_range(extent: &Extent, ranges: &mut Ranges) {
    let end = extent.start.plus(extent.lengths().bytes());
    match ranges.last_mut().filter(|(log, range)| *log == extent.log && range.end == extent.start) {
        Some((_, range)) => range.end = end,
        None => ranges.push((extent.log, extent.start..end)),
    }
}

fn extent(log: LogId, piece: Piece, payload: &bytes::Bytes) -> Result<Extent, UpkeepError> {
    let damaged = |what: String| UpkeepError::Read(format!("the frame at {}: {what}", piece.frame.lsn));
    let append = frame::find_append(payload, log, piece.start)
        .map_err(|error| damaged(error.to_string()))?
        .ok_or_else(|| damaged(format!("it does not append to log {log} at {}", piece.start)))?;
    let content = match append.content {
        frame::Content::Bytes(bytes) => Content::Bytes { parts: vec![bytes], lengths: append.lengths },
        frame::Content::Reference { source, from } => Content::Reference { source, from, lengths: append.lengths },
    };
    Ok(Extent { log, start: piece.start, content })
}
