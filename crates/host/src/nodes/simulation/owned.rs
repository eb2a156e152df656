//! One unit that a simulated node owns: the kernel unit that ships, over the simulated bucket.

use super::machine::{Life, Waits};
use crate::bucket_unit::{self, BucketJournal, OwnerOptions, TakenOver, Which, ids_from};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_base::{Durability, Lsn, Ticket};
use thalweg_journal::{
    AppendError, Appended, Class, FrameRef, Journal, JournalStats, Options, PinnedBuffer, Poisoned, ReadError,
    WaitError,
};
use thalweg_log::{ListOptions, Logs, LogsOptions, UpkeepError, When};
use thalweg_manifest::Manifest;
use thalweg_object::{ObjectManifest, ObjectStorage};
use thalweg_streams::StreamState;

pub(super) struct Owned {
    pub(super) unit: u64,
    pub(super) epoch: u64,
    pub(super) journal: Arc<BucketJournal>,
    pub(super) logs: Arc<Logs<StreamState>>,
    manifest: Arc<ObjectManifest>,
    /// A thread does upkeep.
    is_kept: AtomicBool,
    is_retired: AtomicBool,
}

impl Owned {
    /// Takes the unit over, as [`bucket_unit::BucketUnit::open`] does.
    pub(super) fn take(life: &Life, unit: u64) -> anyhow::Result<Self> {
        let (conditions, bucket) = (life.conditions(), life.bucket.clone());
        let name = Which::Streams(unit).name();
        let storage = Arc::new(ObjectStorage::new(bucket.clone(), &name));
        let manifest = Arc::new(match conditions.plan.has_no_nonces {
            true => ObjectManifest::without_nonces(bucket.clone(), &name),
            false => ObjectManifest::new(bucket.clone(), &name, life.random()),
        });
        let options = OwnerOptions {
            logs: LogsOptions {
                ids_from: ids_from(Which::Streams(unit), life.wall_ms() / 1000, life.random()),
                id_reserve: 64,
                chunk_bytes: conditions.chunk_bytes,
                settle_bytes: 4_000,
                object_bytes: conditions.object_bytes,
                fan_in: 3,
                reclaim_every_ms: 0,
                purge_after_ms: 1_000,
                lists: ListOptions { root_bytes: 200, page_objects: 2 },
                durability: Durability::Durable,
                ..LogsOptions::default()
            },
            journal: Options {
                salt: life.random(),
                batch_bytes: conditions.batch_bytes,
                window_bytes: conditions.window_bytes,
                ..Options::default()
            },
            sink: conditions.sink,
        };
        let waits = life.waits();
        let seen = |inner| Arc::new(DrivenJournal { inner, waits }) as Arc<dyn Journal>;
        let (of, root) = ((&bucket, &*name), Arc::clone(&manifest) as _);
        let TakenOver { journal, logs, epoch } = bucket_unit::take_over(of, storage, root, options, seen)?;
        let (is_kept, is_retired) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { unit, epoch, journal, logs, manifest, is_kept, is_retired })
    }

    pub(super) fn still_owned(&self) -> anyhow::Result<bool> {
        Ok(self.manifest.read()?.is_some_and(|root| root.epoch == self.epoch))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.journal.poisoned().is_some() || self.logs.is_deposed()
    }

    /// Takes the writer's steps that can be taken.
    pub(super) fn drive(&self) {
        while matches!(self.journal.step(), Ok(true)) {}
    }

    /// One turn of the background jobs.
    pub(super) fn keep(&self, life: &Life) -> Result<(), UpkeepError> {
        if self.is_retired.load(Ordering::SeqCst) || self.journal.poisoned().is_some() {
            return Ok(());
        }
        self.is_kept.store(true, Ordering::SeqCst);
        let now = life.wall();
        let kept = self.logs.settle(now, When::Now).and_then(|_| {
            self.logs.merge()?;
            self.logs.reclaim(now).map(|_| ())
        });
        self.is_kept.store(false, Ordering::SeqCst);
        kept
    }

    /// Ends the unit, with everything in the bucket if it takes it within the time.
    pub(super) fn close(&self, life: &Life, within: Duration) {
        self.is_retired.store(true, Ordering::SeqCst);
        let waits = life.waits();
        while self.is_kept.load(Ordering::SeqCst) {
            waits.wait(Duration::from_millis(50));
        }
        let until = waits.now() + within;
        loop {
            self.drive();
            if self.journal.poisoned().is_some() || waits.now() >= until {
                return;
            }
            if self.journal.durable() == self.journal.end() {
                break;
            }
            waits.wait(Duration::from_millis(50));
        }
        // Nothing is under way, so this does not wait.
        if let Err(error) = self.journal.close().map_err(anyhow::Error::new).and_then(|()| Ok(self.logs.close()?)) {
            life.say(|| format!("unit {} was not closed: {error:#}", self.unit));
        }
    }
}

/// A journal that is driven by those who wait for it, and by its node: there is no writer's thread.
struct DrivenJournal {
    inner: Arc<BucketJournal>,
    waits: Waits,
}

impl Journal for DrivenJournal {
    fn append_as(&self, durability: Durability, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        self.inner.append_as(durability, class, parts)
    }

    fn kick(&self) {}

    fn durable(&self) -> Lsn {
        self.inner.durable()
    }

    fn written(&self) -> Lsn {
        self.inner.written()
    }

    fn end(&self) -> Lsn {
        self.inner.end()
    }

    fn durable_end(&self) -> Lsn {
        self.inner.durable_end()
    }

    fn poisoned(&self) -> Option<Poisoned> {
        self.inner.poisoned()
    }

    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.inner.subscribe(f);
    }

    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        while self.inner.durable() < upto {
            if !self.inner.step()? {
                self.waits.wait(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    fn wait_unless_full(&self, upto: Lsn) -> Result<(), WaitError> {
        Ok(self.wait(upto)?)
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>> {
        self.inner.try_read(frames)
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>> {
        self.inner.read(frames)
    }

    fn trim(&self, upto: Lsn) {
        self.inner.trim(upto);
    }

    fn start(&self) -> Lsn {
        self.inner.start()
    }

    fn pinned_bytes(&self) -> u64 {
        self.inner.pinned_bytes()
    }

    fn buffer_of(&self, part: &[u8]) -> Option<PinnedBuffer> {
        self.inner.buffer_of(part)
    }

    fn oldest(&self) -> Lsn {
        self.inner.oldest()
    }

    fn term(&self) -> u64 {
        self.inner.term()
    }

    fn stats(&self) -> JournalStats {
        self.inner.stats()
    }
}
