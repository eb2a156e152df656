//! Opens the kernel of a data folder: disk, journal, storage, manifest, and the logs on them.

use crate::config::Config;
use crate::folder::Folder;
use crate::mirror::{self, Mirroring, Prepared};
use anyhow::Context;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thalweg_base::{Durability, Span};
use thalweg_disk::RealDisk;
use thalweg_journal::{Opened, Options, WriterPool};
use thalweg_log::{Attachment, FileUnit, LogsOptions, Loss};
pub use thalweg_log::{MANIFEST, OBJECTS};

/// The engine of a derived unit caches the data that its clients read again. So the unit keeps little of its journal's
/// end, and its chunks are small: large answers are read in pieces as they are sent.
pub(crate) const DERIVED_WINDOW_BYTES: usize = 8 << 20;
pub(crate) const DERIVED_CHUNK_BYTES: u64 = 256 << 10;
/// How many journals are written at the same moment; more take turns.
const WRITERS_MAX: usize = 16;

/// Opens the unit of the data folder itself, or makes it, and recovers; with its mirror, if the settings name a store.
pub fn open<A: Attachment + Sync>(
    folder: &Folder,
    config: &Config,
) -> anyhow::Result<(FileUnit<A>, Option<Mirroring>)> {
    let prepared = mirror::prepare(folder, config)?;
    let mut logs_options = logs_options(config);
    let loss = prepared.as_ref().and_then(|prepared| prepared.loss).unwrap_or_else(|| folder.loss());
    match loss {
        Loss::Nothing => {}
        Loss::Buffered => tracing::info!("the machine crashed: buffered streams get a new incarnation"),
        Loss::Unsaid => tracing::warn!(
            "the machine crashed under a buffered server: every stream that is not durable gets a new incarnation"
        ),
        Loss::Everything => {
            tracing::info!("clients may hold positions of other bytes: every stream gets a new incarnation");
            logs_options.ids_from = fresh_ids()?;
        }
    }
    if folder.was_served() && !folder.path().join(MANIFEST).exists() {
        anyhow::bail!(
            "{} is missing, but a server has run on this folder: restore a backup into a new one",
            folder.path().join(MANIFEST).display()
        );
    }
    let path = folder.path();
    let journal = journal_options(config)?;
    let opened = match &prepared {
        None => open_unit(path, None, journal, logs_options, loss),
        Some(prepared) => open_unit(path, Some(prepared), journal, logs_options, loss).or_else(|error| {
            // Marks that were lost make an object seem to be missing.
            match prepared.find_copies() {
                Ok(found) if found > 0 => open_unit(path, Some(prepared), journal, logs_options, loss),
                _ => Err(error),
            }
        }),
    };
    let unit = opened.context("`thalweg check` reads all of the data folder and lists damage")?;
    let begin =
        |prepared: Prepared| prepared.begin(folder, config, Arc::clone(&unit.logs) as _, Arc::clone(&unit.journal));
    let mirroring = prepared.map(begin).transpose()?;
    Ok((unit, mirroring))
}

/// Opens a derived unit beside that of the streams. Its logs are always durable: an engine that shows content before it
/// is durable keeps that content itself.
pub fn open_derived<A: Attachment>(path: &Path, config: &Config) -> anyhow::Result<FileUnit<A>> {
    crate::folder::make(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut journal = journal_options(config)?;
    journal.window_bytes = journal.window_bytes.min(DERIVED_WINDOW_BYTES);
    let mut logs = logs_options(config);
    (logs.durability, logs.chunk_bytes) = (Durability::Durable, DERIVED_CHUNK_BYTES);
    open_unit(path, None, journal, logs, Loss::Nothing)
        .with_context(|| format!("{} holds only derived data: it can be removed", path.display()))
}

fn open_unit<A: Attachment>(
    path: &Path,
    tiers: Option<&Prepared>,
    journal: Options,
    logs: LogsOptions,
    loss: Loss,
) -> anyhow::Result<FileUnit<A>> {
    let disk = Arc::new(RealDisk::open(path).context("cannot open the data folder")?);
    let unit = match tiers {
        None => FileUnit::open(disk, journal, logs, loss)?,
        Some(tiers) => {
            let storage = Arc::clone(&tiers.storage);
            FileUnit::open_over(disk, storage, tiers.above, journal, logs, loss)?
        }
    };
    let Opened { end, segments, .. } = unit.journal.opened();
    tracing::info!(folder = %path.display(), logs = unit.logs.len(), segments, %end, "opened the data folder");
    unit.journal.start_writer_on(&writers().context("cannot start the journals' writers")?);
    Ok(unit)
}

/// The threads that write the journals of all units of the process. A unit that is busy keeps one of them.
pub(crate) fn writers() -> std::io::Result<WriterPool> {
    static WRITERS: Mutex<Option<WriterPool>> = Mutex::new(None);
    let mut writers = WRITERS.lock();
    if let Some(pool) = writers.as_ref() {
        return Ok(pool.clone());
    }
    Ok(writers.insert(WriterPool::start(WRITERS_MAX)?).clone())
}

/// First log id of a history that begins with a restore: data written after the backup, or by another restore of it,
/// may have used any id above the backup's, and no offset may ever name bytes of two histories. Ids that grow with the
/// clock, 2^14 for each second, with random low bits, are far above the ids of a server that was never restored, and
/// differ from those of any other restore; they fit into the 16 digits of an offset for thousands of years.
fn fresh_ids() -> anyhow::Result<u64> {
    const PER_SECOND_BITS: u32 = 14;
    let seconds = crate::background::now().0 / 1000;
    Ok(seconds << PER_SECOND_BITS | crate::folder::random()? & ((1 << PER_SECOND_BITS) - 1))
}

pub(crate) fn logs_options(config: &Config) -> LogsOptions {
    LogsOptions {
        settle_bytes: config.settle_bytes.0,
        settle_after_ms: millis(config.settle_after),
        fan_in: config.merge_fan_in,
        purge_after_ms: millis(config.purge_after),
        chunk_cache_bytes: config.chunk_cache_bytes.0,
        reclaim_every_ms: (millis(config.purge_after) / 10).clamp(100, 5_000),
        durability: config.durability.of_journal(),
        ..LogsOptions::default()
    }
}

pub(crate) fn journal_options(config: &Config) -> anyhow::Result<Options> {
    Ok(Options {
        segment_bytes: config.journal_segment_bytes.0,
        max_payload: config.journal_segment_bytes.0 as usize,
        bound_bytes: config.journal_bound_bytes.0,
        window_bytes: config.window_bytes.0 as usize,
        salt: crate::folder::random()?,
        ..Options::default()
    })
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}
