//! Reading every byte below a prefix that its roots name, and their journals.
//!
//! Owners may live meanwhile: a merge removes objects once a new root is in force that does not name them. So whatever
//! is missing, or wrong, counts only if the root is still the same afterwards; otherwise the new root is read, with the
//! objects that were not read yet.

use super::{TRIES, for_each, units_of};
use crate::bucket_unit::Prefix;
use crate::listed::{Listed as ListedDamage, Stream};
use crate::mirror;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{Lsn, ObjectId, Ticket};
use thalweg_journal::{SinkError, TakeOverError, read_through};
use thalweg_log::{CheckError, Checked, Damage, Place, RunError, Tally, find_damage_beyond};
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_object::{Bucket, BucketOptions, Location, ObjectManifest, ObjectSink, ObjectStorage, SinkOptions};
use thalweg_storage::{ObjectWriter, Storage, StorageError};

/// What a check of one unit has found.
#[derive(Debug, Default)]
pub struct UnitVerified {
    pub name: String,
    /// The epoch of the root that was read last.
    pub epoch: u64,
    /// Objects that it names, and what they take.
    pub checked: Checked,
    /// Frames of the journal behind it.
    pub frames: u64,
    /// Streams, or other logs.
    pub logs: u64,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

/// Something that is wrong, in an object of the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, behind the prefix.
    pub key: String,
    /// The first byte that may be damaged; 0 if that is not known.
    pub at: u64,
    pub what: String,
    /// Streams with content there.
    pub streams: Vec<Stream>,
    /// How many more there are.
    pub more_streams: u64,
}

impl Problem {
    fn new(key: String, what: impl ToString) -> Self {
        Self { key, at: 0, what: what.to_string(), streams: Vec::new(), more_streams: 0 }
    }

    fn of(unit: &str, damage: Damage) -> Self {
        let (key, at) = match damage.place {
            Place::Manifest => (format!("m/{unit}"), 0),
            Place::List { object } => (key_of(unit, object), 0),
            Place::Object { object, at } | Place::Directory { object, at } => (key_of(unit, object), at),
            Place::Journal { .. } => (format!("j/{unit}/"), 0),
        };
        let listed = ListedDamage::of("", damage);
        Self { key, at, what: listed.what, streams: listed.streams, more_streams: listed.more_streams }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.key)?;
        if self.at > 0 {
            write!(f, " at byte {}", self.at)?;
        }
        write!(f, ": {}", self.what)?;
        for Stream { name, from, to } in &self.streams {
            write!(f, "\n    stream `{name}`, positions {from} to {to}")?;
        }
        match self.more_streams {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more streams"),
        }
    }
}

fn key_of(unit: &str, object: ObjectId) -> String {
    format!("d/{unit}/{:016x}", object.0)
}

/// Reads all units of a prefix whose authority is the bucket. `progress` is told how many bytes were read, of how many
/// that are there. Also says what is wrong with the prefix itself, if anything is. Fails if the bucket does not answer.
pub fn verify(
    location: &Location,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> anyhow::Result<(Vec<UnitVerified>, Option<String>)> {
    let bucket = Bucket::open(location, BucketOptions::default())?;
    bucket.check()?;
    let listed = bucket.objects("")?;
    let of_main = format!("d/{}/", mirror::UNIT);
    let is_read = |key: &str| matches!(key.get(..2), Some("d/" | "j/")) && !key.starts_with(&of_main);
    let total = listed.iter().filter(|listed| is_read(&listed.key)).map(|listed| listed.bytes).sum();
    let read = AtomicU64::new(0);
    let report = |bytes| progress((read.fetch_add(bytes, Ordering::Relaxed) + bytes).min(total), total);
    // An owner that slept while its prefix was emptied may have left something of it since, but no root.
    let prefix = Prefix::find(&bucket).ok().flatten();
    let is_left = |name: &str| {
        let is_ours = prefix.as_ref().is_none_or(|prefix| prefix.has(name));
        !is_ours && !listed.iter().any(|listed| listed.key == format!("m/{name}"))
    };
    let units: Vec<String> = units_of(&listed).into_iter().filter(|name| !is_left(name)).collect();
    let units = for_each(&units, |unit| verify_unit(&bucket, unit, &report));
    Ok((units.into_iter().collect::<anyhow::Result<_>>()?, Prefix::lost(&bucket)?))
}

fn verify_unit(bucket: &Bucket, name: &str, progress: &(dyn Fn(u64) + Sync)) -> anyhow::Result<UnitVerified> {
    let manifest = ObjectManifest::new(bucket.clone(), name, 0);
    let failed = Arc::new(Mutex::new(None));
    let storage = Noting { inner: ObjectStorage::new(bucket.clone(), name), failed: Arc::clone(&failed) };
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let mut whole = HashSet::new();
    let mut tries = 1;
    loop {
        let root = match manifest.read() {
            Ok(root) => root.unwrap_or_default(),
            Err(error @ ManifestError::Corrupt(_)) => {
                let problems = vec![Problem::new(format!("m/{name}"), error)];
                return Ok(UnitVerified { name: name.to_owned(), problems, ..UnitVerified::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let mut unit = UnitVerified { name: name.to_owned(), epoch: root.epoch, ..UnitVerified::default() };
        if root.body.is_empty() {
            // An owner commits a root before it makes objects.
            let objects = storage.list()?;
            if let Some(first) = objects.first() {
                let what = format!("{} objects and no root: the object m/{name} is missing or empty", objects.len());
                unit.problems.push(Problem::new(key_of(name, *first), what));
            }
        }
        verify_root(bucket, &mut unit, &root.body, (&storage, &mut whole), progress)?;
        if let Some(error) = failed.lock().take() {
            return Err(anyhow::Error::new(error).context(format!("unit {name} could not be read to its end")));
        }
        let is_same = || match manifest.read() {
            Ok(now) => Ok(now.unwrap_or_default() == root),
            Err(ManifestError::Corrupt(_)) => Ok(false),
            Err(error) => Err(error),
        };
        if unit.problems.is_empty() || tries >= TRIES || is_same()? {
            return Ok(unit);
        }
        tries += 1;
    }
}

/// Reads what a root names, and the journal behind it.
fn verify_root(
    bucket: &Bucket,
    unit: &mut UnitVerified,
    body: &[u8],
    (storage, whole): (&Arc<dyn Storage>, &mut HashSet<ObjectId>),
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<()> {
    let mut before = 0;
    let found = find_damage_beyond(whole, storage, body, &mut |so_far| {
        progress(so_far.bytes - before);
        before = so_far.bytes;
    });
    match found {
        Ok((checked, damage)) => {
            unit.checked = checked;
            let name = &unit.name;
            unit.problems.extend(damage.into_iter().map(|damage| Problem::of(name, damage)));
        }
        Err(error) => {
            let Some(problem) = of_check(&unit.name, &error) else { return Err(error.into()) };
            unit.problems.push(problem);
            return Ok(());
        }
    }
    // A directory that is damaged is among the problems.
    let mut tally = Tally::of_root(body, storage).unwrap_or_default();
    verify_journal(bucket, unit, &mut tally, progress)?;
    unit.logs = tally.logs();
    Ok(())
}

/// An error that is damage.
fn of_check(unit: &str, error: &CheckError) -> Option<Problem> {
    match error {
        CheckError::Root(_) => Some(Problem::new(format!("m/{unit}"), error)),
        CheckError::Run(RunError::Storage(StorageError::Missing(object))) => {
            Some(Problem::new(key_of(unit, *object), "it does not exist, and the root names it"))
        }
        _ => None,
    }
}

fn verify_journal(
    bucket: &Bucket,
    unit: &mut UnitVerified,
    tally: &mut Tally,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<()> {
    let sink = ObjectSink::new(bucket.clone(), &unit.name, SinkOptions::default());
    let seen = sink.see()?;
    if unit.checked.journal.is_none() && seen.batches > 0 {
        let what = format!("{} batches of a journal and no root: it is missing or empty", seen.batches);
        unit.problems.push(Problem::new(format!("m/{}", unit.name), what));
    }
    unit.problems.extend(seen.damaged.into_iter().map(|damaged| Problem::new(damaged.key, damaged.why)));
    let at = |at: Lsn| sink.key_of(at).unwrap_or_else(|| format!("j/{}/", unit.name));
    let mut frames = 0;
    let read = read_through(&sink, unit.checked.journal.unwrap_or_default(), &mut |_, frame: Bytes| {
        frames += 1;
        progress(frame.len() as u64);
        tally.take(&frame)
    });
    unit.frames = frames;
    let problem = match read {
        Ok(_) => return Ok(()),
        Err(TakeOverError::Replay { at: position, error }) => {
            Problem::new(at(position), format!("the frame at {position} cannot be decoded: {error}"))
        }
        Err(TakeOverError::Corrupt { at: position, proof }) => {
            Problem::new(at(position), format!("the journal is damaged at {position}: {proof}"))
        }
        Err(TakeOverError::Sink { error: SinkError::Damaged { at: position, cause }, .. }) => {
            Problem::new(at(position), cause)
        }
        Err(TakeOverError::Sink { error: SinkError::Missing(position), .. }) => {
            Problem::new(at(position), "it does not exist, and the journal goes on behind it")
        }
        Err(error) => return Err(error.into()),
    };
    unit.problems.push(problem);
    Ok(())
}

/// A storage that remembers that the bucket did not answer: such a failure says nothing of the bytes.
struct Noting {
    inner: ObjectStorage,
    failed: Arc<Mutex<Option<StorageError>>>,
}

impl Noting {
    fn noted<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        if let Err(error @ (StorageError::Io { .. } | StorageError::Folder { .. })) = &result {
            self.failed.lock().get_or_insert_with(|| error.clone());
        }
        result
    }
}

impl Storage for Noting {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        let cause = "a check writes nothing".to_owned();
        Err(StorageError::Io { object, operation: "creation", cause })
    }

    fn try_read(&self, _: ObjectId, _: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        None
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        Ticket::ready(self.noted(self.inner.read(object, range).wait()))
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.noted(self.inner.len(object))
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let cause = "a check removes nothing".to_owned();
        Err(StorageError::Io { object, operation: "removal", cause })
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.noted(self.inner.list())
    }
}
