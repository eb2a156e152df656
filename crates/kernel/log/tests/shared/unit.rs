//! A unit of files with two indexes: logs, and counters.

use super::counters::Counters;
use super::support::Notes;
use std::sync::Arc;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_disk::Disk;
use thalweg_journal::{Class, FileJournal, Journal, Options};
use thalweg_log::{Append, CommitError, Lengths, Logs, LogsOptions, Loss, MANIFEST, OBJECTS, Op, ReadFrom};
use thalweg_manifest::FileManifest;
use thalweg_storage::{FileStorage, Storage};
use thalweg_unit::{Faults, Opening, Unit, own};

pub(crate) struct Shared {
    pub(crate) unit: Arc<Unit>,
    pub(crate) journal: Arc<FileJournal>,
    pub(crate) logs: Logs<Notes>,
    pub(crate) counters: Counters,
    pub(crate) storage: FileStorage,
}

pub(crate) fn journal_options(salt: u64) -> Options {
    Options { segment_bytes: 16 << 10, bound_bytes: 1 << 20, window_bytes: 4 << 10, salt, ..Options::default() }
}

pub(crate) fn logs_options() -> LogsOptions {
    LogsOptions { settle_bytes: 6_000, object_bytes: 4_000, fan_in: 3, reclaim_every_ms: 0, ..LogsOptions::default() }
}

impl Shared {
    /// The steps of an owner, from top to bottom.
    pub(crate) fn open(disk: &Arc<dyn Disk>, salt: u64, faults: Faults) -> Result<Self, String> {
        let storage = FileStorage::open(Arc::clone(disk), OBJECTS).map_err(|error| error.to_string())?;
        let manifest = FileManifest::open(Arc::clone(disk), MANIFEST, salt).map_err(|error| error.to_string())?;
        let (objects, manifest) = (Arc::new(storage.clone()), Arc::new(manifest));
        let newest = FileJournal::newest_term(disk.as_ref());
        let newest = newest.map_err(|error: thalweg_journal::OpenError<String>| error.to_string())?;
        let read = || Opening::read(objects.clone(), manifest.clone(), thalweg_log::decode_root);
        let load = |opening: &mut Opening| {
            let logs = Logs::<Notes>::load(logs_options(), opening, Loss::Nothing)?;
            Ok::<_, thalweg_log::OpenError>((logs, Counters::load(opening)?))
        };
        let (unit, (logs, counters)) = own(newest, read, load).map_err(|error| error.to_string())?;
        unit.plant(faults);
        let (mut logs, mut counters) = (logs.replay_on(&unit), counters.replay_on(&unit));
        let mut replay = |at, frame| unit.replay(at, &frame, &mut [&mut logs, &mut counters]);
        let options = Options { term: unit.epoch(), ..journal_options(salt) };
        let journal = FileJournal::open(Arc::clone(disk), options, unit.bounds(), &mut replay);
        let journal = Arc::new(journal.map_err(|error| error.to_string())?);
        let logs = logs.finish(Arc::clone(&journal) as _).map_err(|error| error.to_string())?;
        let counters = counters.finish(Arc::clone(&journal) as _);
        unit.start(Arc::clone(&journal) as _).map_err(|error| error.to_string())?;
        Ok(Self { unit, journal, logs, counters, storage })
    }

    /// Appends to a log, which is made if it is not there; the frame's end.
    pub(crate) fn append(&self, name: &str, message: &[u8]) -> Result<Lsn, CommitError> {
        self.commit(name, message, None)
    }

    /// Appends to a log and adds `n` to a counter, in one frame.
    pub(crate) fn append_and_add(&self, name: &str, message: &[u8], n: u64) -> Result<Lsn, CommitError> {
        self.commit(name, message, Some(n))
    }

    fn commit(&self, name: &str, message: &[u8], add: Option<u64>) -> Result<Lsn, CommitError> {
        let lengths = Lengths::one(message.len() as u32);
        let parts = [message];
        let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
        let mut guard = self.logs.lock(&[name]);
        let op = match guard.find(name) {
            Some(log) => Op::Write { log, note: b"", append },
            None => Op::Create { name, note: b"durable", origin: None, append },
        };
        match add {
            None => Ok(guard.commit(Class::User, &[op])?.end),
            Some(n) => {
                self.counters.add_beside(name, n, |others| Ok(guard.commit_beside(Class::User, &[op], others)?.end))
            }
        }
    }

    /// All that a log holds; empty if it is not there.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let found: Option<(LogId, Offset)> = {
            let mut guard = self.logs.lock(&[name]);
            guard.find(name).and_then(|log| guard.view(log)).map(|view| (view.id, view.tail))
        };
        let Some((log, tail)) = found else { return Vec::new() };
        let (mut content, mut from) = (Vec::new(), Offset::ZERO);
        while from < tail {
            let chunk = self.logs.read(ReadFrom { log, from, upto: tail }).unwrap();
            content.extend(chunk.parts.concat());
            from = chunk.end;
        }
        content
    }

    /// Makes everything durable that was accepted.
    pub(crate) fn sync(&self) -> Result<(), String> {
        self.journal.wait(self.journal.end()).map_err(|error| error.to_string())
    }

    /// Every stored object is named by one of the two indexes, and every named object is stored.
    pub(crate) fn check_objects(&self) {
        let mut named: Vec<_> = self.unit.hold().cut.objects.iter().map(|(object, _)| *object).collect();
        named.sort_unstable();
        assert_eq!(self.storage.list().unwrap(), named, "objects that are there, and those that are named");
    }
}
