//! The shapes that requests can find, and the values that new shapes share with them.
//!
//! Event loops ask the catalog: its locks are held for lookups and copies only.

use crate::clause_templates::Templates;
use crate::costly::Costly;
use crate::registry::Registry;
use crate::shape::Shape;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_shapes_model::columns::selected;
use thalweg_shapes_model::family::Families;
use thalweg_shapes_model::id_allocator::IdAllocator;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;

#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) registry: RwLock<Registry>,
    pub(crate) families: Families,
    pub(crate) ids: IdAllocator,
    /// Definitions that are refused for a while.
    pub(crate) costly: Costly,
    /// Where clauses that Postgres has read.
    pub(crate) templates: Templates,
    /// Tables, by their oids, whose description has changed since their shapes were made: other columns may be null.
    redescribed: RwLock<HashMap<u32, Arc<Table>>>,
    last_snapshot: Mutex<Option<Arc<PgSnapshot>>>,
}

impl Catalog {
    /// A snapshot for keeping: equal snapshots that follow each other share one allocation.
    pub(crate) fn shared_snapshot(&self, snapshot: &PgSnapshot) -> Arc<PgSnapshot> {
        let mut last = self.last_snapshot.lock();
        match &*last {
            Some(known) if **known == *snapshot => Arc::clone(known),
            _ => Arc::clone(last.insert(Arc::new(snapshot.clone()))),
        }
    }

    /// Takes note of the router's new description of a table.
    pub(crate) fn described(&self, table: Arc<Table>) {
        self.redescribed.write().insert(table.oid, table);
    }

    /// Forgets the new description of a table: its last shape is gone, and the next one is made of the table as it is
    /// then.
    pub(crate) fn forget_description(&self, table: u32) {
        self.redescribed.write().remove(&table);
    }

    /// A shape's `electric-schema` header as it is now. The router knows it too, but its lock may be held for long, and
    /// event loops ask.
    pub(crate) fn schema<'a>(&self, shape: &'a Shape) -> Cow<'a, str> {
        let known = Cow::Borrowed(&*shape.family.schema);
        let Some(table) = self.redescribed.read().get(&shape.family.table).cloned() else { return known };
        // Whether changes of generated columns come was decided when the shape was made.
        match selected(&table, &shape.definition(), true) {
            Ok(selected) => Cow::Owned(thalweg_shapes_core::encode::schema::header(&table, &selected)),
            Err(_) => known,
        }
    }

    /// Another history begins, in which snapshots and oids have other meanings. The caller has dropped the shapes.
    pub(crate) fn forget_source(&self) {
        *self.last_snapshot.lock() = None;
        self.redescribed.write().clear();
        self.templates.forget();
    }
}
