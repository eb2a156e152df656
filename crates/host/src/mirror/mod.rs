//! The mirror of the data folder in a bucket: `--store`.
//!
//! The data folder stays the authority of its streams: an append is durable when it is on its disk, and does not wait
//! for the bucket. In the background each object is copied, then the end of the journal, and then one commit of the
//! mirror says that both are the state of the folder at one moment (`copying`). Local files of copied objects are given
//! up beyond `--cache-bytes`; reads of them go to the bucket through a cache of blocks.
//!
//! A new folder is filled from the mirror (`fill`), so that a machine with an empty disk goes on with everything that
//! was copied. Which folder may use which mirror is decided in `start`. Two servers that use one mirror find each
//! other in three ways: a start looks for a `beacon` that is still renewed; a commit of the mirror fails once another
//! server has acquired it; and every renewal of the beacon looks for that. A deposed server stops.

mod at_once;
mod beacon;
mod copying;
mod fetch;
mod fill;
mod look;
mod start;
mod stats;
mod stopped;
#[cfg(test)]
mod tests;

pub use fetch::{Fetched, fetch};
pub use look::{Held, Verified, look, verify};
pub use stats::{MirrorStats, add_requests};
pub use stopped::objects;

use crate::bucket_unit::Prefix;
use crate::config::Config;
use crate::folder::Folder;
use crate::unit::UnitLogs;
use anyhow::Context as _;
use beacon::Owner;
use copying::{Copying, Parts};
use parking_lot::{Condvar, Mutex};
use start::{Found, Start};
use stats::Counters;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_disk::{Disk, RealDisk};
use thalweg_journal::FileJournal;
use thalweg_log::{Loss, OBJECTS, epoch_of};
use thalweg_object::{Beacon, Bucket, BucketOptions, Mirror, Shown};
use thalweg_storage::{CacheOptions, CachedStorage, Folders, Remote, Storage, StoreId, TieredStorage};

/// The name of the data folder's unit in the bucket.
pub(crate) const UNIT: &str = "main";
/// The folders of objects and of the marks of those that are copied.
const FOLDERS: Folders<'_> = Folders { objects: OBJECTS, marks: "copies" };
/// The folder of the cache.
const CACHE: &str = "cache";
/// Objects that are copied at the same time.
const COPIES_AT_ONCE: usize = 4;
/// How long a start waits for the bucket.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How long a stop goes on copying what the bucket lacks.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// The longest pause after a failed turn.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A folder that was found to fit the mirror, or that was filled from it. Its unit is to be opened next.
pub(crate) struct Prepared {
    pub(crate) storage: Arc<dyn Storage>,
    /// The epoch of the unit's next owner must be above.
    pub(crate) above: u64,
    /// What the new owner has lost, if the folder was filled just now.
    pub(crate) loss: Option<Loss>,
    tiers: TieredStorage,
    cache: Arc<CachedStorage>,
    mirror: Arc<Mirror>,
    bucket: Bucket,
    lineage: String,
    folder: PathBuf,
    /// What the mirror holds; `None` if the bucket did not answer.
    found: Option<Found>,
}

/// Decides what a start on `folder` does with the store of the settings, and fills a new folder. `None`: the settings
/// name no store, and the folder needs none.
pub(crate) fn prepare(folder: &Folder, config: &Config) -> anyhow::Result<Option<Prepared>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).context("cannot open the data folder")?);
    let cold = TieredStorage::cold_in(Arc::clone(&disk), FOLDERS)?;
    let attached = folder.store();
    let Some(location) = config.store.0.as_ref().filter(|_| !config.is_node()) else {
        start::without_store(folder, &*disk, attached.as_deref(), &cold)?;
        return Ok(None);
    };
    let options = BucketOptions { deadline: START_WITHIN, timeout: START_WITHIN / 3, ..BucketOptions::default() };
    let asked = Bucket::open(location, options)?;
    let name = location.to_string();
    let answers = asked.check();
    // A bucket that does not answer now is asked again when the replicated streams are opened.
    if answers.is_ok() && matches!(Prefix::find(&asked), Ok(Some(prefix)) if prefix.is_of_nodes()) {
        anyhow::bail!("{name} belongs to nodes: start with --node, or take another prefix");
    }
    let read = || -> anyhow::Result<Found> {
        answers?;
        Found::read(&Mirror::new(asked.clone(), UNIT, 0))
    };
    let bucket = Bucket::open(location, BucketOptions::default())?;
    let mirror = Arc::new(Mirror::new(bucket.clone(), UNIT, crate::folder::random()?));
    let beacon = Beacon::new(asked.clone(), beacon::KEY);
    let folder_is = start::FolderIs {
        is_new: folder.is_unused() || folder.is_filling(),
        is_closed: folder.is_closed(),
        lineage: folder.lineage(),
        attached: attached.filter(|_| !folder.has_left_store()),
        cold: if folder.is_filling() { 0 } else { cold.len() as u64 },
    };
    let (found, decided) = start::decide(&folder_is, &name, read())?;
    // The newest epoch of objects that are there without a root.
    let mut newest = 0;
    let loss = match decided {
        Start::GoOn => {
            // A copy of a folder whose server lives, perhaps on another machine.
            if found.is_some() && !folder.is_where_it_was() {
                beacon::wait_until_dark(&beacon, &name)?;
            }
            None
        }
        Start::Rebuild => {
            newest = start::every_cold_object_is_in(&mirror, &cold, &name)?;
            None
        }
        Start::Attach => {
            newest = mirror.objects().list()?.last().map_or(0, |object| epoch_of(*object));
            // Another folder may have been there, of which nothing was copied yet.
            if found.as_ref().is_some_and(|found| found.mirrored.is_some()) {
                beacon::wait_until_dark(&beacon, &name)?;
            }
            if folder.is_filling() {
                // What is there is a part of another store's data.
                fill::empty(&*disk)?;
                folder.forget_runs()?;
            }
            start::forget_marks(&*disk)?;
            None
        }
        Start::Fill => {
            let is_closed = found.as_ref().is_some_and(Found::is_closed);
            if !is_closed {
                beacon::wait_until_dark(&beacon, &name)?;
            }
            Some(fill::fill(folder, &disk, &mirror).with_context(|| format!("filling the folder from {name}"))?)
        }
    };
    // Filling has changed it: the mirror belongs to the folder that was before.
    let found = if loss.is_some() { Some(Found::read(&mirror)?) } else { found };
    let lineage = folder.lineage();
    // Another quarter is for replicated streams.
    let capacity = config.cache_bytes.0 / 4;
    let options = CacheOptions::new(store_id(&lineage), capacity);
    let copies: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
    let cache = Arc::new(CachedStorage::open(Arc::clone(&copies), &*disk, CACHE, options)?);
    let remote = Remote { copies, reads: Arc::clone(&cache) as _ };
    let tiers = TieredStorage::open(disk, FOLDERS, remote)?;
    Ok(Some(Prepared {
        storage: Arc::new(tiers.clone()),
        above: found.as_ref().map_or(0, |found| found.epoch).max(newest),
        loss,
        tiers,
        cache,
        mirror,
        bucket,
        lineage,
        folder: folder.path().to_owned(),
        found,
    }))
}

/// Names the objects of one history: another lineage may use the same ids for other bytes.
fn store_id(lineage: &str) -> StoreId {
    let mut id = [0; 16];
    for (at, byte) in lineage.bytes().enumerate() {
        id[at % 16] ^= byte.rotate_left((at / 16) as u32 * 4);
    }
    StoreId(id)
}

impl Prepared {
    /// Marks every copy that the bucket has and the folder does not know; how many there are.
    pub(crate) fn find_copies(&self) -> anyhow::Result<u64> {
        let is_own = self.found.as_ref().and_then(Found::lineage) == Some(&self.lineage);
        if is_own { Ok(self.tiers.find_copies()?) } else { Ok(0) }
    }

    /// Acquires the mirror for the unit that was opened, and starts to copy.
    pub(crate) fn begin(
        self,
        folder: &Folder,
        config: &Config,
        logs: Arc<dyn UnitLogs>,
        journal: Arc<FileJournal>,
    ) -> anyhow::Result<Mirroring> {
        let Some(location) = &config.store.0 else { anyhow::bail!("a mirror without --store") };
        let counters = Arc::<Counters>::default();
        let (beside, closed, noted) = (self.folder.clone(), self.folder.clone(), self.folder.clone());
        let name = location.to_string();
        let parts = Parts {
            lineage: self.lineage.clone(),
            logs,
            journal,
            tiers: self.tiers.clone(),
            mirror: Arc::clone(&self.mirror),
            files: Box::new(move || crate::folder::beside(&beside)),
            owner: crate::folder::random()?,
            note_owners: Box::new(move |owners| Folder::note_store(&noted, &name, owners)),
            note_closed: Box::new(move || Folder::note_closed(&closed)),
            local_bytes: config.cache_bytes.0 / 2,
            copies_at_once: COPIES_AT_ONCE,
            counters: Arc::clone(&counters),
        };
        let mut copying = Copying::new(parts, folder.mirror_owners());
        if let Some(found) = &self.found {
            found.lineage().into_iter().for_each(|lineage| copying.expect(lineage));
            copying.attach().context("the mirror cannot be used")?;
            // The mirror says now that it is this folder's, and in use. A refused start must not remove the folder.
            if folder.is_filling() {
                folder.note_served();
                folder.end_filling()?;
            }
            folder.note_reopened()?;
        } else {
            counters.note_turn(false);
        }
        let every = config.store_beacon.0;
        let owner = Owner::of_this_process(&self.lineage, config, every);
        let shared = Arc::new(Shared {
            counters,
            cache: self.cache,
            bucket: self.bucket,
            mirror: self.mirror,
            location: location.to_string(),
            stopping: Mutex::new(None),
            changed: Condvar::new(),
            is_dark: Mutex::new(false),
            darkened: Condvar::new(),
            deposed: AtomicBool::new(false),
        });
        let (of_copying, of_beacon) = (Arc::clone(&shared), Arc::clone(&shared));
        let pause = config.offload_every.0;
        let copying = std::thread::Builder::new().name("offload".into()).spawn(move || {
            of_copying.copy(&mut copying, pause);
            copying
        })?;
        let beacon = std::thread::Builder::new().name("beacon".into()).spawn(move || of_beacon.shine(owner, every))?;
        Ok(Mirroring { shared, threads: Mutex::new(Some((copying, beacon))) })
    }
}

/// The mirror of a served folder, and the threads that keep it.
pub struct Mirroring {
    shared: Arc<Shared>,
    threads: Mutex<Option<(JoinHandle<Copying>, JoinHandle<()>)>>,
}

struct Shared {
    counters: Arc<Counters>,
    cache: Arc<CachedStorage>,
    bucket: Bucket,
    mirror: Arc<Mirror>,
    location: String,
    /// Until when the stop goes on copying, once the threads are to end.
    stopping: Mutex<Option<Instant>>,
    changed: Condvar,
    /// The beacon is not renewed any longer.
    is_dark: Mutex<bool>,
    darkened: Condvar,
    deposed: AtomicBool,
}

impl Shared {
    /// Sleeps; whether to stop.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stopping = self.stopping.lock();
        while stopping.is_none() && !self.changed.wait_until(&mut stopping, until).timed_out() {}
        stopping.is_some()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.lock().is_some()
    }

    fn copy(&self, copying: &mut Copying, every: Duration) {
        let mut failures = 0;
        loop {
            let pause = match copying.turn(false, &|| self.is_stopping()) {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!(store = self.location, "the bucket has all of the folder again");
                    }
                    failures = 0;
                    every
                }
                Err(error) if error.is_deposed() => return self.depose(),
                Err(_) if self.is_stopping() => return,
                Err(error) => {
                    self.counters.failed();
                    if failures == 0 {
                        tracing::warn!(store = self.location, %error, "copying to the bucket is tried again");
                    }
                    failures = (failures + 1).min(16);
                    (Duration::from_millis(500) * 2_u32.pow(failures)).min(PAUSE_MAX.max(every))
                }
            };
            if self.sleep(pause) {
                return;
            }
        }
    }

    /// Until the last copy is done.
    fn shine(&self, mut owner: Owner, every: Duration) {
        let new = || Beacon::new(self.bucket.clone(), beacon::KEY);
        let mut beacon = new();
        loop {
            // Before this server has acquired the mirror, the beacon may be another one's.
            if self.mirror.is_acquired() {
                match self.mirror.is_deposed() {
                    Ok(true) => return self.depose(),
                    Ok(false) => {
                        match beacon.show(&owner.next()) {
                            Ok(Shown::Written) => {}
                            // Nobody but a person removes it.
                            Ok(Shown::Retired) => beacon = new(),
                            Err(error) => tracing::debug!(%error, "the beacon could not be renewed"),
                        }
                    }
                    Err(error) => tracing::debug!(%error, "the mirror's root could not be read"),
                }
            }
            let until = Instant::now() + every;
            let mut is_dark = self.is_dark.lock();
            while !*is_dark && !self.darkened.wait_until(&mut is_dark, until).timed_out() {}
            if *is_dark {
                return;
            }
        }
    }

    /// Another server goes on with what the bucket has: nothing that this one accepts from here on would be found.
    fn depose(&self) {
        if self.deposed.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::error!(
            store = self.location,
            "another server has taken the mirror over, and serves its data: this server stops"
        );
        crate::background::stop_this_process();
    }
}

impl Mirroring {
    /// Why the server must not go on.
    pub fn health(&self) -> Result<(), String> {
        match self.shared.deposed.load(Ordering::SeqCst) {
            true => Err(format!("another server has taken over {}", self.shared.location)),
            false => Ok(()),
        }
    }

    /// Figures since the start.
    #[must_use]
    pub fn stats(&self) -> MirrorStats {
        MirrorStats::of(&self.shared.counters, self.shared.cache.stats(), &self.shared.bucket)
    }

    /// Begins the stop: from now on nobody waits long for the bucket.
    pub fn stop(&self) {
        // What has failed a moment ago is not waited for.
        let within = if self.shared.counters.is_failing() { STOP_WITHIN / 10 } else { STOP_WITHIN };
        self.shared.bucket.end_within(within);
        *self.shared.stopping.lock() = Some(Instant::now() + within);
        self.shared.changed.notify_all();
    }

    /// Ends the threads, after [`Mirroring::stop`]. `close` ends the unit; then what the bucket lacks is copied for
    /// some time, and the mirror is marked as closed if it has everything.
    pub fn close(&self, close: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some((copying, beacon)) = self.threads.lock().take() else { return close() };
        let copying = copying.join();
        let closed = close();
        let copied = match (&closed, self.health(), copying) {
            (Ok(()), Ok(()), Ok(copying)) => self.copy_last(copying),
            (_, health, _) => health.map_err(anyhow::Error::msg),
        };
        *self.shared.is_dark.lock() = true;
        self.shared.darkened.notify_all();
        let _ = beacon.join();
        closed.and(copied)
    }

    fn copy_last(&self, mut copying: Copying) -> anyhow::Result<()> {
        let until = *self.shared.stopping.lock();
        match copying.turn(true, &|| until.is_none_or(|until| Instant::now() >= until)) {
            Ok(()) => tracing::info!(store = self.shared.location, "the bucket has all of the folder"),
            Err(error) => tracing::warn!(
                store = self.shared.location,
                %error,
                "the bucket lacks something of the folder: start on this folder again, so that it is copied"
            ),
        }
        Ok(())
    }

    /// The bucket, if this server has acquired the mirror in it and no other one has since: asked of the bucket.
    pub fn owned_bucket(&self) -> anyhow::Result<Option<&Bucket>> {
        if !self.shared.mirror.is_acquired() || self.shared.deposed.load(Ordering::SeqCst) {
            return Ok(None);
        }
        if self.shared.mirror.is_deposed()? {
            self.depose();
            return Ok(None);
        }
        Ok(Some(&self.shared.bucket))
    }

    /// The store, without its settings.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.shared.location
    }

    /// Another server has taken over what is in the bucket: this one stops.
    pub fn depose(&self) {
        self.shared.depose();
    }
}
