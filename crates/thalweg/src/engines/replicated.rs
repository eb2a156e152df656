//! Replicated streams: their kernel unit is in the bucket of `--store`. It is taken over once this server has acquired
//! the mirror there, and served beside the unit of the data folder.
//!
//! The bucket may be away at the start. Then the unit comes as soon as it answers; until then requests for streams that
//! the data folder does not have are refused.

use super::streams::ServedStreams;
use anyhow::Context as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::background::{self, Background};
use thalweg_host::bucket_unit::{self, BucketUnit, Prefix, Which};
use thalweg_host::config::{Config, Switch};
use thalweg_host::folder::Folder;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::{Boot, Engine, Jobs, Keeping, Mirroring, Route, Unit, keep};
use thalweg_http::{Context, Reply, Request};
use thalweg_journal::Journal;
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;
use thalweg_streams::StreamState;

/// How often opening the unit is tried while the bucket does not answer.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two attempts that fail.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
/// How long a stop waits for the bucket.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// One server with a data folder has one unit of replicated streams.
const UNITS: u64 = 1;

pub(crate) struct ServedReplicated {
    /// `None`: the settings name no store.
    opener: Option<Arc<Opener>>,
}

struct Opener {
    config: Config,
    disk: RealDisk,
    path: PathBuf,
    streams: Arc<ServedStreams>,
    opened: OnceLock<Opened>,
}

struct Opened {
    kernel: BucketUnit<StreamState>,
    jobs: Jobs,
    bucket: Bucket,
    prefix: Prefix,
}

pub(crate) fn open(boot: Boot<'_>, streams: &Arc<ServedStreams>) -> anyhow::Result<ServedReplicated> {
    let Boot { config, folder, .. } = boot;
    let opener = streams.mirroring.as_ref().map(|_| -> anyhow::Result<_> {
        let disk = RealDisk::open(folder.path()).context("cannot open the data folder")?;
        let opened = OnceLock::new();
        Ok(Arc::new(Opener {
            config: config.clone(),
            disk,
            path: folder.path().to_owned(),
            streams: Arc::clone(streams),
            opened,
        }))
    });
    Ok(ServedReplicated { opener: opener.transpose()? })
}

impl Opener {
    /// Takes the unit over and serves it, if that is possible now. `false`: to be tried again.
    fn try_open(&self, rounds: &Rounds) -> anyhow::Result<bool> {
        let Some(mirroring) = &self.streams.mirroring else { return Ok(true) };
        let Some(bucket) = mirroring.owned_bucket()? else { return Ok(false) };
        let store = mirroring.store();
        let prefix = Prefix::settle_for(bucket, UNITS, false, (&self.path, store))?;
        let kernel = self.take_over(bucket, &prefix)?;
        // Another server may have come while the unit was taken.
        if mirroring.owned_bucket()?.is_none() {
            return Ok(false);
        }
        if !kernel.logs.is_empty() {
            Folder::note_replicated(&self.path, store)?;
        }
        let unit = Unit::in_bucket(&kernel);
        let reserve = unit.hold_back()?;
        let settles = self.config.settle == Switch::On;
        let jobs = keep(rounds, &unit, Keeping { reserve, settles, bound_bytes: self.config.journal_bound_bytes.0 });
        self.streams.streams.join(Arc::clone(&kernel.logs), background::now());
        self.watch(&kernel);
        let _ = self.opened.set(Opened { kernel, jobs, bucket: bucket.clone(), prefix });
        Ok(true)
    }

    fn take_over(&self, bucket: &Bucket, prefix: &Prefix) -> anyhow::Result<BucketUnit<StreamState>> {
        let disk: &dyn Disk = &self.disk;
        BucketUnit::open(bucket, prefix, Which::Streams(0), (disk, self.config.cache_bytes.0 / 4), &self.config)
    }

    /// Stops this process if the bucket has lost replicated streams. Without any, the disk has everything.
    fn watch_prefix(&self) {
        if let Some(opened) = self.opened.get().filter(|opened| !opened.kernel.logs.is_empty()) {
            opened.prefix.watch(&opened.bucket);
            // Where the root was set back, the journal may know nothing of it.
            if opened.kernel.logs.is_deposed() {
                tracing::error!(
                    "the root of replicated streams in the bucket is not the one that this server wrote last: the bucket \
                     was set back, or another server has them. This server stops"
                );
                background::stop_this_process();
            }
        }
    }

    /// Reports every advance of the unit's journal. A journal that another server has taken over stops this one.
    fn watch(&self, kernel: &BucketUnit<StreamState>) {
        let (journal, served) = (Arc::downgrade(&kernel.journal), Arc::clone(&self.streams));
        let (path, is_noted) = (self.path.clone(), AtomicBool::new(!kernel.logs.is_empty()));
        kernel.journal.subscribe(Arc::new(move || {
            // Once, before the first stream is acknowledged: the one write to a disk that this thread waits for.
            if !is_noted.swap(true, Ordering::Relaxed)
                && let Some(mirroring) = &served.mirroring
                && let Err(error) = Folder::note_replicated(&path, mirroring.store())
            {
                is_noted.store(false, Ordering::Relaxed);
                tracing::error!(error = format!("{error:#}"), "the folder cannot note that it has replicated streams");
            }
            served.streams.on_replicated();
            let poisoned = journal.upgrade().and_then(|journal| journal.poisoned());
            if poisoned.is_some_and(|poisoned| poisoned.fenced.is_some()) {
                served.mirroring.iter().for_each(Mirroring::depose);
            }
        }));
        // What came before.
        self.streams.streams.on_replicated();
    }
}

impl Engine for ServedReplicated {
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    fn handle(&self, _: &Request<'_>, _: &mut Context<'_>) -> Reply {
        Reply::Now(thalweg_host::plain(404, "text/plain"))
    }

    fn health(&self) -> Result<(), String> {
        let Some(opener) = &self.opener else { return Ok(()) };
        let poisoned = opener.opened.get().and_then(|opened| opened.kernel.journal.poisoned());
        poisoned.map_or(Ok(()), |poisoned| Err(format!("replicated streams: {poisoned}")))
    }

    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    fn metrics(&self, page: &mut Page) {
        let Some(opener) = &self.opener else { return };
        let opened = opener.opened.get();
        let help = "Units of replicated streams in the bucket that this server owns and serves.";
        page.add([("replicated_units", Kind::Gauge, help, f64::from(u8::from(opened.is_some())))]);
        if let Some(opened) = opened {
            page.add_labelled("unit=\"replicated\"", Unit::in_bucket(&opened.kernel).families());
            let cache = opened.kernel.cache_stats();
            let f = |n: u64| n as f64;
            page.add([
                (
                    "replicated_cache_hits_total",
                    Kind::Counter,
                    "Blocks of replicated streams that were read from the cache.",
                    f(cache.hits),
                ),
                (
                    "replicated_cache_misses_total",
                    Kind::Counter,
                    "Blocks of replicated streams that the bucket was asked for.",
                    f(cache.misses),
                ),
            ]);
        }
    }

    fn work(&self, background: &mut Background, rounds: &Arc<Rounds>) -> std::io::Result<()> {
        let Some(opener) = self.opener.clone() else { return Ok(()) };
        let watched = Arc::clone(&opener);
        background.every("prefix", bucket_unit::WATCH_EVERY, move || watched.watch_prefix())?;
        let rounds = Arc::clone(rounds);
        let (mut failures, mut next) = (0, Instant::now());
        background.until_done("replicated", RETRY_EVERY, move || {
            if Instant::now() < next {
                return false;
            }
            opener.try_open(&rounds).unwrap_or_else(|error| {
                // Each attempt may cost an epoch and a fence.
                failures = (failures + 1).min(16);
                let pause = (RETRY_EVERY * 2_u32.pow(failures - 1)).min(RETRY_AT_LEAST_EVERY);
                next = Instant::now() + pause;
                let error = format!("{error:#}");
                tracing::warn!(error, ?pause, "the unit of replicated streams cannot be opened yet; it is tried again");
                false
            })
        })
    }

    fn close(&self) -> anyhow::Result<()> {
        let Some(opened) = self.opener.as_ref().and_then(|opener| opener.opened.get()) else { return Ok(()) };
        opened.jobs.retire();
        if let Err(error) = opened.kernel.close_within(CLOSE_WITHIN) {
            tracing::warn!(
                error = format!("{error:#}"),
                "the unit of replicated streams was not closed: everything acknowledged is in the bucket, and the next start replays it"
            );
        }
        Ok(())
    }
}
