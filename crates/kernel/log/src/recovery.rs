//! Opening: one directory checkpoint read sequentially, then one journal tail.
//!
//! Checkpoints are fuzzy: records are taken while writers go on. Each record says by `changed` which frames it knows
//! already, and the journal is replayed from the manifest's floor, so a frame may meet a record that is older or newer
//! than itself:
//!
//! - a record newer than the frame keeps its state; an append only adds its piece, if the piece is not settled;
//! - a log that is not there although the frame writes to it was deleted later: its `Delete` must follow in the
//!   journal.

use crate::attachment::Attachment;
use crate::chunk_cache::ChunkCache;
use crate::damage::Register;
use crate::error::OpenError;
use crate::frame::{self, Ancestor, Entry};
use crate::guard::fresh_log;
use crate::ids::LogIds;
use crate::ledger::Ledger;
use crate::log::{Log, Piece};
use crate::logs::{Counters, Logs, LogsOptions, Loss, SHARDS, shard_of_log};
use crate::read::Arrivals;
use crate::root::{LossMarks, Root};
use crate::sealed::Sealed;
use crate::shard::Shard;
use crate::upkeep::{Pace, UpkeepError};
use crate::wakeup::Awakened;
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, Lsn, Offset};
use thalweg_journal::{Bounds, FrameRef, Journal};
use thalweg_manifest::Manifest;
use thalweg_storage::Storage;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::AtomicBool;
use thalweg_unit::{IndexId, Replay, Unit};

/// Logs as the root and the directory have them, of a unit that is read and not owned: nothing in it has changed.
///
/// Logs open in steps, so that other indexes of the unit can open beside them:
///
/// 1. [`Logs::load`] reads the section and the directory. The caller then acquires the unit: from there on no earlier
///    owner commits anything.
/// 2. [`Loaded::replay_on`] puts the section in force. The caller opens the journal within the bounds of the unit, and
///    passes every frame to [`Unit::replay`], which gives the part of logs to [`Replaying`].
/// 3. [`Replaying::finish`] makes the logs, and [`Unit::start`] commits the root and only then removes the objects that
///    no root names.
///
/// An opening that ends before the last step has removed nothing. [`Logs::begin`] takes the same steps for logs that
/// are alone.
pub struct Loaded<A: Attachment> {
    options: LogsOptions,
    root: Root,
    tables: Tables<A>,
    damage: Register,
    awakened: Arc<Awakened>,
    next_id: u64,
}

/// The logs of a unit that is owned, and whose journal is being replayed.
pub struct Replaying<A: Attachment> {
    options: LogsOptions,
    sealed: Sealed,
    tables: Tables<A>,
    damage: Register,
    awakened: Arc<Awakened>,
    /// The content of logs in the journal below is settled.
    floor: Lsn,
    next_id: u64,
    loss: LossMarks,
}

/// Logs that are the one index of their unit, being opened.
pub struct Alone<A: Attachment> {
    unit: Arc<Unit>,
    logs: Replaying<A>,
}

/// The root of a unit, as this program or an earlier version wrote it: for [`thalweg_unit::Opening::read`].
pub fn decode_root(body: &[u8]) -> Result<thalweg_unit::Root, DecodeError> {
    Root::decode_unit(body)
}

impl<A: Attachment> Logs<A> {
    /// Reads the state of the logs below the journal: section, lists and directory. `loss` says which frames the
    /// machine may have lost since the last start.
    pub fn load(options: LogsOptions, unit: &mut thalweg_unit::Opening, loss: Loss) -> Result<Loaded<A>, OpenError> {
        let new = Root { floor: unit.floor(), ..Root::new(options.chunk_bytes) };
        let mut root = unit.section::<Root>()?.unwrap_or(new);
        root.read_lists(unit.storage()).map_err(OpenError::List)?;
        #[cfg(feature = "faults")]
        if options.faults().orphans_go_first {
            unit.remove_orphans_before_owning(&thalweg_unit::Section::objects(&root))?;
        }
        let awakened = Arc::<Awakened>::default();
        let damage = Register::default();
        damage.note_lengths(&root, unit.storage().as_ref())?;
        let moved_max = options.moved_logs.div_ceil(SHARDS);
        let mut tables = Tables {
            shards: (0..SHARDS).map(|_| Shard::new(moved_max, Arc::clone(&awakened))).collect(),
            missed: HashSet::new(),
            touched: Vec::new(),
        };
        tables.load(&root, unit.storage())?;
        let next_id = root.id_ceiling.max(options.ids_from);
        // Each start skips the ids that the one before it reserved: an id that was assigned, and lost before it was
        // durable, stays unused.
        root.id_ceiling = next_id + options.id_reserve;
        root.loss.raise(loss, LogId(next_id << SHARDS.trailing_zeros()));
        let options = LogsOptions { chunk_bytes: root.chunk_bytes, ..options };
        Ok(Loaded { options, root, tables, damage, awakened, next_id })
    }

    /// Begins to open logs that are the one index of their unit: everything that comes before the journal.
    pub fn begin(
        options: LogsOptions,
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        loss: Loss,
    ) -> Result<Alone<A>, OpenError> {
        Self::begin_above(0, options, storage, manifest, loss)
    }

    /// Like [`Logs::begin`], with an epoch above `term`, the newest of the journal: see
    /// [`thalweg_unit::Opening::acquire_above`].
    pub fn begin_above(
        term: u64,
        options: LogsOptions,
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        loss: Loss,
    ) -> Result<Alone<A>, OpenError> {
        let read = || thalweg_unit::Opening::read(Arc::clone(&storage), Arc::clone(&manifest), decode_root);
        let (unit, loaded) = thalweg_unit::own(term, read, |opening| Self::load(options, opening, loss))?;
        Ok(Alone { logs: loaded.replay_on(&unit), unit })
    }
}

impl<A: Attachment> Loaded<A> {
    /// Puts the section of the logs in force, on the unit that was read and is owned now.
    #[must_use]
    pub fn replay_on(self, unit: &Arc<Unit>) -> Replaying<A> {
        let Self { options, root, tables, damage, awakened, next_id } = self;
        let (loss, floor) = (root.loss, root.floor);
        let sealed = Sealed::new(&options, Arc::clone(unit), root);
        Replaying { options, sealed, tables, damage, awakened, floor, next_id, loss }
    }
}

impl<A: Attachment> Alone<A> {
    /// The root's bounds of the journal: where it must begin, and how far it was durable.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.unit.bounds()
    }

    /// The owner's epoch: the term that its journal is opened in, so that an append of an earlier owner fails as its
    /// commit does.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.unit.epoch()
    }

    /// Takes the next frame that the journal found.
    pub fn replay(&mut self, at: FrameRef, frame: &Bytes) -> Result<(), OpenError> {
        Ok(self.unit.replay(at, frame, &mut [&mut self.logs])?)
    }

    /// Opens the logs on the journal whose frames were replayed. Refuses if one of them could not be.
    pub fn finish(self, journal: Arc<dyn Journal>) -> Result<Logs<A>, OpenError> {
        let logs = self.logs.finish(Arc::clone(&journal))?;
        self.unit.start(journal)?;
        Ok(logs)
    }
}

impl<A: Attachment> Replay for Replaying<A> {
    fn index(&self) -> IndexId {
        IndexId::LOG
    }

    fn floor(&self) -> Lsn {
        self.floor
    }

    fn replay(&mut self, at: FrameRef, part: &Bytes) -> Result<(), String> {
        self.tables.replay(at, part)
    }
}

impl<A: Attachment> Replaying<A> {
    /// The logs, when every frame was replayed. Nothing may be written to them before the unit is started.
    pub fn finish(mut self, journal: Arc<dyn Journal>) -> Result<Logs<A>, OpenError> {
        self.tables.finish()?;
        let Self { options, sealed, tables, damage, awakened, next_id, loss, .. } = self;
        let id_reserve = options.id_reserve;
        Ok(Logs {
            shards: tables.shards.into_iter().map(Mutex::new).collect(),
            arrivals: Arrivals::of(&journal),
            journal,
            sealed,
            chunk_cache: ChunkCache::new(&options),
            options,
            ids: LogIds::above(next_id, id_reserve),
            loss,
            low_on_space: AtomicBool::new(false),
            counters: Counters::default(),
            pace: Pace::default(),
            damage,
            awakened,
            ledger: Ledger::default(),
            #[cfg(feature = "faults")]
            interrupt: Mutex::new(None),
        })
    }
}

impl<A: Attachment> Logs<A> {
    /// Ends the unit of the logs when its journal is closed: see [`Unit::close`].
    pub fn close(&self) -> Result<(), UpkeepError> {
        Ok(self.sealed.unit().close()?)
    }

    /// Whether a later owner has the unit: see [`Unit::is_deposed`].
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.sealed.unit().is_deposed()
    }
}

struct Tables<A> {
    shards: Vec<Shard<A>>,
    /// Logs that frames wrote to although they are not there: their deletes must follow.
    missed: HashSet<LogId>,
    /// Logs that the present frame has changed.
    touched: Vec<LogId>,
}

/// Does the log's state include the frame already? A frame in replay sets `changed` to its position + 1, and to + 2
/// when it is done; a log that has applied later frames, live or in an earlier replay, is further. Every frame is
/// longer than that.
fn knows<A>(log: &Log<A>, at: FrameRef) -> bool {
    log.changed > at.lsn.plus(1)
}

impl<A: Attachment> Tables<A> {
    /// Reads the directory's objects, newest first: the first record of a log is its newest.
    fn load(&mut self, root: &Root, storage: &Arc<dyn Storage>) -> Result<(), OpenError> {
        let mut gone = HashSet::new();
        let records: u64 = root.directory.iter().map(|object| object.records).max().unwrap_or(0);
        self.shards.iter_mut().for_each(|shard| shard.reserve(records as usize / SHARDS));
        for object in root.directory.iter().rev() {
            crate::checkpoint::read(storage, object, |id, record| {
                let shard = &mut self.shards[shard_of_log(id)];
                if shard.slot_of(id).is_some() || gone.contains(&id) {
                    return;
                }
                match record {
                    Some(record) => shard.insert_at_rest(id, record.into()),
                    None => {
                        gone.insert(id);
                    }
                }
            })
            .map_err(|error| OpenError::Directory(error.to_string()))?;
        }
        Ok(())
    }

    fn replay(&mut self, at: FrameRef, part: &Bytes) -> Result<(), String> {
        let entries = frame::entries(part).map_err(|e| e.to_string())?;
        for entry in entries {
            let log = entry.log();
            self.replay_entry(at, entry).map_err(|what| format!("log {log}: {what}"))?;
        }
        for id in std::mem::take(&mut self.touched) {
            if let Some(log) = self.log(id)? {
                log.changed = log.changed.max(at.lsn.plus(2));
            }
        }
        Ok(())
    }

    fn replay_entry(&mut self, at: FrameRef, entry: Entry) -> Result<(), String> {
        // Only compared with positions of other frames: any position inside the frame will do (see `knows`).
        let end = at.lsn.plus(1);
        let id = entry.log();
        match entry {
            Entry::Create { name, start, lineage, note, append, .. } => {
                // Whether or not the fork is known already: its ancestors' records may be older than it.
                self.pin_ancestors(&lineage, at)?;
                if !self.is_there(id) && !self.missed.contains(&id) {
                    let attachment = A::create(&note, end).map_err(|e| e.to_string())?;
                    let mut log = fresh_log(id, &name, start, lineage, attachment, end);
                    log.created = Lsn::ZERO;
                    self.shards[shard_of_log(id)].insert(log);
                    self.touched.push(id);
                }
                self.extend(id, at, append)
            }
            Entry::Write { note, append, .. } => {
                let known = match self.log(id)? {
                    None => {
                        self.missed.insert(id);
                        return Ok(());
                    }
                    Some(log) => knows(log, at),
                };
                self.extend(id, at, append)?;
                if !known && !note.is_empty() {
                    let Some(log) = self.touched(id, end)? else {
                        return Ok(());
                    };
                    log.attachment.apply(&note, end).map_err(|e| e.to_string())?;
                }
                Ok(())
            }
            Entry::Trim { start, .. } => self.change(id, at, |log| log.start = log.start.max(start)),
            Entry::Unpin { .. } => self.change(id, at, |log| log.pinned = Offset::ZERO),
            Entry::Delete { .. } => {
                self.missed.remove(&id);
                self.shards[shard_of_log(id)].remove(id, Lsn::ZERO);
                Ok(())
            }
        }
    }

    fn is_there(&self, id: LogId) -> bool {
        self.shards[shard_of_log(id)].slot_of(id).is_some()
    }

    fn log(&mut self, id: LogId) -> Result<Option<&mut Log<A>>, String> {
        self.shards[shard_of_log(id)].wake(id).map_err(|e| e.to_string())
    }

    fn touched(&mut self, id: LogId, end: Lsn) -> Result<Option<&mut Log<A>>, String> {
        self.touched.push(id);
        let Some(log) = self.log(id)? else {
            return Ok(None);
        };
        log.changed = log.changed.max(end);
        log.dirty = true;
        Ok(Some(log))
    }

    /// A change of state other than an append, unless the record knows it.
    fn change(&mut self, id: LogId, at: FrameRef, f: impl FnOnce(&mut Log<A>)) -> Result<(), String> {
        match self.log(id)? {
            None => {
                self.missed.insert(id);
            }
            Some(log) if knows(log, at) => {}
            Some(_) => {
                if let Some(log) = self.touched(id, at.lsn.plus(1))? {
                    f(log);
                }
            }
        }
        Ok(())
    }

    fn pin_ancestors(&mut self, lineage: &[Ancestor], at: FrameRef) -> Result<(), String> {
        for ancestor in lineage {
            // An ancestor that is gone was deleted later, with every fork of it.
            let Some(log) = self.log(ancestor.id)? else {
                continue;
            };
            if !knows(log, at)
                && log.pinned < ancestor.upto
                && let Some(log) = self.touched(ancestor.id, at.lsn.plus(1))?
            {
                log.pinned = ancestor.upto;
            }
        }
        Ok(())
    }

    fn extend(&mut self, id: LogId, at: FrameRef, append: Option<frame::Appended>) -> Result<(), String> {
        let Some(append) = append else { return Ok(()) };
        let bytes = append.lengths.bytes();
        if bytes == 0 {
            return Ok(());
        }
        if let frame::Content::Reference { source, from } = append.content {
            self.pin_ancestors(&[Ancestor { id: source, upto: from.plus(bytes) }], at)?;
        }
        let Some(log) = self.log(id)? else {
            return Ok(());
        };
        let end = append.start.plus(bytes);
        let known = knows(log, at);
        let expected = if known { log.pieces.back().map_or(log.settled, |p| p.start.plus(1)) } else { log.tail };
        if append.start < expected || (!known && append.start != expected) {
            return Err(format!("an append at {} where {expected} was expected", append.start));
        }
        log.pieces.push_back(Piece { start: append.start, frame: at });
        if !known {
            log.tail = end;
            self.touched(id, at.lsn.plus(1))?;
        }
        Ok(())
    }

    /// Checks the state after the last frame.
    fn finish(&mut self) -> Result<(), OpenError> {
        if let Some(log) = self.missed.iter().min() {
            return Err(OpenError::Directory(format!("frames write to log {log}, which is not there")));
        }
        for shard in &mut self.shards {
            shard.forget_vanished(Lsn::MAX);
        }
        Ok(())
    }
}
