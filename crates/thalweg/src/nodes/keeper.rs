//! The units of streams that this node owns: opened, served and closed.

use super::Share;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::bucket_unit::{BucketUnit, Prefix};
use thalweg_host::config::{Config, Switch};
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::nodes::Keeper;
use thalweg_host::{Boot, Jobs, Keeping, Unit, keep};
use thalweg_journal::Journal;
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;
use thalweg_streams::{StreamState, Streams};

/// How long giving up a unit waits for the bucket. What is not settled then is replayed by the next owner.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct UnitKeeper {
    config: Config,
    disk: RealDisk,
    bucket: Bucket,
    prefix: Prefix,
    streams: Arc<Streams>,
    rounds: OnceLock<Arc<Rounds>>,
    units: Mutex<BTreeMap<u64, Arc<BucketUnit<StreamState>>>>,
    jobs: Mutex<BTreeMap<u64, Jobs>>,
}

impl UnitKeeper {
    pub(super) fn new(boot: Boot<'_>, share: &Share, streams: &Arc<Streams>) -> anyhow::Result<Self> {
        Ok(Self {
            config: boot.config.clone(),
            disk: RealDisk::open(boot.folder.path())?,
            bucket: share.bucket.clone(),
            prefix: share.prefix.clone(),
            streams: Arc::clone(streams),
            rounds: OnceLock::new(),
            units: Mutex::default(),
            jobs: Mutex::default(),
        })
    }

    pub(super) fn use_rounds(&self, rounds: Arc<Rounds>) {
        let _ = self.rounds.set(rounds);
    }

    fn unit(&self, unit: u64) -> Option<Arc<BucketUnit<StreamState>>> {
        self.units.lock().get(&unit).cloned()
    }

    /// Figures of all units that it has.
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub(super) fn metrics(&self, page: &mut Page) {
        let units: Vec<_> = self.units.lock().iter().map(|(unit, kept)| (*unit, Arc::clone(kept))).collect();
        for (unit, kept) in units {
            let label = format!("unit=\"{}\"", kept.name);
            page.add_labelled(&label, Unit::in_bucket(&kept).families());
            let help = "The epoch by which this node owns the unit.";
            page.add_labelled(&label, [("node_unit_epoch", Kind::Gauge, help, kept.epoch() as f64)]);
            let _ = unit;
        }
    }
}

impl Keeper for UnitKeeper {
    fn take(&self, unit: u64) -> anyhow::Result<u64> {
        let disk: &dyn Disk = &self.disk;
        let cache_bytes = (self.config.cache_bytes.0 / self.prefix.units).max(8 << 20);
        let kept = BucketUnit::open(&self.bucket, &self.prefix, unit, (disk, cache_bytes), &self.config)?;
        let epoch = kept.epoch();
        if let Some(rounds) = self.rounds.get() {
            let of_host = Unit::in_bucket(&kept);
            let reserve = of_host.hold_back()?;
            let settles = self.config.settle == Switch::On;
            let bound_bytes = self.config.journal_bound_bytes.0;
            let jobs = keep(rounds, &of_host, Keeping { reserve, settles, bound_bytes });
            self.jobs.lock().insert(unit, jobs);
        }
        self.units.lock().insert(unit, Arc::new(kept));
        Ok(epoch)
    }

    fn still_owns(&self, unit: u64) -> anyhow::Result<bool> {
        self.unit(unit).map_or(Ok(false), |kept| kept.still_owned())
    }

    fn serve(&self, unit: u64) {
        let Some(kept) = self.unit(unit) else { return };
        if let Some(wake) = self.streams.join_unit(unit, Arc::clone(&kept.logs)) {
            wake();
            kept.journal.subscribe(Arc::new(wake));
        }
    }

    fn is_lost(&self, unit: u64) -> bool {
        self.unit(unit).is_none_or(|kept| kept.journal.poisoned().is_some())
    }

    fn give_up(&self, unit: u64) {
        self.streams.leave_unit(unit);
        let jobs = self.jobs.lock().remove(&unit);
        jobs.iter().for_each(Jobs::retire);
        let Some(kept) = self.units.lock().remove(&unit) else { return };
        if kept.journal.poisoned().is_some() {
            return;
        }
        if let Err(error) = kept.close_within(CLOSE_WITHIN) {
            tracing::warn!(unit, error = format!("{error:#}"), "a unit was not closed: its next owner replays more");
        }
    }
}
