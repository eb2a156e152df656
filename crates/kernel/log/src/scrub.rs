//! The scrub: reads all that a unit has stored, a step at a time, and notes damage.
//!
//! One pass reads the manifest, then every object that its root named when the pass began and that still exists, then
//! the journal up to the position that was synced. Cold objects are passed over: reading them costs requests. Lists of objects are in memory, so a damaged list object is written
//! once more. The next pass of reclaiming counts each object that was read from its index, so that the ledger of live
//! bytes is compared with the indexes once a pass. The scrub reads past the caches of readers, and holds no lock while
//! it waits for the device. A step reads about a megabyte; the caller paces the steps.

use crate::attachment::Attachment;
use crate::damage::{GONE, Place, place_of_directory_error, place_of_run_error};
use crate::device::Device;
use crate::directory::{DirectoryError, DirectoryReader};
use crate::lists::{Page, verify_page};
use crate::logs::Logs;
use crate::root::Root;
use crate::run::{Inspection, ObjectMeta, RunError};
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_manifest::ManifestError;
use thalweg_storage::{Storage, StorageError};
use thiserror::Error;

/// Something could not be read, for a reason other than damage. It may be whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} could not be checked: {cause}")]
pub struct Unchecked {
    /// The file or object.
    pub what: String,
    /// The device's error.
    pub cause: String,
}

/// How far a pass is. The default is its beginning.
#[derive(Default)]
pub struct Scrub {
    /// `None` until the manifest was read.
    objects: Option<VecDeque<ToRead>>,
    walk: Option<Walk>,
    journal: thalweg_journal::Inspection,
    journal_ended: bool,
}

enum ToRead {
    List(Page),
    Run(ObjectMeta),
    Directory(ObjectId),
}

impl ToRead {
    fn object(&self) -> ObjectId {
        match self {
            Self::List(page) => page.id,
            Self::Run(meta) => meta.id,
            Self::Directory(id) => *id,
        }
    }
}

enum Walk {
    Run(Inspection),
    Directory(DirectoryReader),
}

impl Walk {
    fn object(&self) -> ObjectId {
        match self {
            Self::Run(inspection) => inspection.object(),
            Self::Directory(reader) => reader.object(),
        }
    }
}

impl<A: Attachment> Logs<A> {
    /// How many bytes a pass would read now, about.
    pub fn scrub_bytes(&self) -> u64 {
        let stats = self.stats();
        stats.object_bytes + self.journal.end().since(self.journal.oldest())
    }

    /// The next step of a pass: how many bytes it has read, `None` at the end. Waits for the device. After an error the
    /// pass continues behind the damage.
    pub fn scrub(&self, scrub: &mut Scrub) -> Result<Option<u64>, Unchecked> {
        let Some(objects) = &mut scrub.objects else {
            self.damage.doubt_all();
            let root = self.sealed.root();
            let lists = root.runs.iter().flat_map(|run| &run.pages).map(|page| ToRead::List(page.clone()));
            let runs = root.runs.iter().flat_map(|run| &run.objects).map(|object| ToRead::Run(object.meta));
            let directory = root.directory.iter().map(|object| ToRead::Directory(object.id));
            scrub.objects = Some(lists.chain(runs).chain(directory).collect());
            return self.scrub_manifest().map(Some);
        };
        if let Some(walk) = &mut scrub.walk {
            let step = self.step(walk);
            if step == Ok(None) {
                let read = walk.object();
                self.damage.forget_doubted(|place| place.object() == Some(read));
                self.ledger.doubt(read);
            }
            if !matches!(step, Ok(Some(_))) {
                scrub.walk = None;
            }
            return step.map(|read| Some(read.unwrap_or(0)));
        }
        if let Some(next) = objects.pop_front() {
            if self.sealed.storage.is_cold(next.object()) {
                // What is known of the local file says nothing of the copy, which the remote storage looks after.
                self.damage.forget_doubted(|place| place.object() == Some(next.object()));
                return Ok(Some(0));
            }
            if let ToRead::List(page) = &next {
                return self.scrub_list(page).map(Some);
            }
            scrub.walk = self.open_walk(&next)?;
            return Ok(Some(0));
        }
        self.scrub_journal(scrub)
    }

    fn scrub_manifest(&self) -> Result<u64, Unchecked> {
        match self.sealed.unit().read_manifest() {
            Ok(Some(root)) => {
                match Root::of_body(&root.body) {
                    Ok(_) => self.damage.forget_doubted(|place| *place == Place::Manifest),
                    Err(error) => self.note_found(Place::Manifest, &error.to_string()),
                }
                Ok(root.body.len() as u64)
            }
            Ok(None) => {
                self.note_found(Place::Manifest, GONE);
                Ok(0)
            }
            Err(error @ (ManifestError::Corrupt(_) | ManifestError::Newer { .. })) => {
                self.note_found(Place::Manifest, &error.to_string());
                self.sealed.unit().mend_manifest();
                Ok(0)
            }
            Err(error) => Err(Unchecked { what: "the manifest".into(), cause: error.to_string() }),
        }
    }

    /// Reads a list object. If it is damaged, one edit writes its list once more, in a new object.
    fn scrub_list(&self, page: &Page) -> Result<u64, Unchecked> {
        let place = Place::List { object: page.id };
        let error = match verify_page(&self.device(), page) {
            Ok(read) => {
                self.damage.forget_doubted(|doubted| *doubted == place);
                return Ok(read);
            }
            Err(error) => error,
        };
        let unchecked = |cause: String| Unchecked { what: format!("the list of objects {}", page.id), cause };
        match (&error, place_of_run_error(&error)) {
            (RunError::Storage(StorageError::Missing(_)), _) => self.note_missing(place, page.id),
            (_, Some((_, what))) => self.note_found(place, &what),
            _ => return Err(unchecked(error.to_string())),
        }
        self.sealed.relist(page.id).map_err(|error| unchecked(format!("it is damaged, and is not mended: {error}")))?;
        self.damage.forget(place);
        Ok(page.bytes)
    }

    fn device(&self) -> Arc<dyn Storage> {
        Arc::new(Device(Arc::clone(&self.sealed.storage)))
    }

    fn open_walk(&self, object: &ToRead) -> Result<Option<Walk>, Unchecked> {
        match object {
            ToRead::Run(meta) => {
                let opened = Inspection::open(&self.device(), meta).map(Walk::Run);
                self.run_error(meta.id, opened.map(Some))
            }
            ToRead::List(_) => Ok(None),
            ToRead::Directory(id) => {
                let opened = DirectoryReader::open(&self.device(), *id).map(Walk::Directory);
                self.directory_error(*id, opened.map(Some))
            }
        }
    }

    fn step(&self, walk: &mut Walk) -> Result<Option<u64>, Unchecked> {
        match walk {
            Walk::Run(inspection) => {
                let mut found = Vec::new();
                let step = inspection.step(&mut found);
                for error in found {
                    let _ = self.run_error::<()>(inspection.object(), Err(error));
                }
                self.run_error(inspection.object(), step)
            }
            Walk::Directory(reader) => {
                let step = reader.check_block();
                self.directory_error(reader.object(), step)
            }
        }
    }

    fn run_error<T>(&self, id: ObjectId, result: Result<Option<T>, RunError>) -> Result<Option<T>, Unchecked> {
        result.or_else(|error| {
            let is_missing = error == RunError::Storage(StorageError::Missing(id));
            let unchecked = || Unchecked { what: format!("object {id}"), cause: error.to_string() };
            self.note_error(Place::Object { object: id, at: 0 }, is_missing, place_of_run_error(&error), unchecked)
        })
    }

    fn directory_error<T>(
        &self,
        id: ObjectId,
        result: Result<Option<T>, DirectoryError>,
    ) -> Result<Option<T>, Unchecked> {
        result.or_else(|error| {
            let is_missing = error == DirectoryError::Storage(StorageError::Missing(id));
            let unchecked = || Unchecked { what: format!("directory object {id}"), cause: error.to_string() };
            let place = Place::Directory { object: id, at: 0 };
            self.note_error(place, is_missing, place_of_directory_error(&error), unchecked)
        })
    }

    /// Notes the damage that an error tells of: at `found`, or of the whole object if it `is_missing` and an edit has
    /// not dropped it.
    fn note_error<T>(
        &self,
        whole: Place,
        is_missing: bool,
        found: Option<(Place, String)>,
        unchecked: impl FnOnce() -> Unchecked,
    ) -> Result<Option<T>, Unchecked> {
        match (found, whole.object()) {
            (_, Some(id)) if is_missing => self.note_missing(whole, id),
            (Some((place, what)), _) => self.note_found(place, &what),
            (None, _) => return Err(unchecked()),
        }
        Ok(None)
    }

    /// Notes that an object is gone, if the root in force names it: else an edit has dropped it.
    fn note_missing(&self, place: Place, id: ObjectId) {
        if self.names(id) {
            self.note_found(place, GONE);
        }
    }

    fn scrub_journal(&self, scrub: &mut Scrub) -> Result<Option<u64>, Unchecked> {
        if scrub.journal_ended {
            return Ok(None);
        }
        match self.journal.inspect(&mut scrub.journal) {
            Ok(Some(inspected)) => {
                for damage in inspected.damage {
                    let place = Place::Journal { at: damage.range.start, end: damage.range.end };
                    self.note_found(place, &damage.what);
                }
                Ok(Some(inspected.bytes))
            }
            Ok(None) => {
                self.damage.forget_doubted(|place| matches!(place, Place::Journal { .. }));
                Ok(None)
            }
            Err(error) => {
                scrub.journal_ended = true;
                Err(Unchecked { what: "the rest of the journal".into(), cause: error.to_string() })
            }
        }
    }
}
