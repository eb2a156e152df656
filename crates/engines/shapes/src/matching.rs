//! Which shapes of a table a row belongs to.

use crate::predicate::Predicate;
use std::sync::Arc;

/// Shapes of one table by their predicates.
#[derive(Default)]
pub(crate) struct Matcher {
    /// Ascending by slot.
    all: Vec<(u32, Option<Arc<Predicate>>)>,
}

impl Matcher {
    pub(crate) fn insert(&mut self, slot: u32, predicate: Option<Arc<Predicate>>) {
        let at = self.all.partition_point(|(s, _)| *s < slot);
        self.all.insert(at, (slot, predicate));
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.all.retain(|(s, _)| *s != slot);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The slots whose predicate is true for the row, ascending.
    pub(crate) fn matching(&mut self, row: &[Option<&[u8]>], out: &mut Vec<u32>) {
        out.extend(self.all.iter().filter(|(_, p)| p.as_ref().is_none_or(|p| p.holds(row))).map(|(slot, _)| *slot));
    }

    /// The same for a row before and after a change.
    pub(crate) fn matching_both(
        &mut self,
        old: &[Option<&[u8]>],
        new: &[Option<&[u8]>],
        in_old: &mut Vec<u32>,
        in_new: &mut Vec<u32>,
    ) {
        self.matching(old, in_old);
        self.matching(new, in_new);
    }
}
