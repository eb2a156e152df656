//! All logs of one unit, over one journal.

use crate::attachment::Attachment;
use crate::chunk_cache::ChunkCache;
use crate::damage::Register;
use crate::faults::{Faults, Moment};
use crate::frame::Ancestor;
use crate::guard::Guard;
use crate::ids::LogIds;
use crate::ledger::Ledger;
use crate::lists::ListOptions;
use crate::log::Head;
use crate::read::Arrivals;
use crate::root::LossMarks;
use crate::sealed::Sealed;
use crate::shard::{Retained, Shard, Slot};
use crate::upkeep::Pace;
use crate::wakeup::Awakened;
use std::sync::Arc;
use thalweg_base::{Decoder, Durability, LogId, Lsn, Offset, Reached, Until, crc};
use thalweg_journal::Journal;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many shards the table of logs has. A shard's number is part of the ids of its logs, so this never changes.
/// The checker of interleavings has a few, so that it meets in one more often.
pub(crate) const SHARDS: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };
pub(crate) const SHARD_BITS: u32 = SHARDS.trailing_zeros();

pub(crate) fn shard_of_name(name: &str) -> usize {
    crc(name.as_bytes()) as usize % SHARDS
}

pub(crate) fn shard_of_log(log: LogId) -> usize {
    log.0 as usize % SHARDS
}

/// Tuning. Answers never depend on it, except for `chunk_bytes`, which the first start of a data folder fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogsOptions {
    /// A read ends at the first message boundary at or after the next multiple of this many bytes of the log.
    pub chunk_bytes: u64,
    /// A round of settling takes at most about this much of the journal, and starts when as much has gathered.
    pub settle_bytes: u64,
    /// A round of settling starts at the latest when the oldest unsettled frame is this old, in milliseconds.
    pub settle_after_ms: u64,
    /// How many runs of about the same size are merged into one.
    pub fan_in: usize,
    /// Objects are closed when they hold this much data.
    pub object_bytes: u64,
    /// Deleted data is physically gone after this time, in milliseconds.
    pub purge_after_ms: u64,
    /// The time between two passes of reclaiming, in milliseconds.
    pub reclaim_every_ms: u64,
    /// How much of the indexes of objects one such pass reads to count those that are not counted yet, in bytes, about.
    pub count_bytes: u64,
    /// How many logs are remembered whose content died since the pass before; if it is more, all indexes are read.
    /// Bounds memory.
    pub moved_logs: usize,
    /// The bounds of lists of objects.
    pub lists: ListOptions,
    /// Bounded memory for index blocks of sealed data.
    pub index_cache_bytes: u64,
    /// The lowest id to assign (without the shard's bits): lower ones may name logs of another history of this unit.
    /// Only grows in effect: a lower value than before changes nothing.
    pub ids_from: u64,
    /// How many ids a start, and each round of settling, reserves: so many logs can be made between two rounds.
    pub id_reserve: u64,
    /// Bounded memory for chunks that are read again and again.
    pub chunk_cache_bytes: u64,
    /// Chunks below this many bytes are not kept: they are as cheap to read as to find.
    pub kept_bytes_min: usize,
    /// The durability of logs whose attachment does not say one.
    pub durability: Durability,
    #[cfg(feature = "faults")]
    pub faults: Faults,
}

impl Default for LogsOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 4 << 20,
            settle_bytes: 64 << 20,
            settle_after_ms: 10_000,
            fan_in: 8,
            object_bytes: 64 << 20,
            purge_after_ms: 300_000,
            reclaim_every_ms: 5_000,
            count_bytes: 64 << 20,
            moved_logs: 1 << 17,
            lists: ListOptions::default(),
            index_cache_bytes: 64 << 20,
            ids_from: 0,
            id_reserve: 1 << 24,
            chunk_cache_bytes: 32 << 20,
            kept_bytes_min: 512,
            durability: Durability::Durable,
            #[cfg(feature = "faults")]
            faults: Faults::default(),
        }
    }
}

impl LogsOptions {
    #[allow(clippy::unused_self)]
    pub(crate) fn faults(&self) -> Faults {
        #[cfg(feature = "faults")]
        return self.faults;
        #[cfg(not(feature = "faults"))]
        Faults
    }
}

#[cfg(feature = "faults")]
pub(crate) type Interrupt = Arc<dyn Fn(Moment) + Send + Sync>;

/// Many named append-only logs. See the crate's documentation.
pub struct Logs<A: Attachment> {
    pub(crate) shards: Box<[Mutex<Shard<A>>]>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) sealed: Sealed,
    pub(crate) chunk_cache: ChunkCache,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) options: LogsOptions,
    pub(crate) ids: LogIds,
    pub(crate) loss: LossMarks,
    pub(crate) low_on_space: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) pace: Pace,
    pub(crate) damage: Register,
    pub(crate) awakened: Arc<Awakened>,
    pub(crate) ledger: Ledger,
    #[cfg(feature = "faults")]
    pub(crate) interrupt: Mutex<Option<Interrupt>>,
}

/// Monotonic counters.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) appended_bytes: AtomicU64,
    /// Events that may leave dead data: every delete; trims, pins and unpins that have changed which content is wanted;
    /// rounds that have written content that died before their edit.
    pub(crate) deaths: AtomicU64,
}

impl<A: Attachment> Logs<A> {
    /// Locks the shards of these names. Short: never hold it across a read or a wait.
    pub fn lock(&self, names: &[&str]) -> Guard<'_, A> {
        match names {
            [name] => Guard::lock_one(self, shard_of_name(name)),
            _ => Guard::lock(self, names.iter().map(|name| shard_of_name(name)).collect()),
        }
    }

    /// Locks the shards of these logs and of these names.
    pub fn lock_logs(&self, logs: &[LogId], names: &[&str]) -> Guard<'_, A> {
        match (logs, names) {
            ([log], []) => Guard::lock_one(self, shard_of_log(*log)),
            _ => {
                let of_logs = logs.iter().map(|log| shard_of_log(*log));
                Guard::lock(self, of_logs.chain(names.iter().map(|name| shard_of_name(name))).collect())
            }
        }
    }

    /// `f` is called at every [`Moment`] of background work, on its thread.
    #[cfg(feature = "faults")]
    pub fn interrupt(&self, f: Option<Interrupt>) {
        *self.interrupt.lock() = f;
    }

    #[allow(clippy::unused_self)]
    pub(crate) fn at(&self, moment: Moment) {
        #[cfg(all(feature = "faults", not(feature = "shuttle")))]
        {
            let interrupt = self.interrupt.lock().clone();
            if let Some(interrupt) = interrupt {
                interrupt(moment);
            }
        }
        let _ = moment;
    }

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        self.journal.durable()
    }

    /// The journal's written and durable position.
    pub fn reached(&self) -> Reached {
        self.journal.reached()
    }

    /// The condition that an answer waits for if it follows from the present state of all logs.
    pub fn when_all(&self) -> Until {
        let (end, durable_end) = (self.journal.end(), self.journal.durable_end());
        if durable_end > self.durable() { Until::Durable(end) } else { Until::Written(end) }
    }

    /// The journal of the unit.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// The options in force.
    pub fn options(&self) -> &LogsOptions {
        &self.options
    }

    /// While the disk is low on space, transactions of [`thalweg_journal::Class::User`] are refused, so that the
    /// remaining space serves deletes, checkpoints and settling.
    pub fn set_low_on_space(&self, low: bool) {
        self.low_on_space.store(low, Ordering::Relaxed);
    }

    /// See [`Logs::set_low_on_space`].
    pub fn is_low_on_space(&self) -> bool {
        self.low_on_space.load(Ordering::Relaxed)
    }

    /// How many logs there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether there is no log.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn note_append(&self, bytes: u64) {
        self.counters.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_death(&self) {
        self.counters.deaths.fetch_add(1, Ordering::Relaxed);
    }

    /// The content that a log retains; `None` if the log is gone.
    pub(crate) fn retained(&self, log: LogId) -> Option<Retained> {
        self.shards[shard_of_log(log)].lock().retained(log)
    }

    /// Visits logs without waking them: at most `count` slots from `cursor` on. The next cursor, or `None` when all
    /// were seen. Logs that come or go during a sweep may be missed or seen twice; `f` runs under the shard's lock.
    pub fn sweep(&self, cursor: SweepCursor, count: usize, f: &mut dyn FnMut(LogId, &str, &A)) -> Option<SweepCursor> {
        self.sweep_all(cursor, count, &mut |seen| f(seen.id, seen.name, seen.attachment))
    }

    /// Like [`Logs::sweep`], with the positions of each log.
    pub fn sweep_all(&self, cursor: SweepCursor, count: usize, f: &mut dyn FnMut(Seen<'_, A>)) -> Option<SweepCursor> {
        let reached = self.reached();
        self.sweep_slots(cursor, count, &mut |slot| self.seen(slot, reached, &mut *f))
    }

    /// Like [`Logs::sweep`], with names alone: nothing is decoded.
    pub fn sweep_names(&self, cursor: SweepCursor, count: usize, f: &mut dyn FnMut(&str)) -> Option<SweepCursor> {
        self.sweep_slots(cursor, count, &mut |slot| {
            if let Ok(name) = std::str::from_utf8(slot.name())
                && !name.is_empty()
            {
                f(name);
            }
        })
    }

    /// Calls `f` with a log, without waking it; `false` if there is none of that name.
    pub fn peek(&self, name: &str, f: &mut dyn FnMut(Seen<'_, A>)) -> bool {
        let reached = self.reached();
        let shard = self.shards[shard_of_name(name)].lock();
        let slot = shard.find(name).and_then(|slot| shard.slots().get(slot as usize));
        slot.inspect(|slot| self.seen(slot, reached, f)).is_some()
    }

    fn seen(&self, slot: &Slot<A>, reached: Reached, f: &mut dyn FnMut(Seen<'_, A>)) {
        match slot {
            Slot::Vacant => {}
            Slot::Awake(log) => {
                let published = log.published(reached.of(log.durability(self.options.durability)));
                let loss_mark = self.loss.of(log.attachment.durability());
                f(Seen {
                    id: log.id,
                    name: &log.name,
                    start: log.start,
                    published,
                    incarnation: incarnation(&log.lineage, log.id, loss_mark, published),
                    attachment: &log.attachment,
                });
            }
            Slot::Rest { id, record } => {
                if let Ok((head, lineage, attachment)) = resting::<A>(record) {
                    let loss_mark = self.loss.of(attachment.durability());
                    f(Seen {
                        id: *id,
                        name: head.name,
                        start: head.start,
                        published: head.tail,
                        incarnation: incarnation(&lineage, *id, loss_mark, head.tail),
                        attachment: &attachment,
                    });
                }
            }
        }
    }

    pub(crate) fn sweep_slots(
        &self,
        mut cursor: SweepCursor,
        count: usize,
        f: &mut dyn FnMut(&Slot<A>),
    ) -> Option<SweepCursor> {
        let mut left = count;
        while left > 0 {
            let shard = self.shards.get(cursor.shard)?.lock();
            for slot in shard.slots().iter().skip(cursor.slot).take(left) {
                cursor.slot += 1;
                left -= 1;
                f(slot);
            }
            if cursor.slot >= shard.slots().len() {
                cursor = SweepCursor { shard: cursor.shard + 1, slot: 0 };
                if cursor.shard == SHARDS {
                    return None;
                }
            }
        }
        Some(cursor)
    }
}

/// A place in a sweep over all logs; the default is the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCursor {
    shard: usize,
    slot: usize,
}

impl SweepCursor {
    /// The place as a number, for a sweep that goes on elsewhere.
    #[must_use]
    pub fn to_number(self) -> u64 {
        (self.shard as u64) << 32 | self.slot as u64
    }

    /// The place that a number names. One that no sweep has returned names some place, or the end.
    #[must_use]
    pub fn of_number(number: u64) -> Self {
        Self { shard: (number >> 32) as usize, slot: (number & u64::from(u32::MAX)) as usize }
    }
}

/// A log as a sweep sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a, A> {
    /// The log's id.
    pub id: LogId,
    /// The log's name.
    pub name: &'a str,
    /// The earliest retained position.
    pub start: Offset,
    /// The tail that readers may see.
    pub published: Offset,
    /// The incarnation that positions carry there.
    pub incarnation: u64,
    /// The engine's state of the log.
    pub attachment: &'a A,
}

/// The acknowledged positions of a unit that may have been lost since its last start. Logs that may have lost some get
/// another incarnation, so that a position from before is never taken for a position of the new history. Each loss
/// includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// No acknowledged position is lost.
    #[default]
    Nothing,
    /// The machine went down: content that was acknowledged as buffered may be lost.
    Buffered,
    /// The machine went down while logs that do not say so were buffered.
    Unsaid,
    /// The unit was replaced by an older copy.
    Everything,
}

/// The incarnation that positions of a log carry at `offset`: the id of the log that owns the position or, if that is
/// from before the loss mark, of the first log after it through which the position was inherited. Where all of these
/// logs are from before the mark, it is the mark: when the loss happened a name stood for one log, and a log that takes
/// the name afterwards has an id above the mark.
pub(crate) fn incarnation(lineage: &[Ancestor], log: LogId, loss_mark: LogId, offset: Offset) -> u64 {
    let mut heirs = lineage.iter().skip_while(|a| offset > a.upto).map(|a| a.id).chain([log]);
    heirs.find(|id| *id >= loss_mark).unwrap_or(loss_mark).0
}

type Resting<'a, A> = (Head<'a>, Box<[Ancestor]>, A);

fn resting<A: Attachment>(record: &[u8]) -> Result<Resting<'_, A>, thalweg_base::DecodeError> {
    let mut d = Decoder::new(record);
    let head = Head::decode(&mut d)?;
    let lineage = crate::frame::lineage(&mut d)?;
    Ok((head, lineage, A::decode(d.rest())?))
}

/// A read's wish: content of `log` from `from` on, to the end of the chunk that `from` lies in, never past `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFrom {
    /// The log to read.
    pub log: LogId,
    /// A message boundary.
    pub from: Offset,
    /// A published tail.
    pub upto: Offset,
}
