//! One turn of copying: everything that the folder's root names and the bucket lacks, then the mirror's root.
//!
//! A turn holds one root of the unit, so that nothing which it names is removed meanwhile, and takes the end of the
//! journal from that root's floor on. It commits only when the bucket has all of it. What the root before named and
//! this one does not is removed after the commit.

use super::at_once::at_once;
use super::stats::Counters;
use crate::unit::UnitLogs;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use thalweg_base::{Lsn, ObjectId};
use thalweg_journal::{FileJournal, Journal, Tail};
use thalweg_log::HeldCut;
use thalweg_object::{Mirror, MirrorError, Mirrored, MirroredTail};
use thalweg_storage::{Storage, StorageError, TieredStorage};
use thiserror::Error;

/// How often to take a root again whose journal was trimmed before it was held.
const HOLD_TRIES: usize = 100;
/// Objects that are copied before their marks are synced, and before local files may go.
const COPIES_PER_ROUND: usize = 64;
/// How much the files beside the data may take in the mirror's root.
const FILES_BYTES_MAX: usize = 1 << 20;

/// Why a turn failed.
#[derive(Debug, Error)]
pub(super) enum TurnError {
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the journal's end cannot be read: {0}")]
    Journal(#[from] io::Error),
    #[error("the data folder cannot note its store: {0}")]
    Note(String),
    /// The mirror belongs to another folder.
    #[error("the bucket holds the data of another folder (lineage {found})")]
    Foreign { found: String },
    /// The folder was set back to an older state than the bucket has.
    #[error(
        "the bucket has this folder's journal up to {mirrored}, and the folder ends at {found}: it is an older copy. Name an \
         empty folder as --data to serve what the bucket has"
    )]
    Older { mirrored: Lsn, found: Lsn },
    /// The folder is an older copy: a later start of it has owned the mirror.
    #[error(
        "the bucket was used by a later start of this folder, which is an older copy of it. Name an empty folder as --data to \
         serve what the bucket has"
    )]
    SetBack,
    /// Settling has trimmed the journal every time before its end was held.
    #[error(
        "the journal's end could not be held: settling went on each time, or frames of an old format are not settled yet"
    )]
    Trimmed,
    #[error("files beside the data: {0}")]
    Files(String),
    /// The caller has asked for the end.
    #[error("it was stopped before everything was copied")]
    Stopped,
}

impl TurnError {
    /// Another server, or another folder, has the mirror: this one must not go on.
    pub(super) fn is_deposed(&self) -> bool {
        match self {
            Self::Mirror(error) => error.is_deposed(),
            Self::Foreign { .. } | Self::Older { .. } | Self::SetBack => true,
            _ => false,
        }
    }
}

/// The files beside the data.
pub(super) type ReadFiles = Box<dyn Fn() -> anyhow::Result<Vec<(String, Bytes)>> + Send + Sync>;

/// Notes owners of the mirror.
pub(super) type NoteOwners = Box<dyn Fn(&[u64]) -> anyhow::Result<()> + Send + Sync>;

/// What copying needs of the served folder.
pub(super) struct Parts {
    pub(super) lineage: String,
    pub(super) logs: Arc<dyn UnitLogs>,
    pub(super) journal: Arc<FileJournal>,
    pub(super) tiers: TieredStorage,
    pub(super) mirror: Arc<Mirror>,
    pub(super) files: ReadFiles,
    /// Random, for the time that the mirror is owned.
    pub(super) owner: u64,
    /// Notes in the folder, durably, which owners the mirror may have.
    pub(super) note_owners: NoteOwners,
    /// Notes in the folder, durably, that the mirror may say that it is closed.
    pub(super) note_closed: Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>,
    /// Local files beyond so many bytes are given up.
    pub(super) local_bytes: u64,
    /// Objects that are copied at the same time.
    pub(super) copies_at_once: usize,
    pub(super) counters: Arc<Counters>,
}

/// Copies a folder.
pub(super) struct Copying {
    parts: Parts,
    /// The lineage that the mirror has before it is attached: that of the folder from which this one was filled.
    expected: Option<String>,
    /// Owners that the mirror may have had when it was this folder's last.
    known: Vec<u64>,
    /// The state that this process has committed last.
    last: Option<Mirrored>,
    /// Ends of the journal that no root of the bucket names any longer.
    old_tails: Vec<ObjectId>,
    /// Files that were left out, of which the log has told.
    left_out: HashSet<String>,
    /// The marks were compared with what is in the bucket.
    is_compared: bool,
    /// Objects that no root of the bucket names were searched for and removed.
    is_swept: bool,
}

impl Copying {
    /// `known`: who may own the mirror, as the folder says.
    pub(super) fn new(parts: Parts, known: Vec<u64>) -> Self {
        Self {
            parts,
            expected: None,
            known,
            last: None,
            old_tails: Vec::new(),
            left_out: HashSet::new(),
            is_compared: false,
            is_swept: false,
        }
    }

    /// The mirror is still that of another folder, from which this one was filled.
    pub(super) fn expect(&mut self, lineage: &str) {
        self.expected = Some(lineage.to_owned());
    }

    /// Acquires the mirror, if it is this folder's.
    pub(super) fn attach(&mut self) -> Result<(), TurnError> {
        let found = self.parts.mirror.read()?.and_then(|(_, mirrored)| mirrored);
        self.check(found.as_ref())?;
        let before = found.as_ref().map(|found| found.owner);
        self.known = before.into_iter().chain([self.parts.owner]).collect();
        (self.parts.note_owners)(&self.known).map_err(|error| TurnError::Note(format!("{error:#}")))?;
        if self.parts.mirror.is_acquired() {
            // By the filling. The commit fails if another one has come since: the folder may have been filled with what
            // that one has removed by now.
            self.parts.mirror.commit(&self.own(found))?;
            self.expected = None;
        }
        let before = self.parts.mirror.acquire(self.parts.logs.epoch().saturating_sub(1))?;
        // Another one may have been there first.
        self.check(before.as_ref())?;
        let state = self.own(before);
        self.parts.mirror.commit(&state)?;
        self.expected = None;
        // The first turn copies and commits, whatever was there.
        self.last = Some(Mirrored { root: Bytes::new(), ..state });
        Ok(())
    }

    /// The state `before`, as that of this folder, which is in use.
    fn own(&self, before: Option<Mirrored>) -> Mirrored {
        let lineage = &self.parts.lineage;
        let before = before.unwrap_or_else(|| Mirrored::nothing_of(lineage));
        Mirrored { lineage: lineage.clone(), owner: self.parts.owner, is_closed: false, ..before }
    }

    fn check(&self, found: Option<&Mirrored>) -> Result<(), TurnError> {
        let Some(found) = found else { return Ok(()) };
        if found.lineage == self.parts.lineage && !self.known.contains(&found.owner) {
            return Err(TurnError::SetBack);
        }
        if found.lineage != self.parts.lineage && Some(&found.lineage) != self.expected.as_ref() {
            return Err(TurnError::Foreign { found: found.lineage.clone() });
        }
        let end = self.parts.journal.durable();
        match found.tail {
            Some(tail) if tail.end > end => Err(TurnError::Older { mirrored: tail.end, found: end }),
            _ => Ok(()),
        }
    }

    /// Whether another owner has acquired the mirror.
    #[cfg(test)]
    pub(super) fn is_deposed(&self) -> Result<bool, MirrorError> {
        self.parts.mirror.is_deposed()
    }

    /// Copies what the bucket lacks, and commits. `is_closed`: the unit was closed. Ends early when `is_stopped`.
    pub(super) fn turn(&mut self, is_closed: bool, is_stopped: &(dyn Fn() -> bool + Sync)) -> Result<(), TurnError> {
        let copied = self.copy(is_closed, is_stopped);
        if let Err(TurnError::Mirror(error)) = &copied
            && error.is_root_missing()
        {
            // The folder decides: the next turn makes a root again, and looks for what else is missing.
            self.parts.mirror.release();
            (self.last, self.is_compared) = (None, false);
        }
        if copied.is_err() {
            // Objects may have been copied that no root will name.
            self.is_swept = false;
        }
        // Also while the bucket is away: what it has already may make room.
        let evicted = self.parts.tiers.sync_marks().map_err(TurnError::from).and_then(|()| self.evict());
        self.parts.counters.tiers(self.parts.tiers.stats()?);
        self.parts.counters.note_turn(copied.is_ok());
        copied.and(evicted)
    }

    fn copy(&mut self, is_closed: bool, is_stopped: &(dyn Fn() -> bool + Sync)) -> Result<(), TurnError> {
        if !self.parts.mirror.is_acquired() || self.last.is_none() {
            self.attach()?;
        }
        self.compare()?;
        self.bring_home()?;
        let files = self.files()?;
        // Before the root is held: it does not name them.
        let unneeded = self.parts.tiers.unneeded();
        let (held, tail) = self.hold()?;
        let Some(last) = self.last.clone() else { return Ok(()) };
        let is_known = last.root == held.cut.root && last.tail.is_some_and(|known| known.end == tail.end());
        if is_known && last.files == files && last.is_closed == is_closed && unneeded.is_empty() {
            return Ok(());
        }
        self.copy_objects(&held, is_stopped)?;
        let tail = self.copy_tail(&tail)?;
        let (lineage, owner) = (self.parts.lineage.clone(), self.parts.owner);
        let state = Mirrored { lineage, owner, is_closed, root: held.cut.root.clone(), tail: Some(tail), files };
        if is_closed {
            (self.parts.note_closed)().map_err(|error| TurnError::Note(format!("{error:#}")))?;
        }
        self.parts.mirror.commit(&state)?;
        self.old_tails.extend(last.tail.map(|before| before.object).filter(|before| *before != tail.object));
        self.last = Some(state);
        while let Some(old) = self.old_tails.last() {
            self.parts.mirror.objects().remove(*old)?;
            self.old_tails.pop();
        }
        self.parts.tiers.remove_copies(&unneeded)?;
        if !self.is_swept {
            self.sweep(&held, tail.object)?;
            self.is_swept = true;
        }
        Ok(())
    }

    /// Once: the bucket may have lost objects, or have been set back. What is on the local disk is copied again.
    fn compare(&mut self) -> Result<(), TurnError> {
        if self.is_compared {
            return Ok(());
        }
        let missing = self.parts.tiers.compare_copies(&self.parts.mirror.objects().list_with_bytes()?)?;
        if let Some(first) = missing.first() {
            tracing::error!(
                objects = missing.len(),
                %first,
                "objects that are in the bucket only are missing there, or have another length: their content is lost, unless \
                 the bucket can be restored"
            );
        }
        self.parts.counters.missing(missing.len() as u64);
        self.is_compared = true;
        Ok(())
    }

    /// What every opening reads comes back to the local disk after a filling, so that a start needs no bucket.
    fn bring_home(&self) -> Result<(), TurnError> {
        let tiers = &self.parts.tiers;
        let cold = self.parts.logs.opening_objects().into_iter().filter(|object| tiers.is_cold(*object));
        for object in cold {
            match tiers.bring_home(object) {
                // It was removed meanwhile; or it is lost, and that was told.
                Ok(()) | Err(StorageError::Missing(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The small files beside the data. One that is too large for a root, such as a log that somebody put there, is
    /// left out.
    fn files(&mut self) -> Result<Vec<(String, Bytes)>, TurnError> {
        let mut files = (self.parts.files)().map_err(|error| TurnError::Files(format!("{error:#}")))?;
        let mut bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        while bytes > FILES_BYTES_MAX
            && let Some(largest) = (0..files.len()).max_by_key(|at| files[*at].1.len())
        {
            let (name, content) = files.remove(largest);
            bytes -= content.len();
            if self.left_out.insert(name.clone()) {
                tracing::warn!(
                    name,
                    bytes = content.len(),
                    "a file in the data folder is too large to be copied to the bucket"
                );
            }
        }
        Ok(files)
    }

    /// A root, and the end of the journal that it needs.
    fn hold(&self) -> Result<(HeldCut, Tail), TurnError> {
        for _ in 0..HOLD_TRIES {
            let held = self.parts.logs.hold_sealed();
            if let Some(tail) = self.parts.journal.hold_tail(held.cut.journal.floor)? {
                // Held after the root, so the journal is durable as far as the root says.
                assert!(tail.end() >= held.cut.journal.known_durable, "the journal's end is behind the root's claim");
                return Ok((held, tail));
            }
        }
        Err(TurnError::Trimmed)
    }

    fn copy_objects(&self, held: &HeldCut, is_stopped: &(dyn Fn() -> bool + Sync)) -> Result<(), TurnError> {
        let tiers = &self.parts.tiers;
        let mut todo: Vec<ObjectId> = held.cut.objects.iter().map(|(object, _)| *object).collect();
        todo.retain(|object| !tiers.is_copied(*object));
        todo.sort_unstable();
        let first = Mutex::new(None);
        for some in todo.chunks(COPIES_PER_ROUND) {
            at_once(some, self.parts.copies_at_once, &|object| {
                if is_stopped() {
                    return Err(TurnError::Stopped);
                }
                match tiers.copy(*object) {
                    Ok(bytes) => self.parts.counters.copied(bytes),
                    // The others go on: one that cannot be read here must not keep them from the bucket.
                    Err(error @ (StorageError::Unreadable { .. } | StorageError::Exists(_))) => {
                        first.lock().get_or_insert(error);
                    }
                    Err(error) => return Err(error.into()),
                }
                Ok(())
            })?;
            // Room for writers does not wait for the rest.
            tiers.sync_marks()?;
            self.evict()?;
        }
        first.into_inner().map_or(Ok(()), |error| Err(error.into()))
    }

    fn copy_tail(&self, tail: &Tail) -> Result<MirroredTail, TurnError> {
        let object = self.parts.logs.new_object();
        let mut writer = self.parts.mirror.objects().create(object)?;
        tail.read(&mut |piece| writer.write(piece).map_err(TurnError::from))?;
        let bytes = writer.finish()?;
        self.parts.counters.copied(bytes);
        Ok(MirroredTail { object, bytes, end: tail.end() })
    }

    /// Removes what earlier owners have left in the bucket.
    fn sweep(&self, held: &HeldCut, tail: ObjectId) -> Result<(), TurnError> {
        let named = held.cut.objects.iter().map(|(object, _)| *object);
        let mut needed: Vec<ObjectId> =
            named.chain(self.parts.tiers.copied()).chain(self.parts.tiers.unneeded()).chain([tail]).collect();
        needed.sort_unstable();
        let swept = self.parts.mirror.sweep(&needed, self.parts.logs.new_object())?;
        if swept > 0 {
            tracing::info!(
                objects = swept,
                "objects of earlier servers that nothing names were removed from the bucket"
            );
        }
        Ok(())
    }

    /// Gives up local files of copied objects, once the bucket was seen to have them: the oldest, until the rest fits.
    /// Those that every opening reads stay, so that a start needs no bucket.
    fn evict(&self) -> Result<(), TurnError> {
        let tiers = &self.parts.tiers;
        if !self.is_compared {
            return Ok(());
        }
        let bound = if self.parts.logs.is_low_on_space() { 0 } else { self.parts.local_bytes };
        let mut held = tiers.stats()?.local_bytes;
        if held <= bound {
            return Ok(());
        }
        let stay: HashSet<ObjectId> = self.parts.logs.opening_objects().into_iter().collect();
        for (object, _) in tiers.evictable()?.into_iter().filter(|(object, _)| !stay.contains(object)) {
            if held <= bound {
                break;
            }
            held -= tiers.evict(object)?.min(held);
        }
        Ok(())
    }
}
