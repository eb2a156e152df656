//! The sealed part of a unit's logs: the section of the root in force, the edits that replace it, and the reader of its
//! objects.

use crate::lists::{ListOptions, Packer};
use crate::logs::LogsOptions;
use crate::root::Root;
use crate::run::RunReader;
use std::sync::Arc;
use thalweg_base::{Lsn, ObjectId};
use thalweg_manifest::ManifestError;
use thalweg_storage::Storage;
use thalweg_unit::sync::Mutex;
use thalweg_unit::{Claim, Index, Unit};

pub(crate) struct Sealed {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) reader: RunReader,
    index: Index<Root>,
    lists: ListOptions,
    /// Held while an edit is made: list objects are written for the root that it commits.
    editing: Mutex<()>,
}

impl Sealed {
    /// Puts the first root in force. The first edit commits it.
    pub(crate) fn new(options: &LogsOptions, unit: Arc<Unit>, root: Root) -> Self {
        let storage = Arc::clone(unit.storage());
        let reader = RunReader::new(options.index_cache_bytes);
        Self { storage, reader, index: Index::new(unit, root), lists: options.lists, editing: Mutex::default() }
    }

    pub(crate) fn unit(&self) -> &Arc<Unit> {
        self.index.unit()
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        self.index.section()
    }

    /// No log holds a reference into the journal below `floor` any longer.
    pub(crate) fn release(&self, floor: Lsn) {
        self.index.release(floor);
    }

    /// Makes one edit with objects that were `made` for it: see [`Index::edit`]. Writes list objects first if the root
    /// would grow too large.
    pub(crate) fn edit(&self, made: Vec<ObjectId>, change: impl FnOnce(&mut Root)) -> Result<(), ManifestError> {
        self.edit_claim(made, change, |_| {})
    }

    /// Replaces a list object by a new one with the same list, if the root names it.
    pub(crate) fn relist(&self, page: ObjectId) -> Result<(), ManifestError> {
        if !self.root().runs.iter().any(|run| run.pages.iter().any(|listed| listed.id == page)) {
            return Ok(());
        }
        self.edit(Vec::new(), |root| root.runs.iter_mut().for_each(|run| run.pages.retain(|listed| listed.id != page)))
    }

    /// Like [`Sealed::edit`], and changes how far the journal is known to be durable.
    pub(crate) fn edit_claim(
        &self,
        mut made: Vec<ObjectId>,
        change: impl FnOnce(&mut Root),
        claimed: impl FnOnce(&mut Claim),
    ) -> Result<(), ManifestError> {
        let editing = self.editing.lock();
        let before = self.root();
        let mut after = Root::clone(&before);
        change(&mut after);
        after.assert_follows(&before);
        let new_object = &mut self.unit().object_ids();
        let mut packer = Packer { storage: &self.storage, options: self.lists, new_object, made: Vec::new() };
        packer.pack(&mut after);
        made.append(&mut packer.made);
        let dropped = self.index.edit(made, |root, claim| {
            *root = after;
            claimed(claim);
        })?;
        drop(editing);
        dropped.0.iter().for_each(|object| self.reader.forget(*object));
        self.unit().discard(&dropped);
        Ok(())
    }
}
