//! Families: the data that shapes share if they differ in their conditions alone. There may be a million such shapes,
//! of a few tables.

use crate::definition::{Condition, Definition, LogMode, Replica};
use crate::table::TableName;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// A definition without its condition, and the data derived from it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Family {
    /// The table's oid.
    pub table: u32,
    /// The table's name.
    pub name: TableName,
    /// See [`Definition::columns`].
    pub columns: Option<Vec<String>>,
    /// See [`Definition::queryable`].
    pub queryable: Option<Vec<String>>,
    /// See [`Definition::replica`].
    pub replica: Replica,
    /// See [`Definition::log`].
    pub log: LogMode,
    /// The `electric-schema` header.
    pub schema: Box<str>,
}

impl Family {
    /// The family of a definition, on the table of this oid, with this `electric-schema`.
    pub fn of(definition: &Definition, table: u32, schema: String) -> Self {
        Self {
            table,
            name: definition.table.clone(),
            columns: definition.columns.clone(),
            queryable: definition.queryable.clone(),
            replica: definition.replica,
            log: definition.log,
            schema: schema.into(),
        }
    }

    /// Whether a definition belongs to this family, provided that the table is unchanged.
    pub fn is_of(&self, definition: &Definition, table: u32) -> bool {
        self.table == table
            && self.name == definition.table
            && self.columns == definition.columns
            && self.queryable == definition.queryable
            && (self.replica, self.log) == (definition.replica, definition.log)
    }

    /// The definition of this family with a condition.
    pub fn with(&self, condition: &Condition) -> Definition {
        Definition {
            table: self.name.clone(),
            where_sql: condition.where_sql().map(str::to_owned),
            params: (1..).zip(condition.params().map(str::to_owned)).collect(),
            columns: self.columns.clone(),
            queryable: self.queryable.clone(),
            replica: self.replica,
            log: self.log,
        }
    }
}

/// The families of all shapes, interned.
#[derive(Default)]
pub struct Families(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    all: HashSet<Arc<Family>>,
    /// The number of families at which the next insertion removes the unused ones.
    sweep_at: usize,
}

const SWEEP_MIN: usize = 64;

impl Families {
    /// The interned family that equals `family`.
    pub fn share(&self, family: Family) -> Arc<Family> {
        let mut inner = self.0.lock();
        if let Some(known) = inner.all.get(&family) {
            return Arc::clone(known);
        }
        if inner.all.len() >= inner.sweep_at {
            inner.all.retain(|family| Arc::strong_count(family) > 1);
            inner.sweep_at = SWEEP_MIN.max(inner.all.len() * 2);
        }
        let family = Arc::new(family);
        inner.all.insert(Arc::clone(&family));
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(columns: &[&str]) -> Family {
        let columns = Some(columns.iter().map(|&name| name.to_owned()).collect());
        Family::of(&Definition { columns, ..Definition::of_table("public", "t") }, 7, "{}".into())
    }

    #[test]
    fn equal_families_are_one_and_those_without_shapes_go() {
        let families = Families::default();
        let kept = families.share(family(&["a"]));
        assert!(Arc::ptr_eq(&kept, &families.share(family(&["a"]))));
        assert!(!Arc::ptr_eq(&kept, &families.share(family(&["b"]))));
        (0..10 * SWEEP_MIN).for_each(|n| drop(families.share(family(&[&n.to_string()]))));
        assert!(families.0.lock().all.len() <= SWEEP_MIN);
        assert!(Arc::ptr_eq(&kept, &families.share(family(&["a"]))));
    }

    #[test]
    fn a_family_and_a_condition_are_a_definition() {
        let definition = Definition {
            where_sql: Some("a = $1 OR b = $2".into()),
            params: vec![(1, "x".into()), (2, String::new())],
            columns: Some(vec!["a".into(), "b".into()]),
            queryable: Some(vec!["a".into()]),
            replica: Replica::Full,
            log: LogMode::ChangesOnly,
            ..Definition::of_table("s", "t")
        };
        for definition in [definition, Definition::of_table("public", "t")] {
            let family = Family::of(&definition, 1, String::new());
            assert_eq!(family.with(&Condition::of(&definition)), definition);
        }
    }
}
