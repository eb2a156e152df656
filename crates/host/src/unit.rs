//! A kernel unit of any engine: kept in order, scrubbed, counted and closed in the same way for all.

use crate::background;
use crate::bucket_unit::{BucketJournal, BucketUnit};
use crate::metrics::{Families, Kind, ratio};
use crate::reserve::Reserve;
use anyhow::Context as _;
use std::sync::Arc;
use thalweg_base::{Millis, ObjectId};
use thalweg_disk::Disk;
use thalweg_journal::{FileJournal, Journal, Poisoned};
use thalweg_log::{
    Attachment, Damage, DamageStats, FileUnit, HeldCut, Logs, LogsStats, NextRound, Scrub, Unchecked, UpkeepError, When,
};

/// One kernel unit of the process.
#[derive(Clone)]
pub struct Unit {
    /// The engine that it was opened for, or its name in a bucket.
    pub name: Arc<str>,
    /// Its folder below the data folder, as a prefix of paths; empty for the unit of the data folder itself, and for
    /// one that is in a bucket.
    pub folder: &'static str,
    /// Disk space that is held back for it.
    pub reserve_bytes: u64,
    /// The files of its folder; `None` for a unit in a bucket.
    pub disk: Option<Arc<dyn Disk>>,
    /// The value of the label `unit` of its metrics; `None` for the unit of the data folder.
    label: Option<Arc<str>>,
    /// Its journal.
    pub journal: Arc<dyn UnitJournal>,
    /// Its logs, whatever is attached to them.
    pub logs: Arc<dyn UnitLogs>,
}

/// A journal, with what its owner does beside writing.
pub trait UnitJournal: Journal {
    /// Whether it needs files for what is written next.
    fn wants_segments(&self) -> bool;
    /// Makes them.
    fn make_segments(&self) -> std::io::Result<()>;
    /// Ends it with everything durable.
    fn close(&self) -> Result<(), Poisoned>;
}

impl UnitJournal for FileJournal {
    fn wants_segments(&self) -> bool {
        self.wants_prepare()
    }

    fn make_segments(&self) -> std::io::Result<()> {
        self.prepare()
    }

    fn close(&self) -> Result<(), Poisoned> {
        Self::close(self)
    }
}

impl UnitJournal for BucketJournal {
    fn wants_segments(&self) -> bool {
        false
    }

    fn make_segments(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<(), Poisoned> {
        Self::close(self)
    }
}

/// The methods of [`Logs`] that do not depend on the type of its attachments.
pub trait UnitLogs: Send + Sync {
    fn stats(&self) -> LogsStats;
    fn is_low_on_space(&self) -> bool;
    fn set_low_on_space(&self, low: bool);
    fn settle(&self, now: Millis, when: When) -> Result<bool, UpkeepError>;
    fn next_round(&self, now: Millis) -> NextRound;
    fn on_awake(&self, tell: Box<dyn Fn() + Send + Sync>);
    fn merge(&self) -> Result<bool, UpkeepError>;
    fn runs(&self) -> u64;
    fn merged_bytes(&self) -> u64;
    fn reclaim(&self, now: Millis) -> Result<bool, UpkeepError>;
    fn next_reclaim(&self, now: Millis) -> Option<u64>;
    fn deaths(&self) -> u64;
    fn close(&self) -> Result<(), UpkeepError>;
    fn hold_sealed(&self) -> HeldCut;
    fn opening_objects(&self) -> Vec<ObjectId>;
    fn new_object(&self) -> ObjectId;
    fn epoch(&self) -> u64;
    fn scrub(&self, scrub: &mut Scrub) -> Result<Option<u64>, Unchecked>;
    fn scrub_bytes(&self) -> u64;
    fn refresh_damage(&self, now: Millis);
    fn damage_stats(&self) -> DamageStats;
    fn on_damage(&self, tell: Box<dyn Fn() + Send + Sync>);
    fn damages(&self) -> Vec<Damage>;
}

impl<A: Attachment + Sync> UnitLogs for Logs<A> {
    fn stats(&self) -> LogsStats {
        self.stats()
    }

    fn is_low_on_space(&self) -> bool {
        self.is_low_on_space()
    }

    fn set_low_on_space(&self, low: bool) {
        self.set_low_on_space(low);
    }

    fn settle(&self, now: Millis, when: When) -> Result<bool, UpkeepError> {
        self.settle(now, when)
    }

    fn next_round(&self, now: Millis) -> NextRound {
        self.next_round(now)
    }

    fn on_awake(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.on_awake(tell);
    }

    fn merge(&self) -> Result<bool, UpkeepError> {
        self.merge()
    }

    fn runs(&self) -> u64 {
        self.runs()
    }

    fn merged_bytes(&self) -> u64 {
        self.merged_bytes()
    }

    fn reclaim(&self, now: Millis) -> Result<bool, UpkeepError> {
        self.reclaim(now)
    }

    fn next_reclaim(&self, now: Millis) -> Option<u64> {
        self.next_reclaim(now)
    }

    fn deaths(&self) -> u64 {
        self.deaths()
    }

    fn close(&self) -> Result<(), UpkeepError> {
        self.close()
    }

    fn hold_sealed(&self) -> HeldCut {
        self.hold_sealed()
    }

    fn opening_objects(&self) -> Vec<ObjectId> {
        self.opening_objects()
    }

    fn new_object(&self) -> ObjectId {
        self.new_object()
    }

    fn epoch(&self) -> u64 {
        self.epoch()
    }

    fn scrub(&self, scrub: &mut Scrub) -> Result<Option<u64>, Unchecked> {
        self.scrub(scrub)
    }

    fn scrub_bytes(&self) -> u64 {
        self.scrub_bytes()
    }

    fn refresh_damage(&self, now: Millis) {
        self.refresh_damage(now);
    }

    fn damage_stats(&self) -> DamageStats {
        self.damage_stats()
    }

    fn on_damage(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.on_damage(tell);
    }

    fn damages(&self) -> Vec<Damage> {
        self.damages()
    }
}

impl Unit {
    /// The unit of the data folder itself.
    pub fn main<A: Attachment + Sync>(name: &str, unit: &FileUnit<A>, reserve_bytes: u64) -> Self {
        Self { reserve_bytes, label: None, ..Self::derived(name, "", unit) }
    }

    /// A unit in a bucket. Those of streams share a label: their owners change.
    pub fn in_bucket<A: Attachment + Sync>(unit: &BucketUnit<A>) -> Self {
        let (journal, logs) = (Arc::clone(&unit.journal) as _, Arc::clone(&unit.logs) as _);
        let label = Some(if *unit.name == *"shapes" { Arc::clone(&unit.name) } else { Arc::from("replicated") });
        Self { name: Arc::clone(&unit.name), folder: "", reserve_bytes: 0, disk: None, label, journal, logs }
    }

    /// A derived unit beside the first one.
    pub fn derived<A: Attachment + Sync>(name: &str, folder: &'static str, unit: &FileUnit<A>) -> Self {
        let FileUnit { disk, journal, logs } = unit;
        let (journal, logs) = (Arc::clone(journal) as _, Arc::clone(logs) as _);
        let name: Arc<str> = name.into();
        let (label, disk) = (Some(Arc::clone(&name)), Some(Arc::clone(disk)));
        Self { name, folder, reserve_bytes: 0, disk, label, journal, logs }
    }

    /// Holds its space back.
    pub fn hold_back(&self) -> std::io::Result<Reserve> {
        self.disk.as_ref().map_or(Ok(Reserve::none()), |disk| Reserve::open(&**disk, self.reserve_bytes))
    }

    /// The value of the label `unit` of the unit's metrics. The unit of the data folder has no label: its metrics are
    /// older than labels, and dashboards and scripts know them without one.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Why its journal accepts nothing.
    pub fn health(&self) -> Result<(), String> {
        match (self.journal.poisoned(), self.label()) {
            (None, _) => Ok(()),
            (Some(poisoned), None) => Err(poisoned.to_string()),
            (Some(poisoned), Some(name)) => Err(format!("{name}: {poisoned}")),
        }
    }

    /// Ends the unit with everything on the disk, and with a root that says how far that is.
    pub fn close(&self) -> anyhow::Result<()> {
        self.journal.close().context("the journal could not be closed")?;
        self.logs.close().context("the manifest could not be written")
    }

    /// Figures of its journal and of settling.
    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn families(&self) -> Families {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        let (journal, logs) = (self.journal.stats(), self.logs.stats());
        let object_written_bytes = logs.settled_bytes + logs.merged_bytes + logs.directory_bytes;
        let lag_seconds = logs.lag_since.map_or(0.0, |since| f(background::now().since(since)) / 1e3);
        vec![
            ("journal_frames_total", Counter, "Frames appended to the journal.", f(journal.frames)),
            ("journal_batches_total", Counter, "Batches written to the journal.", f(journal.batches)),
            ("journal_written_bytes_total", Counter, "Bytes written to the journal, headers included.", f(journal.written_bytes)),
            ("journal_syncs_total", Counter, "Syncs of the journal.", f(journal.syncs)),
            ("journal_sync_seconds_total", Counter, "Time spent in syncs of the journal.", f(journal.sync_nanos) / 1e9),
            ("journal_batch_frames", Gauge, "Frames per batch, on average since the start.", ratio(journal.frames, journal.batches)),
            ("journal_held_bytes", Gauge, "Bytes the journal holds, from its trim point to its end.", f(journal.held_bytes)),
            ("journal_window_bytes", Gauge, "Bytes of the journal's end kept in memory.", f(journal.window_bytes)),
            ("journal_poisoned", Gauge, "1 after a failed write or sync: nothing more is accepted until a restart.", f(self.journal.poisoned().is_some().into())),
            ("settle_lag_bytes", Gauge, "Bytes of content in the journal that are in no object yet.", f(logs.lag_bytes)),
            ("settle_lag_seconds", Gauge, "Age of the oldest content that is in no object yet.", lag_seconds),
            ("settled_bytes_total", Counter, "Bytes of content moved from the journal into objects.", f(logs.settled_bytes)),
            ("object_written_bytes_total", Counter, "Bytes written to objects by settling, merging and rewriting.", f(object_written_bytes)),
            ("objects", Gauge, "Objects that exist.", f(logs.objects)),
            ("object_bytes", Gauge, "Size of all objects.", f(logs.object_bytes)),
            ("live_bytes", Gauge, "Bytes in objects that some log can read.", f(logs.live_bytes)),
            ("runs_max", Gauge, "Runs that exist: no log is spread over more.", f(logs.runs)),
            ("write_amplification", Gauge, "Bytes written to journal and objects per byte of content accepted.",
                ratio(journal.written_bytes + object_written_bytes, logs.appended_bytes)),
            ("space_amplification", Gauge, "Size of all objects per byte in them that some log can read.",
                ratio(logs.object_bytes, logs.live_bytes)),
        ]
    }
}
