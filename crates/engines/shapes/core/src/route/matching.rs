//! The shapes of a table that a row belongs to.

use std::collections::HashMap;
use std::sync::Arc;
use thalweg_filter::{Explanation, Filing, Index};
use thalweg_shapes_model::predicate::Predicate;

/// Shapes of one table by their predicates.
#[derive(Default)]
pub struct Matcher {
    index: Index<u32>,
    /// The index entry of each slot, for its removal.
    filings: HashMap<u32, Filing>,
}

impl Matcher {
    pub fn insert(&mut self, slot: u32, predicate: Option<Arc<Predicate>>) {
        self.remove(slot);
        let filing = self.index.insert(slot, predicate.as_ref());
        self.filings.insert(slot, filing);
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(filing) = self.filings.remove(&slot) {
            self.index.remove(slot, filing);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.filings.is_empty()
    }

    /// Appends the slots whose predicate holds for the row, ascending, and those whose evaluation costs too much.
    pub fn matching(&mut self, row: &[Option<&[u8]>], out: &mut Vec<u32>, costly: &mut Vec<u32>) {
        self.index.matching(row, out, costly);
    }

    /// Explains how the index finds a predicate.
    pub fn explain(&self, predicate: &Predicate) -> Explanation {
        self.index.explain(predicate)
    }

    /// The number of evaluations since the last call.
    pub fn take_evaluations(&mut self) -> u64 {
        self.index.take_evaluations()
    }
}
