//! A kernel unit whose authority is a bucket: journal, objects and root are there, and the local disk has a cache only.
//!
//! Whoever opens the unit takes it over: the root gets a new epoch, a fence stops the journal of the owner before, and
//! the journal's end is replayed. From then on the owner before acknowledges nothing, and stops when it learns why.

use crate::config::Config;
use crate::kernel;
use anyhow::Context as _;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Durability;
use thalweg_disk::Disk;
use thalweg_journal::{Options, Sequencer};
use thalweg_log::{Attachment, Logs, LogsOptions, Loss};
use thalweg_manifest::Manifest;
use thalweg_object::{Bucket, ObjectManifest, ObjectSink, ObjectStorage, SinkOptions};
use thalweg_storage::{CacheOptions, CacheStats, CachedStorage, StoreId};

/// The journal of a unit in a bucket.
pub type BucketJournal = Sequencer<ObjectSink>;

/// The key whose object names a prefix's units for good.
const KEY: &str = "units";
/// Log ids of the units of a bucket begin here, far above those of any data folder, see `kernel::fresh_ids`; each unit
/// has a range of its own, so that no id names logs of two units. With the six bits of a shard they have 16 digits.
const IDS_FROM: u64 = 120_000_000_000_000;
const IDS_PER_UNIT: u64 = 120_000_000_000;
/// A history of a unit begins further up for each second since [`IDS_SINCE`], and each opening is at least there: a
/// bucket that was lost or set back, and another prefix, give no id again that an offset may name. The last digits are
/// random. A unit may make 64 streams a second for ever, and many more at times.
const IDS_PER_SECOND: u64 = 64;
/// 2026-11-01, in seconds since 1970.
const IDS_SINCE: u64 = 1_793_491_200;
/// How many ids an opening, and each round of settling, reserves: so many streams can be made between two rounds.
const ID_RESERVE: u64 = 1 << 20;
/// How many units there may be.
pub const UNITS_MAX: u64 = 250;

/// The units of a prefix, as its first server has made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Names what is stored below the prefix: another one may use the same ids for other bytes.
    id: [u8; 16],
    /// How many units there are.
    pub units: u64,
    /// Nodes share them; otherwise they are those of one server with a data folder.
    is_of_nodes: bool,
    /// What only those know that may read the bucket.
    secret: String,
}

impl Prefix {
    /// Reads the units of a prefix; a new one gets `units` of them, for nodes or for one server. Refuses a prefix that
    /// was made for the others.
    pub fn settle(bucket: &Bucket, units: u64, is_of_nodes: bool) -> anyhow::Result<Self> {
        let drawn = (0..6).map(|_| crate::folder::random()).collect::<Result<Vec<u64>, _>>()?;
        let hex: Vec<String> = drawn.iter().map(|drawn| format!("{drawn:016x}")).collect();
        let owners = if is_of_nodes { "nodes" } else { "folder" };
        let (id, secret) = (hex[..2].concat(), hex[2..].concat());
        let mine = format!("thalweg units 1\nid {id}\nunits {units}\nowners {owners}\nsecret {secret}\n");
        let found = bucket.settle_once(KEY, mine.into_bytes().into())?;
        let found = Self::parse(&String::from_utf8_lossy(&found));
        let found = found.with_context(|| format!("the object `{KEY}` of the bucket"))?;
        match (found.is_of_nodes, is_of_nodes) {
            (true, false) => anyhow::bail!("this prefix belongs to nodes: start with --node, or take another prefix"),
            (false, true) => {
                anyhow::bail!("this prefix belongs to a data folder: start without --node, or take another prefix")
            }
            _ => Ok(found),
        }
    }

    /// What only those know that may read the bucket.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        match lines.next().and_then(|line| line.strip_prefix("thalweg units ")) {
            Some("1") => {}
            Some(version) => {
                anyhow::bail!("has version {version}, and this program reads version 1: use a newer thalweg")
            }
            None => anyhow::bail!("is none of thalweg's: take another prefix"),
        }
        let mut field = |name: &str| -> anyhow::Result<&str> {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.with_context(|| format!("is damaged: it lacks `{name}`"))
        };
        let id = u128::from_str_radix(field("id")?, 16).context("is damaged: its id is no number")?.to_be_bytes();
        let units = field("units")?.parse().context("is damaged: its units are no number")?;
        anyhow::ensure!((1..=UNITS_MAX).contains(&units), "is damaged: there are no {units} units");
        let is_of_nodes = match field("owners")? {
            "nodes" => true,
            "folder" => false,
            other => anyhow::bail!("is damaged: it has owners `{other}`"),
        };
        let secret = field("secret")?.to_owned();
        Ok(Self { id, units, is_of_nodes, secret })
    }

    fn store_id(&self, unit: u64) -> StoreId {
        let mut id = self.id;
        id[15] ^= unit as u8;
        StoreId(id)
    }
}

/// The least id of logs that an opening of the unit makes at this second.
fn ids_from(unit: u64, second: u64, random: u64) -> u64 {
    let since = second.saturating_sub(IDS_SINCE) * IDS_PER_SECOND + random % IDS_PER_SECOND;
    IDS_FROM + unit * IDS_PER_UNIT + since % IDS_PER_UNIT
}

/// The name of a unit in the bucket.
#[must_use]
pub fn name_of(unit: u64) -> String {
    format!("u{unit:02}")
}

/// A unit in a bucket, owned.
pub struct BucketUnit<A: Attachment> {
    /// Its name in the bucket.
    pub name: Arc<str>,
    /// Its journal.
    pub journal: Arc<BucketJournal>,
    /// Its logs, its only index.
    pub logs: Arc<Logs<A>>,
    cache: Arc<CachedStorage>,
    manifest: Arc<ObjectManifest>,
    epoch: u64,
}

impl<A: Attachment + Sync> BucketUnit<A> {
    /// Takes the unit over, and recovers. `cache`: the disk and the number of bytes for what is read of it. Waits for
    /// the bucket: seconds, or as long as its deadline.
    pub fn open(
        bucket: &Bucket,
        prefix: &Prefix,
        unit: u64,
        (disk, cache_bytes): (&dyn Disk, u64),
        config: &Config,
    ) -> anyhow::Result<Self> {
        let name = name_of(unit);
        let objects: Arc<ObjectStorage> = Arc::new(ObjectStorage::new(bucket.clone(), &name));
        let options = CacheOptions::new(prefix.store_id(unit), cache_bytes);
        let cache = Arc::new(CachedStorage::open(objects, disk, &format!("cache-{name}"), options)?);
        let manifest = Arc::new(ObjectManifest::new(bucket.clone(), &name, crate::folder::random()?));
        let ids_from = ids_from(unit, crate::background::now().0 / 1000, crate::folder::random()?);
        let (durability, id_reserve) = (Durability::Durable, ID_RESERVE);
        let logs = LogsOptions { durability, ids_from, id_reserve, ..kernel::logs_options(config) };
        let mut opening = Logs::begin(logs, Arc::clone(&cache) as _, Arc::clone(&manifest) as _, Loss::Nothing)?;
        let journal = Options {
            commit_interval: config.commit_interval.0,
            window_bytes: config.window_bytes.0.min(kernel::DERIVED_WINDOW_BYTES as u64) as usize,
            ..kernel::journal_options(config)?
        };
        let sink = ObjectSink::new(bucket.clone(), &name, SinkOptions::default());
        let (bounds, term) = (opening.bounds(), opening.epoch());
        let journal = Sequencer::take_over(sink, journal, bounds, term, &mut |at, bytes| opening.replay(at, &bytes))?;
        let journal = Arc::new(journal);
        let logs = Arc::new(opening.finish(Arc::clone(&journal) as _)?);
        tracing::info!(unit = name, epoch = term, logs = logs.len(), end = %journal.opened().end, "took over a unit of the bucket");
        journal.start_writer_on(&kernel::writers().context("cannot start the journals' writers")?);
        Ok(Self { name: name.into(), journal, logs, cache, manifest, epoch: term })
    }

    /// The epoch of this owner.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the root in the bucket is still this owner's.
    pub fn still_owned(&self) -> anyhow::Result<bool> {
        Ok(self.manifest.read()?.is_some_and(|root| root.epoch == self.epoch))
    }

    /// Figures of its cache.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Ends the unit with everything in the bucket, within this time; otherwise the next owner replays more. Everything
    /// that was acknowledged is in the bucket in both cases.
    pub fn close_within(&self, time: Duration) -> anyhow::Result<()> {
        let (journal, logs) = (Arc::clone(&self.journal), Arc::clone(&self.logs));
        let (done, closed) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("close".into()).spawn(move || {
            let closed = journal.close().map_err(anyhow::Error::new).and_then(|()| Ok(logs.close()?));
            let _ = done.send(closed);
        })?;
        let late = || anyhow::anyhow!("the bucket did not answer within {time:?}");
        closed.recv_timeout(time).map_err(|_| late())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_pinned_and_others_are_refused() {
        let text = "thalweg units 1\nid 000000000000000100000000000000ff\nunits 16\nowners nodes\nsecret 5ec4e7\n";
        let prefix = Prefix::parse(text).unwrap();
        assert_eq!((prefix.units, prefix.id[7], prefix.id[15]), (16, 1, 255));
        assert_eq!((prefix.is_of_nodes, prefix.secret()), (true, "5ec4e7"));
        for (text, why) in [
            ("", "none of thalweg's"),
            ("thalweg units 2\n", "a newer thalweg"),
            ("thalweg units 1\nid x\nunits 1\n", "id is no number"),
            ("thalweg units 1\nid 1\n", "lacks `units`"),
            ("thalweg units 1\nid 1\nunits 0\n", "no 0 units"),
            ("thalweg units 1\nid 1\nunits 251\n", "no 251 units"),
            ("thalweg units 1\nid 1\nunits 1\nowners me\n", "owners `me`"),
            ("thalweg units 1\nid 1\nunits 1\nowners nodes\n", "lacks `secret`"),
        ] {
            let error = Prefix::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn ids_of_all_units_have_sixteen_digits() {
        let last = (IDS_FROM + UNITS_MAX * IDS_PER_UNIT) << 6 | 63;
        assert!(last < 10_u64.pow(16), "{last}");
        let (today, later) = (ids_from(3, IDS_SINCE + 1_000, 5), ids_from(3, IDS_SINCE + 2_000, 5));
        assert!(IDS_FROM + 3 * IDS_PER_UNIT < today && today < later && later < IDS_FROM + 4 * IDS_PER_UNIT);
    }
}
