//! What a bucket holds of a folder: for people, and checked byte by byte.

use super::beacon::{self, Owner};
use super::{UNIT, fill};
use crate::folder::random;
use anyhow::Context as _;
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::{Disk, RealDisk};
use thalweg_log::{Checked, Damage, objects_of_root};
use thalweg_manifest::{Manifest, MemoryManifest};
use thalweg_object::{Beacon, Bucket, BucketOptions, Location, Mirror, Mirrored};
use thalweg_storage::Storage;

/// How often to look at a mirror whose root changes meanwhile.
const TRIES: u32 = 5;

/// What a bucket holds of a folder.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The lineage of the folder; empty if the bucket holds nothing.
    pub lineage: String,
    /// The folder was closed with everything in the bucket.
    pub is_closed: bool,
    /// The server that shows that it lives, or showed it last.
    pub owner: Option<String>,
    /// The journal's end; zero if nothing is whole yet.
    pub end: Lsn,
    /// Objects that the root names, the end of the journal included.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that no root names: leftovers, or copies for the next root.
    pub unnamed: u64,
    /// Their bytes.
    pub unnamed_bytes: u64,
}

/// Looks at what the bucket holds. Lists the objects of the mirror, and reads no contents but those of lists.
pub fn look(bucket: &Bucket) -> anyhow::Result<Held> {
    let mirror = Mirror::new(bucket.clone(), UNIT, random()?);
    let mut held = Held::default();
    let owner = Beacon::new(bucket.clone(), beacon::KEY).look()?;
    held.owner = owner.and_then(|seen| serde_json::from_slice::<Owner>(&seen.text).ok()).map(|owner| owner.described());
    let storage: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
    let mut tries = 0;
    let (tail, mut named) = loop {
        let Some((_, Some(mirrored))) = mirror.read()? else { return Ok(held) };
        (held.lineage, held.is_closed) = (mirrored.lineage, mirrored.is_closed);
        let Some(tail) = mirrored.tail else { return Ok(held) };
        tries += 1;
        match objects_of_root(&mirrored.root, &storage) {
            Ok(named) => break (tail, named),
            // A server that lives may have replaced the root, and removed its lists.
            Err(_) if tries < TRIES => {}
            Err(error) => return Err(error).context("the root in the bucket"),
        }
    };
    named.push((tail.object, tail.bytes));
    held.end = tail.end;
    held.objects = named.len() as u64;
    held.bytes = named.iter().map(|(_, bytes)| bytes).sum();
    let named: HashSet<_> = named.into_iter().map(|(object, _)| object).collect();
    for (object, bytes) in mirror.objects().list_with_bytes()? {
        if !named.contains(&object) {
            held.unnamed += 1;
            held.unnamed_bytes += bytes;
        }
    }
    Ok(held)
}

/// What a check has found.
#[derive(Debug, Default)]
pub struct Verified {
    /// How much was read.
    pub checked: Checked,
    /// Everything that is damaged.
    pub damage: Vec<Damage>,
    /// Why a folder could not be made of the journal's end.
    pub journal: Option<String>,
    /// Frames of the journal's end.
    pub frames: u64,
}

/// Reads everything that the bucket holds of a folder, contents included. The journal's end is unpacked below the
/// system's folder for temporary files. `None`: the bucket holds nothing whole.
///
/// A server that lives removes what its new root does not name: if the root has changed meanwhile, damage is looked for
/// once more.
pub fn verify(location: &Location, progress: &mut dyn FnMut(&Checked)) -> anyhow::Result<Option<Verified>> {
    let bucket = Bucket::open(location, BucketOptions::default())?;
    bucket.check()?;
    let mirror = Mirror::new(bucket, UNIT, random()?);
    let read = || anyhow::Ok(mirror.read()?.and_then(|(_, mirrored)| mirrored));
    let mut found = read()?;
    for is_last in (1..=TRIES).map(|n| n == TRIES) {
        let Some(mirrored) = found.filter(|mirrored| !mirrored.root.is_empty()) else { return Ok(None) };
        let verified = verify_root(&mirror, &mirrored, progress);
        let is_whole = verified.as_ref().is_ok_and(|verified| verified.damage.is_empty() && verified.journal.is_none());
        found = read()?;
        if is_whole || is_last || found.as_ref() == Some(&mirrored) {
            return verified.map(Some);
        }
    }
    Ok(None)
}

fn verify_root(mirror: &Mirror, mirrored: &Mirrored, progress: &mut dyn FnMut(&Checked)) -> anyhow::Result<Verified> {
    let manifest = MemoryManifest::new();
    let owner = manifest.acquire(0)?;
    manifest.commit(owner.epoch, owner.version, &mirrored.root)?;
    let storage: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
    let (checked, damage) =
        thalweg_log::find_damage(&storage, &manifest, progress).context("the root in the bucket")?;
    let unpacked = std::env::temp_dir().join(format!("thalweg-check-{:016x}", random()?));
    std::fs::create_dir(&unpacked)?;
    let report = (|| {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&unpacked)?);
        fill::copy(&disk, mirror, mirrored, random()?)?;
        anyhow::Ok(thalweg_journal::verify(&*disk, checked.journal.unwrap_or_default()))
    })();
    std::fs::remove_dir_all(&unpacked)?;
    let (journal, frames) = match report {
        Ok(report) => (report.problem, report.frames),
        Err(error) => (Some(format!("{error:#}")), 0),
    };
    Ok(Verified { checked, damage, journal, frames })
}
