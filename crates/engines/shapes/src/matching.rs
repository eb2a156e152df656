//! Which shapes of a table a row belongs to.

use crate::predicate::Predicate;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_filter::{Explanation, Filing, Index};

/// Shapes of one table by their predicates.
#[derive(Default)]
pub(crate) struct Matcher {
    index: Index<u32>,
    /// Where each slot is filed, to take it back.
    filings: HashMap<u32, Filing>,
}

impl Matcher {
    pub(crate) fn insert(&mut self, slot: u32, predicate: Option<Arc<Predicate>>) {
        self.remove(slot);
        let filing = self.index.insert(slot, predicate.as_ref());
        self.filings.insert(slot, filing);
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(filing) = self.filings.remove(&slot) {
            self.index.remove(slot, filing);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filings.is_empty()
    }

    /// The slots whose predicate is true for the row, ascending, and those of which it is too costly to find out.
    pub(crate) fn matching(&mut self, row: &[Option<&[u8]>], out: &mut Vec<u32>, costly: &mut Vec<u32>) {
        self.index.matching(row, out, costly);
    }

    /// How a predicate would be found, for people.
    pub(crate) fn explain(&self, predicate: &Predicate) -> Explanation {
        self.index.explain(predicate)
    }

    /// How often a predicate was evaluated since this was asked last.
    pub(crate) fn take_evaluations(&mut self) -> u64 {
        self.index.take_evaluations()
    }
}
