//! What a prefix holds, from a listing of it, the roots, and the journals' ends.

use super::owners::{NodeSeen, OwnerSeen, Watch, owner_of};
use super::{TRIES, for_each, units_of};
use crate::bucket_unit::Prefix;
use crate::mirror::{self, Held};
use anyhow::Context as _;
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use thalweg_journal::{Bounds, TakeOverError, read_through};
use thalweg_log::{Tally, decode_root, objects_of_root};
use thalweg_manifest::Manifest;
use thalweg_object::{
    Bucket, BucketOptions, Kind, Listed, Location, ObjectManifest, ObjectSink, ObjectStorage, SinkOptions, Usage,
};
use thalweg_storage::Storage;

/// Keys per request of a listing, as S3 gives them.
const KEYS_PER_PAGE: u64 = 1_000;

/// Everything below a prefix.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// The mirror of a data folder; its lineage is empty if there is none.
    pub folder: Held,
    /// Whether the prefix belongs to nodes, and how many units it was made with; `None`: it has no units yet.
    pub made_for: Option<(bool, u64)>,
    /// The nodes that have announced themselves.
    pub nodes: Vec<NodeSeen>,
    /// All units whose authority is the bucket.
    pub units: Vec<UnitHeld>,
    /// Everything below the prefix, by the first part of the key.
    pub usage: BTreeMap<String, Usage>,
    /// Requests that one listing of all of it takes.
    pub list_pages: u64,
    /// Requests that were sent to learn all this, by kind, but for listings.
    pub requests: Vec<(&'static str, u64)>,
}

/// A unit whose authority is the bucket.
#[derive(Clone, Debug, Default)]
pub struct UnitHeld {
    pub name: String,
    /// The epoch of the root; `None`: the unit has objects or a journal, and no root.
    pub epoch: Option<u64>,
    /// The owner of this epoch, if it has announced itself.
    pub owner: Option<OwnerSeen>,
    /// When the root was written last, by the bucket's clock, in milliseconds since 1970.
    pub root_written_ms: Option<i64>,
    /// Streams, or other logs.
    pub logs: u64,
    /// What the journal has behind the root.
    pub journal: Journaled,
    /// Objects of the bucket that belong to the journal, fences and what is void included.
    pub journal_usage: Usage,
    /// Objects that the root names.
    pub objects: Usage,
    /// Objects that it does not name.
    pub orphans: Orphans,
    /// Why some of this is not known.
    pub problem: Option<String>,
}

/// The end of a journal, which a take-over replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journaled {
    /// Frames.
    pub records: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

/// Objects that no root names: of an owner that died, or for the next root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    pub usage: Usage,
    /// When the oldest was written, by the bucket's clock, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
}

/// Looks at everything below a prefix. Lists it, and reads roots, lists of objects, directories of logs, and the end of
/// each journal.
pub fn look(location: &Location) -> anyhow::Result<Holdings> {
    let bucket = Bucket::open(location, BucketOptions::default())?;
    bucket.check()?;
    let listed = bucket.objects("")?;
    let watch = Watch::begin(&bucket, &listed)?;
    let mut holdings = Holdings {
        made_for: Prefix::find(&bucket)?.map(|prefix| (prefix.is_of_nodes(), prefix.units)),
        usage: usage_of(&listed),
        list_pages: (listed.len() as u64).div_ceil(KEYS_PER_PAGE).max(1),
        folder: mirror::look(&bucket)?,
        ..Holdings::default()
    };
    holdings.units = for_each(&units_of(&listed), |unit| held(&bucket, unit, &listed));
    holdings.nodes = watch.end(&bucket, &listed)?;
    let units = holdings.made_for.map_or(0, |(_, units)| units);
    for unit in &mut holdings.units {
        unit.owner = owner_of(&holdings.nodes, &unit.name, units, unit.epoch.unwrap_or_default());
    }
    let sent = Kind::ALL.into_iter().map(|kind| (kind.name(), bucket.stats(kind).requests));
    holdings.requests = sent.filter(|(kind, sent)| *kind != "list" && *sent > 0).collect();
    Ok(holdings)
}

fn usage_of(listed: &[Listed]) -> BTreeMap<String, Usage> {
    let mut usage = BTreeMap::new();
    for listed in listed {
        let part = listed.key.split('/').next().unwrap_or_default();
        add(usage.entry(part.to_owned()).or_default(), listed.bytes);
    }
    usage
}

fn add(usage: &mut Usage, bytes: u64) {
    usage.objects += 1;
    usage.bytes += bytes;
}

/// What there is of a unit. What cannot be read is said in its words.
fn held(bucket: &Bucket, name: &str, listed: &[Listed]) -> UnitHeld {
    let mut unit = UnitHeld { name: name.to_owned(), ..UnitHeld::default() };
    let (root, journal) = (format!("m/{name}"), format!("j/{name}/"));
    for listed in listed {
        if listed.key == root {
            unit.root_written_ms = Some(listed.modified_ms);
        } else if listed.key.starts_with(&journal) {
            add(&mut unit.journal_usage, listed.bytes);
        }
    }
    if let Err(error) = look_inside(bucket, &mut unit, listed) {
        unit.problem = Some(format!("{error:#}"));
    }
    unit
}

fn look_inside(bucket: &Bucket, unit: &mut UnitHeld, listed: &[Listed]) -> anyhow::Result<()> {
    let manifest = ObjectManifest::new(bucket.clone(), &unit.name, 0);
    let storage: Arc<dyn Storage> = Arc::new(ObjectStorage::new(bucket.clone(), &unit.name));
    let mut found = manifest.read()?;
    for is_last in (1..=TRIES).map(|n| n == TRIES) {
        let Some(root) = found else {
            // What is there of a unit without a root belongs to nobody.
            count_objects(unit, &[], listed);
            return Ok(());
        };
        unit.epoch = Some(root.epoch);
        let looked = look_at(bucket, unit, &root.body, &storage);
        // An owner that lives may have replaced the root, and removed what only this one named.
        found = if looked.is_err() && !is_last { manifest.read()? } else { None };
        match looked {
            Ok(named) => {
                count_objects(unit, &named, listed);
                return Ok(());
            }
            Err(error) if is_last || found.as_ref().is_some_and(|now| now.version == root.version) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// The objects that the root names.
fn look_at(
    bucket: &Bucket,
    unit: &mut UnitHeld,
    body: &[u8],
    storage: &Arc<dyn Storage>,
) -> anyhow::Result<Vec<(thalweg_base::ObjectId, u64)>> {
    let named = objects_of_root(body, storage)?;
    let mut tally = Tally::of_root(body, storage)?;
    let bounds = if body.is_empty() { Bounds::default() } else { decode_root(body)?.bounds() };
    let sink = ObjectSink::new(bucket.clone(), &unit.name, SinkOptions::default());
    sink.see()?;
    let mut journal = Journaled::default();
    let mut problem = None;
    let read = read_through(&sink, bounds, &mut |_, frame| {
        journal.records += 1;
        journal.bytes += frame.len() as u64;
        problem = problem.take().or(tally.take(&frame).err());
        Ok::<_, Infallible>(())
    });
    match read {
        Ok(_) => {}
        Err(TakeOverError::Replay { error, .. }) => match error {},
        Err(error) => return Err(error).context("the journal"),
    }
    if let Some(problem) = problem {
        anyhow::bail!("a frame of the journal: {problem}");
    }
    (unit.logs, unit.journal) = (tally.logs(), journal);
    Ok(named)
}

fn count_objects(unit: &mut UnitHeld, named: &[(thalweg_base::ObjectId, u64)], listed: &[Listed]) {
    named.iter().for_each(|(_, bytes)| add(&mut unit.objects, *bytes));
    let named: HashSet<String> = named.iter().map(|(object, _)| format!("{:016x}", object.0)).collect();
    let folder = format!("d/{}/", unit.name);
    for listed in listed {
        if listed.key.strip_prefix(&folder).is_none_or(|object| named.contains(object)) {
            continue;
        }
        add(&mut unit.orphans.usage, listed.bytes);
        let oldest = unit.orphans.oldest_ms.map_or(listed.modified_ms, |oldest| oldest.min(listed.modified_ms));
        unit.orphans.oldest_ms = Some(oldest);
    }
}
