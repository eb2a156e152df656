//! A kernel unit whose authority is a bucket: journal, objects and root are there, and the local disk has a cache only.
//!
//! Whoever opens the unit takes it over: the root gets a new epoch, a fence stops the journal of the owner before, and
//! the journal's end is replayed. From then on the owner before acknowledges nothing, and stops when it learns why.

use crate::config::Config;
use crate::folder::Folder;
use crate::kernel;
use anyhow::Context as _;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Durability;
use thalweg_disk::Disk;
use thalweg_journal::{Journal, Options, Sequencer, TakeOverError};
use thalweg_log::{Attachment, Logs, LogsOptions, Loss};
use thalweg_manifest::Manifest;
use thalweg_object::{Bucket, Listed, ObjectManifest, ObjectSink, ObjectStorage, SinkOptions};
use thalweg_storage::{CacheOptions, CacheStats, CachedStorage, Storage, StoreId};

/// The journal of a unit in a bucket.
pub type BucketJournal = Sequencer<ObjectSink>;

/// The key whose object names a prefix's units for good.
const KEY: &str = "units";
/// Why nothing goes on in a bucket that was emptied.
const GONE: &str = "the bucket lacks the object `units` of this prefix, or has another one: it was emptied, or \
                        replaced. Nothing that was acknowledged since is safe there: put its objects back, or start with \
                        another prefix";
/// How often a server asks whether the bucket still has its prefix.
pub const WATCH_EVERY: Duration = Duration::from_secs(15);
/// Log ids of the units of a bucket begin here, far above those of any data folder, see `kernel::fresh_ids`; each unit
/// has a range of its own, so that no id names logs of two units; that of shapes comes last. With the six bits of a shard they have 16 digits.
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
    /// Names of its units in the bucket end with a part of the id: an owner that does not know yet that its prefix was
    /// emptied touches nothing of the one that was made in its place. Not so in prefixes of version 1.
    names_have_id: bool,
}

impl Prefix {
    /// Reads the units of a prefix; a new one gets `units` of them, for nodes or for one server. Refuses a prefix that
    /// was made for the others.
    pub fn settle(bucket: &Bucket, units: u64, is_of_nodes: bool) -> anyhow::Result<Self> {
        let drawn = (0..6).map(|_| crate::folder::random()).collect::<Result<Vec<u64>, _>>()?;
        let hex: Vec<String> = drawn.iter().map(|drawn| format!("{drawn:016x}")).collect();
        let owners = if is_of_nodes { "nodes" } else { "folder" };
        let (id, secret) = (hex[..2].concat(), hex[2..].concat());
        let mine = format!("thalweg units 2\nid {id}\nunits {units}\nowners {owners}\nsecret {secret}\n");
        if let Some(lost) = Self::lost(bucket)? {
            anyhow::bail!(lost);
        }
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

    /// The units of a prefix that has some; changes nothing.
    pub fn find(bucket: &Bucket) -> anyhow::Result<Option<Self>> {
        let Some(text) = bucket.read(KEY)? else { return Ok(None) };
        let found = Self::parse(&String::from_utf8_lossy(&text));
        found.map(Some).with_context(|| format!("the object `{KEY}` of the bucket"))
    }

    /// As [`Self::settle`], for a server on this data folder, which remembers the prefix: refuses a store that has lost it.
    /// The server of a data folder that had no replicated stream has lost nothing.
    pub fn settle_for(
        bucket: &Bucket,
        units: u64,
        is_of_nodes: bool,
        (folder, store): (&Path, &str),
    ) -> anyhow::Result<Self> {
        let has_units = is_of_nodes || Folder::replicated_store_of(folder).as_deref() == Some(store);
        if let Some(noted) = Folder::prefix_of(folder, store)?.filter(|_| has_units)
            && Self::find(bucket)?.map(|found| found.id()) != Some(noted)
        {
            anyhow::bail!("{GONE}. If that is meant, start with an empty folder instead of {}", folder.display());
        }
        let settled = Self::settle(bucket, units, is_of_nodes)?;
        Folder::note_prefix(folder, store, &settled.id())?;
        Ok(settled)
    }

    /// What is wrong with a prefix that has parts of units without the object that names these, or with that object: it was
    /// removed, or the bucket is a copy that is not whole. `None`: nothing, or the prefix is new.
    pub fn lost(bucket: &Bucket) -> anyhow::Result<Option<String>> {
        let is_there = || anyhow::Ok(bucket.read(KEY)?.map(|text| Self::parse(&String::from_utf8_lossy(&text))));
        let what = |parsed: anyhow::Result<Self>| parsed.err().map(|why| format!("the object `{KEY}` {why:#}"));
        if let Some(parsed) = is_there()? {
            return Ok(match parsed {
                Ok(prefix) => prefix.unit_of_another(bucket)?,
                parsed => what(parsed),
            });
        }
        let Some(part) = Self::part_of_units(bucket)? else { return Ok(None) };
        // Another server may have made the prefix, and its first unit, since.
        if let Some(parsed) = is_there()? {
            return Ok(what(parsed));
        }
        Ok(Some(format!(
            "the bucket has parts of units (`{part}`), and lacks the object `{KEY}` that says how streams are spread over \
             them: put it back, or take another prefix"
        )))
    }

    /// Whether a unit in the bucket is one of this prefix, by its name there.
    pub(crate) fn has(&self, name: &str) -> bool {
        match name.split_once('-') {
            Some((_, id)) => self.names_have_id && id == self.stack(),
            None => !self.names_have_id,
        }
    }

    /// What is wrong if the bucket has the root of a unit that this prefix does not have: `units` is of another time.
    fn unit_of_another(&self, bucket: &Bucket) -> anyhow::Result<Option<String>> {
        for Listed { key, .. } in bucket.objects("m/")? {
            if key == crate::mirror::UNIT || self.has(&key) {
                continue;
            }
            // One without a body was acquired and never opened: by an owner that slept while its prefix was emptied.
            let root = ObjectManifest::new(bucket.clone(), &key, 0).read();
            if !matches!(root, Ok(None)) && !matches!(root, Ok(Some(root)) if root.body.is_empty()) {
                return Ok(Some(format!(
                    "the bucket has a unit of another prefix (`m/{key}`), whose streams nobody serves: put the object \
                     `{KEY}` back that belongs to it, or remove that unit"
                )));
            }
        }
        Ok(None)
    }

    /// A key of some unit's root, object or journal, or of what belongs to all of them.
    fn part_of_units(bucket: &Bucket) -> anyhow::Result<Option<String>> {
        let is_of_mirror = |key: &str| key.split('/').next() == Some(crate::mirror::UNIT);
        for folder in ["m/", "j/", "d/"] {
            let mut listed = bucket.objects(folder)?.into_iter();
            if let Some(one) = listed.find(|listed| !is_of_mirror(&listed.key)) {
                return Ok(Some(format!("{folder}{}", one.key)));
            }
        }
        let key = "subscriptions.keys";
        Ok(bucket.read(key)?.map(|_| key.to_owned()))
    }

    /// Whether the bucket still has this prefix: it was not emptied, nor another one put in its place. Fails if the bucket
    /// does not answer.
    pub fn is_there(&self, bucket: &Bucket) -> anyhow::Result<bool> {
        let found = bucket.read(KEY)?;
        Ok(found.and_then(|text| Self::parse(&String::from_utf8_lossy(&text)).ok()).as_ref() == Some(self))
    }

    /// Stops this process if the bucket has this prefix no more: appends would go on there, and what was acknowledged
    /// before is gone.
    pub fn watch(&self, bucket: &Bucket) {
        match self.is_there(bucket) {
            Ok(true) => {}
            Ok(false) => {
                tracing::error!("{GONE}. This server stops");
                crate::background::stop_this_process();
            }
            Err(error) => tracing::debug!(error = format!("{error:#}"), "the bucket did not say which units it has"),
        }
    }

    /// Names what is stored below the prefix, in 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether nodes share the units.
    #[must_use]
    pub fn is_of_nodes(&self) -> bool {
        self.is_of_nodes
    }

    /// What only those know that may read the bucket.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let names_have_id = match lines.next().and_then(|line| line.strip_prefix("thalweg units ")) {
            Some("1") => false,
            Some("2") => true,
            Some(version) => {
                anyhow::bail!("has version {version}, and this program reads versions 1 and 2: use a newer thalweg")
            }
            None => anyhow::bail!("is none of thalweg's: take another prefix"),
        };
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
        let is_whole = secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        anyhow::ensure!(is_whole, "is damaged: its secret has not 64 hexadecimal digits");
        Ok(Self { id, units, is_of_nodes, secret, names_have_id })
    }

    /// What tells this prefix from others, in 8 letters and digits.
    #[must_use]
    pub fn stack(&self) -> String {
        self.id[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The name of a unit in the bucket.
    #[must_use]
    pub fn name_of(&self, unit: Which) -> String {
        match self.names_have_id {
            true => format!("{}-{}", unit.name(), self.stack()),
            false => unit.name(),
        }
    }

    fn store_id(&self, unit: Which) -> StoreId {
        let mut id = self.id;
        id[15] ^= unit.range() as u8;
        StoreId(id)
    }
}

/// The least id of logs that an opening of the unit makes at this second.
pub(crate) fn ids_from(unit: Which, second: u64, random: u64) -> u64 {
    let since = second.saturating_sub(IDS_SINCE) * IDS_PER_SECOND + random % IDS_PER_SECOND;
    IDS_FROM + unit.range() * IDS_PER_UNIT + since % IDS_PER_UNIT
}

/// A unit of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One of the units of streams, by its number.
    Streams(u64),
    /// The unit of the shapes of one database, which nodes have.
    Shapes,
}

impl Which {
    /// Its name, without that of its prefix.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Streams(unit) => format!("u{unit:02}"),
            Self::Shapes => "shapes".to_owned(),
        }
    }

    /// Its range of ids of logs, and its part of a cache's identity.
    fn range(self) -> u64 {
        match self {
            Self::Streams(unit) => unit,
            Self::Shapes => UNITS_MAX,
        }
    }
}

/// The options of one owner.
pub(crate) struct OwnerOptions {
    pub(crate) logs: LogsOptions,
    pub(crate) journal: Options,
    pub(crate) sink: SinkOptions,
}

/// A unit that was taken over. Nothing drives its journal yet.
pub(crate) struct TakenOver<A: Attachment> {
    pub(crate) journal: Arc<BucketJournal>,
    pub(crate) logs: Arc<Logs<A>>,
    pub(crate) epoch: u64,
}

/// Takes the unit of this name over, and recovers. `seen`: the journal as the logs see it.
pub(crate) fn take_over<A: Attachment + Sync>(
    (bucket, name): (&Bucket, &str),
    storage: Arc<dyn Storage>,
    manifest: Arc<dyn Manifest>,
    options: OwnerOptions,
    seen: impl FnOnce(Arc<BucketJournal>) -> Arc<dyn Journal>,
) -> anyhow::Result<TakenOver<A>> {
    let mut above = 0;
    let (journal, opening, epoch) = loop {
        let (storage, root) = (Arc::clone(&storage), Arc::clone(&manifest));
        let mut opening = Logs::begin_above(above, options.logs, storage, root, Loss::Nothing)?;
        let (bounds, epoch) = (opening.bounds(), opening.epoch());
        let sink = ObjectSink::new(bucket.clone(), name, options.sink);
        let mut replay = |at, bytes: Bytes| opening.replay(at, &bytes);
        match Sequencer::take_over(sink, options.journal, bounds, epoch, &mut replay) {
            // An owner acquires the root before it writes to the journal, so a root without that owner's epoch is of an
            // earlier time. If the journal still has all that such a root needs, nothing is lost.
            Err(TakeOverError::Fenced(fenced))
                if above == 0 && manifest.read()?.is_none_or(|root| root.epoch < fenced.by) =>
            {
                tracing::warn!(unit = name, epoch, by = fenced.by, "the root of a unit is older than its journal");
                above = fenced.by;
            }
            taken => break (taken?, opening, epoch),
        }
    };
    let journal = Arc::new(journal);
    let logs = Arc::new(opening.finish(seen(Arc::clone(&journal)))?);
    Ok(TakenOver { journal, logs, epoch })
}

/// A unit in a bucket, owned.
pub struct BucketUnit<A: Attachment> {
    /// Its name, see [`Which::name`].
    pub name: Arc<str>,
    /// Its journal.
    pub journal: Arc<BucketJournal>,
    /// Its logs, its only index.
    pub logs: Arc<Logs<A>>,
    cache: Arc<CachedStorage>,
    manifest: Arc<ObjectManifest>,
    epoch: u64,
}

/// Whether the unit was ever opened.
pub fn exists(bucket: &Bucket, prefix: &Prefix, unit: Which) -> anyhow::Result<bool> {
    let manifest = ObjectManifest::new(bucket.clone(), &prefix.name_of(unit), crate::folder::random()?);
    Ok(manifest.read()?.is_some())
}

impl<A: Attachment + Sync> BucketUnit<A> {
    /// Takes the unit over, and recovers. `cache`: the disk and the number of bytes for what is read of it. Waits for
    /// the bucket: seconds, or as long as its deadline.
    pub fn open(
        bucket: &Bucket,
        prefix: &Prefix,
        unit: Which,
        (disk, cache_bytes): (&dyn Disk, u64),
        config: &Config,
    ) -> anyhow::Result<Self> {
        // A bucket that has lost the prefix is asked before this owner writes to it: the unit would be made anew there.
        anyhow::ensure!(prefix.is_there(bucket)?, GONE);
        let (name, in_bucket) = (unit.name(), prefix.name_of(unit));
        let objects: Arc<ObjectStorage> = Arc::new(ObjectStorage::new(bucket.clone(), &in_bucket));
        let options = CacheOptions::new(prefix.store_id(unit), cache_bytes);
        let cache = Arc::new(CachedStorage::open(objects, disk, &format!("cache-{name}"), options)?);
        let manifest = Arc::new(ObjectManifest::new(bucket.clone(), &in_bucket, crate::folder::random()?));
        let ids_from = ids_from(unit, crate::background::now().0 / 1000, crate::folder::random()?);
        let (durability, id_reserve) = (Durability::Durable, ID_RESERVE);
        let mut logs = LogsOptions { durability, ids_from, id_reserve, ..kernel::logs_options(config) };
        if unit == Which::Shapes {
            logs.chunk_bytes = kernel::DERIVED_CHUNK_BYTES;
        }
        let journal = Options {
            commit_interval: config.commit_interval.0,
            window_bytes: config.window_bytes.0.min(kernel::DERIVED_WINDOW_BYTES as u64) as usize,
            ..kernel::journal_options(config)?
        };
        let options = OwnerOptions { logs, journal, sink: SinkOptions::default() };
        let storage = Arc::clone(&cache) as _;
        let taken =
            take_over((bucket, &in_bucket), storage, Arc::clone(&manifest) as _, options, |journal| journal as _)?;
        let TakenOver { journal, logs, epoch } = taken;
        tracing::info!(unit = in_bucket, epoch, logs = logs.len(), end = %journal.opened().end, "took over a unit of the bucket");
        journal.start_writer_on(&kernel::writers().context("cannot start the journals' writers")?);
        Ok(Self { name: name.into(), journal, logs, cache, manifest, epoch })
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

    /// Whether the unit accepts nothing any more: a later owner has it, or its journal has stopped.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.journal.poisoned().is_some() || self.logs.is_deposed()
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
        let text = "thalweg units 2\nid 000000000000000100000000000000ff\nunits 16\nowners nodes\nsecret SECRET\n";
        let secret = "5ec4e700".repeat(8);
        let text = &text.replace("SECRET", &secret);
        let prefix = Prefix::parse(text).unwrap();
        assert_eq!((prefix.units, prefix.id[7], prefix.id[15]), (16, 1, 255));
        assert_eq!((prefix.is_of_nodes, prefix.secret()), (true, &*secret));
        assert_eq!(prefix.name_of(Which::Streams(7)), "u07-00000000");
        let earlier = Prefix::parse(&text.replace("units 2", "units 1")).unwrap();
        assert_eq!(earlier.name_of(Which::Streams(7)), "u07");
        for (text, why) in [
            ("", "none of thalweg's"),
            ("thalweg units 3\n", "a newer thalweg"),
            ("thalweg units 1\nid x\nunits 1\n", "id is no number"),
            ("thalweg units 1\nid 1\n", "lacks `units`"),
            ("thalweg units 1\nid 1\nunits 0\n", "no 0 units"),
            ("thalweg units 1\nid 1\nunits 251\n", "no 251 units"),
            ("thalweg units 1\nid 1\nunits 1\nowners me\n", "owners `me`"),
            ("thalweg units 1\nid 1\nunits 1\nowners nodes\n", "lacks `secret`"),
            ("thalweg units 1\nid 1\nunits 1\nowners nodes\nsecret \n", "64 hexadecimal digits"),
            (&text[..text.len() - 2], "64 hexadecimal digits"),
        ] {
            let error = Prefix::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn ids_of_all_units_have_sixteen_digits() {
        let last = (IDS_FROM + (Which::Shapes.range() + 1) * IDS_PER_UNIT) << 6 | 63;
        assert!(last < 10_u64.pow(16), "{last}");
        let at = |second| ids_from(Which::Streams(3), IDS_SINCE + second, 5);
        let (today, later) = (at(1_000), at(2_000));
        assert!(IDS_FROM + 3 * IDS_PER_UNIT < today && today < later && later < IDS_FROM + 4 * IDS_PER_UNIT);
    }

    #[test]
    fn the_unit_of_shapes_shares_no_name_and_no_id_with_those_of_streams() {
        let last = Which::Streams(UNITS_MAX - 1);
        assert!(last.range() < Which::Shapes.range() && last.name() != Which::Shapes.name());
        assert!(Which::Shapes.range() <= u64::from(u8::MAX), "caches tell units apart by one byte");
    }
}
