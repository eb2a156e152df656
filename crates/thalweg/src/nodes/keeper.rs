//! The units that this node owns: opened, served and closed. `shapes` has the one of shapes.

use super::Share;
use super::shapes::{self, ShapesHome};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::bucket_unit::{BucketUnit, Prefix, Which};
use thalweg_host::config::{Config, Switch};
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::nodes::Keeper;
use thalweg_host::{Boot, Jobs, Keeping, Unit, keep};
use thalweg_journal::Journal;
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;
use thalweg_streams::{StreamState, Streams};
use thalweg_subscriptions::{Prepared, Subscriptions};

/// How long giving up a unit waits for its background work, and then for the bucket. What is not settled then is replayed
/// by the next owner.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct UnitKeeper {
    config: Config,
    disk: RealDisk,
    bucket: Bucket,
    prefix: Prefix,
    streams: Arc<Streams>,
    /// Once they are open.
    subscriptions: OnceLock<Arc<Subscriptions>>,
    /// If the settings name their database.
    shapes: Option<Arc<ShapesHome>>,
    rounds: OnceLock<Arc<Rounds>>,
    units: Mutex<BTreeMap<u64, Kept>>,
}

/// A unit of streams that was taken over.
struct Kept {
    unit: Arc<BucketUnit<StreamState>>,
    /// Its background work.
    jobs: Option<Jobs>,
    /// Its subscriptions, until it is served for the first time.
    prepared: Option<Prepared>,
}

impl UnitKeeper {
    pub(super) fn new(
        boot: Boot<'_>,
        share: &Share,
        streams: &Arc<Streams>,
        shapes: Option<Arc<ShapesHome>>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            config: boot.config.clone(),
            disk: RealDisk::open(boot.folder.path())?,
            bucket: share.bucket.clone(),
            prefix: share.prefix.clone(),
            streams: Arc::clone(streams),
            subscriptions: OnceLock::new(),
            shapes,
            rounds: OnceLock::new(),
            units: Mutex::default(),
        })
    }

    pub(super) fn use_rounds(&self, rounds: Arc<Rounds>) {
        if let Some(shapes) = &self.shapes {
            shapes.use_rounds(Arc::clone(&rounds));
        }
        let _ = self.rounds.set(rounds);
    }

    pub(super) fn use_subscriptions(&self, subscriptions: Arc<Subscriptions>) {
        let _ = self.subscriptions.set(subscriptions);
    }

    /// Those of shapes, if the number is that of their unit.
    fn shapes(&self, unit: u64) -> Option<&Arc<ShapesHome>> {
        self.shapes.as_ref().filter(|_| unit == self.prefix.units)
    }

    fn unit(&self, unit: u64) -> Option<Arc<BucketUnit<StreamState>>> {
        self.units.lock().get(&unit).map(|kept| Arc::clone(&kept.unit))
    }

    /// Figures of all units that it has.
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub(super) fn metrics(&self, page: &mut Page) {
        let units: Vec<_> = self.units.lock().values().map(|kept| Arc::clone(&kept.unit)).collect();
        for unit in units {
            let label = format!("unit=\"{}\"", unit.name);
            page.add_labelled(&label, Unit::in_bucket(&unit).families());
            let help = "The epoch by which this node owns the unit.";
            page.add_labelled(&label, [("node_unit_epoch", Kind::Gauge, help, unit.epoch() as f64)]);
        }
    }
}

impl Keeper for UnitKeeper {
    fn take(&self, unit: u64) -> anyhow::Result<u64> {
        if let Some(shapes) = self.shapes(unit) {
            return shapes.take();
        }
        let disk: &dyn Disk = &self.disk;
        let of_shapes = self.shapes.as_ref().map_or(0, |_| shapes::cache_bytes(&self.config));
        let cache_bytes = (self.config.cache_bytes.0.saturating_sub(of_shapes) / self.prefix.units).max(8 << 20);
        let which = Which::Streams(unit);
        let taken = BucketUnit::open(&self.bucket, &self.prefix, which, (disk, cache_bytes), &self.config)?;
        let epoch = taken.epoch();
        let begin = |rounds: &Arc<Rounds>| {
            let of_host = Unit::in_bucket(&taken);
            let reserve = of_host.hold_back()?;
            let settles = self.config.settle == Switch::On;
            let bound_bytes = self.config.journal_bound_bytes.0;
            anyhow::Ok(keep(rounds, &of_host, Keeping { reserve, settles, bound_bytes }))
        };
        let jobs = self.rounds.get().map(begin).transpose()?;
        // Read while nobody writes, and before anything waits for the unit.
        let prepared = Some(Subscriptions::prepare(unit, Arc::clone(&taken.logs)));
        self.units.lock().insert(unit, Kept { unit: Arc::new(taken), jobs, prepared });
        Ok(epoch)
    }

    fn still_owns(&self, unit: u64) -> anyhow::Result<bool> {
        if let Some(shapes) = self.shapes(unit) {
            return shapes.still_owns();
        }
        self.unit(unit).map_or(Ok(false), |kept| kept.still_owned())
    }

    fn serve(&self, unit: u64) {
        if let Some(shapes) = self.shapes(unit) {
            return shapes.serve();
        }
        let Some(kept) = self.unit(unit) else { return };
        if let Some(wake) = self.streams.join_unit(unit, Arc::clone(&kept.logs)) {
            wake();
            kept.journal.subscribe(Arc::new(wake));
        }
        // A unit that is served again after a gap has its subscriptions already.
        let prepared = self.units.lock().get_mut(&unit).and_then(|kept| kept.prepared.take());
        if let Some((subscriptions, prepared)) = self.subscriptions.get().zip(prepared) {
            subscriptions.join(prepared);
        }
    }

    fn is_lost(&self, unit: u64) -> bool {
        if let Some(shapes) = self.shapes(unit) {
            return shapes.is_lost();
        }
        self.unit(unit).is_none_or(|kept| kept.is_lost())
    }

    fn give_up(&self, unit: u64) {
        if let Some(shapes) = self.shapes(unit) {
            return shapes.give_up();
        }
        let kept = self.units.lock().remove(&unit);
        self.subscriptions.get().iter().for_each(|subscriptions| subscriptions.leave(unit));
        self.streams.leave_unit(unit);
        let Some(Kept { unit: kept, jobs, prepared }) = kept else { return };
        drop(prepared);
        let jobs = Arc::new(jobs);
        let of_unit = Arc::clone(&jobs);
        let (done, ended) = std::sync::mpsc::channel();
        let end = move || {
            // A turn that has begun is waited for: a merge may take minutes.
            of_unit.iter().for_each(Jobs::retire);
            let _ = done.send(());
            if kept.is_lost() {
                return;
            }
            if let Err(error) = kept.close_within(CLOSE_WITHIN) {
                tracing::warn!(
                    unit,
                    error = format!("{error:#}"),
                    "a unit was not closed: its next owner replays more"
                );
            }
            let _ = done.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("give up".into()).spawn(end) {
            tracing::warn!(unit, %error, "no thread to close a unit: its next owner replays more");
            return jobs.iter().for_each(Jobs::retire);
        }
        // Its next owner need not wait for the turn: what this owner writes from then on is refused.
        if ended.recv_timeout(CLOSE_WITHIN) == Err(RecvTimeoutError::Timeout) {
            return tracing::warn!(unit, "a unit is given up while its background work goes on");
        }
        let _ = ended.recv_timeout(2 * CLOSE_WITHIN);
    }
}
