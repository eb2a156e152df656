//! What is sealed: the section of the root in force, the edits that replace it, and the reader of its objects.

use crate::logs::LogsOptions;
use crate::root::Root;
use crate::run::RunReader;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_manifest::ManifestError;
use thalweg_storage::Storage;
use thalweg_unit::{Claim, Index, Unit};

pub(crate) struct Sealed {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) reader: RunReader,
    index: Index<Root>,
}

impl Sealed {
    /// Puts the first root in force. The first edit commits it.
    pub(crate) fn new(options: &LogsOptions, unit: Arc<Unit>, root: Root) -> Self {
        let storage = Arc::clone(unit.storage());
        let reader = RunReader::new(Arc::clone(&storage), options.index_cache_bytes);
        Self { storage, reader, index: Index::new(unit, root) }
    }

    pub(crate) fn unit(&self) -> &Arc<Unit> {
        self.index.unit()
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        self.index.section()
    }

    /// Makes one edit with objects that were `made` for it: see [`Index::edit`].
    pub(crate) fn edit(&self, made: Vec<ObjectId>, change: impl FnOnce(&mut Root)) -> Result<(), ManifestError> {
        self.edit_claim(made, |root, _| change(root))
    }

    /// Like [`Sealed::edit`], and changes how far the journal is known to be durable.
    pub(crate) fn edit_claim(
        &self,
        made: Vec<ObjectId>,
        change: impl FnOnce(&mut Root, &mut Claim),
    ) -> Result<(), ManifestError> {
        let dropped = self.index.edit(made, change)?;
        dropped.0.iter().for_each(|object| self.reader.forget(*object));
        self.unit().discard(&dropped);
        Ok(())
    }
}
