//! Reading everything that is sealed: for `thalweg check` and the scrub.

use crate::damage::{Damage, DamagedLog, Place, place_of_directory_error, place_of_run_error};
use crate::directory;
use crate::log::Head;
use crate::root::Root;
use crate::run::{self, Inspection, Key, ObjectMeta, RunError};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{Decoder, ObjectId, Offset};
use thalweg_journal::Bounds;
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_storage::Storage;
use thiserror::Error;

/// Why a unit of logs is not whole.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The root's bytes cannot be decoded.
    #[error("the manifest's body is damaged: {0}")]
    Root(thalweg_base::DecodeError),
    /// An object of a run is damaged.
    #[error(transparent)]
    Run(#[from] run::RunError),
    /// An object's content differs from its entry in the root.
    #[error("object {object} is whole, but it is another than the manifest describes: a file was replaced")]
    Other { object: ObjectId },
    /// A directory object is damaged.
    #[error("the directory of logs: {0}")]
    Directory(#[from] directory::DirectoryError),
}

/// How much a check has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Runs of the root.
    pub runs: u64,
    /// Objects of these runs.
    pub objects: u64,
    /// Bytes of all objects read.
    pub bytes: u64,
    /// Records of logs in directory objects, superseded ones included.
    pub records: u64,
    /// The range that the journal must hold; `None` if there is no manifest yet.
    pub journal: Option<Bounds>,
}

impl Checked {
    /// The list objects that were read.
    fn add_lists(&mut self, root: &Root) {
        for page in root.runs.iter().flat_map(|run| &run.pages) {
            self.objects += 1;
            self.bytes += page.bytes;
        }
    }
}

/// Reads the manifest and every object that it names, contents included; fails with the first thing that is wrong.
/// `progress` is told of each object.
pub fn check(
    storage: &Arc<dyn Storage>,
    manifest: &dyn Manifest,
    progress: &mut dyn FnMut(&Checked),
) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    let Some((unit, mut root)) = Root::read(manifest)? else { return Ok(checked) };
    checked.journal = Some(unit.bounds());
    checked.runs = root.runs.len() as u64;
    root.read_lists(storage)?;
    checked.add_lists(&root);
    for object in root.runs.iter().flat_map(|run| &run.objects) {
        if run::verify(storage, object.meta.id)? != object.meta {
            return Err(CheckError::Other { object: object.meta.id });
        }
        checked.objects += 1;
        checked.bytes += object.meta.bytes();
        progress(&checked);
    }
    for object in &root.directory {
        let meta = directory::verify(storage, object.id)?;
        if meta.bytes != object.bytes {
            return Err(CheckError::Other { object: object.id });
        }
        checked.objects += 1;
        checked.bytes += object.bytes;
        checked.records += object.records;
        progress(&checked);
    }
    Ok(checked)
}

/// Reads the same bytes as [`check`], continues behind damage, and lists every damaged place, with the names of its
/// logs from the directory.
pub fn find_damage(
    storage: &Arc<dyn Storage>,
    manifest: &dyn Manifest,
    progress: &mut dyn FnMut(&Checked),
) -> Result<(Checked, Vec<Damage>), CheckError> {
    let body = manifest.read()?.unwrap_or_default().body;
    find_damage_beyond(&mut HashSet::new(), storage, &body, progress)
}

/// Like [`find_damage`], for the root in `body`. Passes over the contents of objects in `whole`, which were read before,
/// and adds those that are: objects never change, and another root of the same unit may name them too.
pub fn find_damage_beyond(
    whole: &mut HashSet<ObjectId>,
    storage: &Arc<dyn Storage>,
    body: &[u8],
    progress: &mut dyn FnMut(&Checked),
) -> Result<(Checked, Vec<Damage>), CheckError> {
    let mut checked = Checked::default();
    let Some((unit, mut root)) = Root::of_body(body).map_err(CheckError::Root)? else {
        return Ok((checked, Vec::new()));
    };
    checked.journal = Some(unit.bounds());
    checked.runs = root.runs.len() as u64;
    let lists = root.read_lists_behind_damage(storage)?.into_iter();
    let in_list = |(object, error): (ObjectId, RunError)| Damage::of(Place::List { object }, error.to_string());
    let mut damages: Vec<Damage> = lists.map(in_list).collect();
    checked.add_lists(&root);
    for object in root.runs.iter().flat_map(|run| &run.objects) {
        if !whole.contains(&object.meta.id) {
            let errors = damage_of_run_object(storage, &object.meta)?;
            if errors.is_empty() {
                whole.insert(object.meta.id);
            }
            for error in errors {
                damages.extend(damage_of(place_of_run_error(&error), &error, object.meta.id, |object, at| {
                    Place::Object { object, at }
                }));
            }
        }
        checked.objects += 1;
        checked.bytes += object.meta.bytes();
        progress(&checked);
    }
    for object in &root.directory {
        if !whole.contains(&object.id) {
            match directory::verify(storage, object.id) {
                Ok(_) => {
                    whole.insert(object.id);
                }
                Err(error) => {
                    let place = place_of_directory_error(&error);
                    damages.extend(damage_of(place, &error, object.id, |object, at| Place::Directory { object, at }));
                }
            }
        }
        checked.objects += 1;
        checked.bytes += object.bytes;
        checked.records += object.records;
        progress(&checked);
    }
    name_logs(storage, &root, &mut damages);
    Ok((checked, damages))
}

/// Errors that are no damage end the check.
fn damage_of_run_object(storage: &Arc<dyn Storage>, meta: &ObjectMeta) -> Result<Vec<RunError>, CheckError> {
    let whole = match run::verify(storage, meta.id) {
        Ok(found) if found == *meta => return Ok(Vec::new()),
        Ok(_) => RunError::corrupt(meta.id, 0, "it is whole, but not the object that the manifest names"),
        Err(error) => error,
    };
    let mut all = Vec::new();
    match Inspection::open(storage, meta) {
        Ok(mut inspection) => while inspection.step(&mut all)?.is_some() {},
        Err(error) => return Ok(vec![error]),
    }
    // Damage that no checksum shows.
    if all.is_empty() {
        all.push(whole);
    }
    Ok(all)
}

fn damage_of(
    place: Option<(Place, String)>,
    error: &dyn std::fmt::Display,
    object: ObjectId,
    of: impl Fn(ObjectId, u64) -> Place,
) -> Option<Damage> {
    let (place, what) = place.unwrap_or_else(|| (of(object, 0), error.to_string()));
    Some(Damage::of(place, what))
}

/// Logs of one damaged place that are named.
const NAMES_MAX: usize = 16;

/// Finds the logs of damaged places in the directory, newest records first.
fn name_logs(storage: &Arc<dyn Storage>, root: &Root, damages: &mut [Damage]) {
    let mut keys: Vec<(usize, Range<Key>)> = Vec::new();
    for (number, damage) in damages.iter_mut().enumerate() {
        let Place::Object { object, at } = damage.place else { continue };
        let metas = root.runs.iter().flat_map(|run| &run.objects);
        let Some(sealed) = metas.into_iter().find(|sealed| sealed.meta.id == object) else { continue };
        let (bytes, found) = run::keys_at(storage, &sealed.meta, at);
        damage.bytes = bytes;
        keys.extend(found.into_iter().map(|keys| (number, keys)));
    }
    let mut seen = HashSet::new();
    for object in root.directory.iter().rev() {
        // Damage of the directory object is listed already; the names of the logs behind it stay unknown.
        let _ = crate::checkpoint::read(storage, object, |log, record| {
            let mut wanted = keys.iter().filter(|(_, keys)| (keys.start.0..=keys.end.0).contains(&log)).peekable();
            if wanted.peek().is_none() || !seen.insert(log) {
                return;
            }
            let Some(Ok(head)) = record.map(|record| Head::decode(&mut Decoder::new(record))) else { return };
            for (number, keys) in wanted {
                let from = if log == keys.start.0 { keys.start.1 } else { Offset::ZERO };
                let to = if log == keys.end.0 { keys.end.1.min(head.settled) } else { head.settled };
                let is_live = to > head.start || from.0 < head.pinned.0;
                if from < to && is_live {
                    damages[*number].name(head.name, from..to);
                }
            }
        });
    }
}

impl Damage {
    fn name(&mut self, name: &str, range: Range<Offset>) {
        if let Some(log) = self.logs.iter_mut().find(|log| log.name == name) {
            (log.start, log.end) = (log.start.min(range.start), log.end.max(range.end));
        } else if self.logs.len() < NAMES_MAX {
            self.logs.push(DamagedLog { name: name.to_owned(), start: range.start, end: range.end });
        } else {
            self.more_logs += 1;
        }
    }
}
